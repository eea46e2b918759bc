#!/usr/bin/env python3
"""Decoding over contiguous and paged caches, and packed sequences, on one GPU, in one run.

    python3 benchmarks/serving.py [--suite decode,pages,packed] [--only TEXT] [--json [FILE]]

decode: one query row, 32 heads on 8 KV heads of 128, bf16. GB/s of K and V; where they exceed 256 MiB the bar is the bandwidth of a
device-to-device copy of 4 GiB (read and written bytes of this run), elsewhere the better of cuDNN and FlashAttention-2. pages: the same
cache in pages, against contiguous. packed: sequences of different lengths, against as many of one length and of the same work. Kernels
of a row are timed in turn after 100 ms of warm-up each, with the L2 cache flushed before every launch; medians of CUDA events. The flush
writes, as the peers' own timers do; where the bar is the copy's bandwidth it reads besides, for a kernel's loads would wait for what it
wrote to be written back: traffic that is not the kernel's, and nothing beside 4 GiB.
"""
import argparse
import json
import math
import random
import sys
import time

import grid  # finds flash_mlir

import flash_mlir
from flash_mlir import _timing

HEADS, KV_HEADS, SIZE, BYTES = 32, 8, 128, 2
LARGE = 256 << 20  # bytes of K and V above which the memory's bandwidth is the bar
MOST = 40e9
# suite, name, which rows, what their ratios must reach: the least of them, or (False) their geometric mean
LEAST = [
    ("decode", "of the copy bandwidth", lambda r: r["bar"] == "copy", 0.92, True),
    ("decode", "of the better peer", lambda r: r["bar"] == "peer", 1.10, False),
    ("pages", "pages of 16", lambda r: r["page"] == 16, 0.90, True),
    ("pages", "pages of 1", lambda r: r["page"] == 1, 0.60, True),
    ("packed", "of equal lengths", lambda r: True, 0.95, True),
]


def cache_bytes(batch, keys):
    """Of K and V."""
    return 2 * batch * keys * KV_HEADS * SIZE * BYTES


def problems(suites, only=""):
    rows = []
    for keys in (4096, 16384, 32768, 65536, 131072):
        for batch in (1, 4, 16, 64):
            if cache_bytes(batch, keys) <= MOST:
                rows.append(dict(suite="decode", name=f"decode batch {batch} keys {keys}", b=batch, keys=keys, bar="copy" if cache_bytes(batch, keys) > LARGE else "peer"))
    for batch, keys in ((16, 32768), (64, 8192)):
        for page in (256, 16, 1):
            rows.append(dict(suite="pages", name=f"pages of {page} batch {batch} keys {keys}", b=batch, keys=keys, page=page, bar="contiguous"))
    mixed = random.Random(0)
    for kind, lengths in (("mixed", [mixed.randrange(128, 8193) for _ in range(16)]), ("one long", [16384] + [256] * 15)):
        for causal in (False, True):
            rows.append(dict(suite="packed", name=f"packed {kind} {'causal' if causal else 'dense'}", lengths=lengths, causal=causal, bar="equal"))
    return [r for r in rows if r["suite"] in suites and only in r["name"]]


def work(lengths):
    """Query-key pairs of sequences that attend to themselves."""
    return sum(n * n for n in lengths)


def equal_length(lengths):
    """The length of as many sequences of the same work."""
    return round(math.sqrt(work(lengths) / len(lengths)))


class Bench:
    def __init__(self):
        torch = _timing.pytorch("serving.py")
        self.torch, self.flush, self.clean = torch, _timing.l2_flush(), _timing.l2_flush(clean=True)
        x = torch.zeros(1 << 30, device="cuda")
        y = torch.empty_like(x)
        self.copy = 2 * x.nbytes / self.times([lambda: y.copy_(x)], clean=True)[0] / 1e6  # GB/s

    def times(self, calls, clean=False):
        return _timing.measure(calls, self.clean if clean else self.flush, warm_up_ms=100, rounds_ms=300)

    def draw(self, *shape):
        return self.torch.randn(*shape, device="cuda", dtype=self.torch.bfloat16)

    def caches(self, p):
        return self.draw(p["b"], 1, HEADS, SIZE), *(self.draw(p["b"], p["keys"], KV_HEADS, SIZE) for _ in range(2))

    def decode(self, p):
        q, k, v = self.caches(p)
        calls = {"ours": lambda: flash_mlir.attention(q, k, v)}
        mine = calls["ours"]()
        for name in ("cudnn", "fa2"):
            call = grid.peer(name, dict(hq=HEADS, hkv=KV_HEADS, sq=1, sk=p["keys"], causal=False), (q, k, v))
            try:
                self.close(mine, call())
            except RuntimeError:  # a peer that cannot
                continue
            calls[name] = call
        ms = dict(zip(calls, self.times(list(calls.values()), clean=p["bar"] == "copy")))
        rate = cache_bytes(p["b"], p["keys"]) / ms["ours"] / 1e6
        others = [t for name, t in ms.items() if name != "ours"]
        ratio = rate / self.copy if p["bar"] == "copy" else min(others) / ms["ours"] if others else None
        return dict(p, ms=ms, gb_s=rate, ratio=ratio)

    def pages(self, p):
        torch, page = self.torch, p["page"]
        q, k, v = self.caches(p)
        count = p["b"] * p["keys"] // page
        order = torch.randperm(count, device="cuda", generator=torch.Generator("cuda").manual_seed(0))
        pools = [torch.empty(count, page, KV_HEADS, SIZE, device="cuda", dtype=torch.bfloat16) for _ in range(2)]
        for pool, x in zip(pools, (k, v)):
            pool[order] = x.view(count, page, KV_HEADS, SIZE)
        table = order.to(torch.int32).view(p["b"], -1).contiguous()
        used = torch.full((p["b"],), p["keys"], device="cuda", dtype=torch.int32)
        paged = lambda: flash_mlir.attention(q, *pools, page_table=table, seqused_k=used)
        contiguous = lambda: flash_mlir.attention(q, k, v)
        self.close(paged(), contiguous())
        ms = dict(zip(("ours", "contiguous"), self.times([paged, contiguous])))
        return dict(p, ms=ms, gb_s=cache_bytes(p["b"], p["keys"]) / ms["ours"] / 1e6, ratio=ms["contiguous"] / ms["ours"])

    def packed(self, p):
        torch, lengths, causal = self.torch, p["lengths"], p["causal"]
        heads, same = 2048 // SIZE, equal_length(lengths)
        ends = [0]
        for n in lengths:
            ends.append(ends[-1] + n)
        cu = torch.tensor(ends, device="cuda", dtype=torch.int32)
        q, k, v = (self.draw(ends[-1], heads, SIZE) for _ in range(3))
        a, b, c = (self.draw(len(lengths), same, heads, SIZE) for _ in range(3))
        most = max(lengths)
        packed = lambda: flash_mlir.attention(q, k, v, causal=causal, cu_seqlens_q=cu, cu_seqlens_k=cu, max_seqlen_q=most, max_seqlen_k=most)
        equal = lambda: flash_mlir.attention(a, b, c, causal=causal)
        first = slice(0, lengths[0])
        self.close(packed()[first], flash_mlir.attention(q[first][None], k[first][None], v[first][None], causal=causal)[0])
        ms = dict(zip(("ours", "equal"), self.times([packed, equal])))
        rate = {name: _timing.flops(1, heads, pairs, 1, SIZE, SIZE, causal) / ms[name] / 1e9 for name, pairs in (("ours", work(lengths)), ("equal", len(lengths) * same**2))}
        return dict(p, ms=ms, tflops=rate["ours"], ratio=rate["ours"] / rate["equal"])

    def close(self, mine, other):
        apart = _timing.apart(mine, other)
        if not apart < _timing.ALLOWED:
            raise ArithmeticError(f"{apart:.1e} from the other's result")


def line(row):
    if "error" in row:
        return f"{row['name']:40} {row['error']}"
    rate = f"{row['gb_s']:7.0f} GB/s" if "gb_s" in row else f"{row['tflops']:7.0f} TFLOP/s"
    times = ", ".join(f"{name} {ms * 1e3:.0f}" for name, ms in row["ms"].items())
    return f"{row['name']:40} {rate:>16}   {row['ratio']:6.3f} of {row['bar']:10}   us: {times}" if row["ratio"] else f"{row['name']:40} {rate:>16}   no peer"


def summary(rows):
    for suite, name, wanted, least, each in LEAST:
        ratios = [r["ratio"] for r in rows if r["suite"] == suite and r.get("ratio") and wanted(r)]
        if ratios:
            got = min(ratios) if each else grid.geometric_mean(ratios)
            yield f"  {suite:6} {name:22} {'least' if each else 'mean':5} {got:6.3f} of {len(ratios):2} rows   must be {least:.2f}: {'ok' if got >= least else 'MISSED'}"


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--suite", default="decode,pages,packed", help="of decode, pages, packed, with commas (default: all)")
    ap.add_argument("--only", default="", help='rows whose name ("decode batch 4 keys 16384") holds this')
    ap.add_argument("--json", nargs="?", const="-", metavar="FILE", help="a JSON line a row: to FILE, or instead of the table")
    a = ap.parse_args()
    if unknown := set(a.suite.split(",")) - {suite for suite, *_ in LEAST}:
        ap.error(f"expected suites of decode, pages and packed, got {', '.join(sorted(unknown))}")
    (table, lines), start = grid.json_lines(a.json), time.time()
    bench, rows = Bench(), []
    if table:
        print(f"{bench.torch.cuda.get_device_name()}, copies {bench.copy:.0f} GB/s\n")
    for p in problems(a.suite.split(","), a.only):
        try:
            row = getattr(bench, p["suite"])(p)
        except Exception as e:  # the other rows are still worth having
            row = dict(p, error=f"{type(e).__name__}: {e}".splitlines()[0][:200])
        rows.append(row)
        if lines:
            print(json.dumps(row), file=lines, flush=True)
        if table:
            print(line(row), flush=True)
    if table:
        print("\n" + "\n".join(summary(rows)) + f"\n{time.time() - start:.0f} s")
    return any("error" in r for r in rows)


if __name__ == "__main__":
    sys.exit(main())
