#!/usr/bin/env python3
"""Our attention against what a PyTorch user would pick instead, on one GPU, in one run.

    python3 benchmarks/grid.py [--suite fwd,gqa,local,heads,bwd] [--peers cudnn,fa2,flex] [--only TEXT] [--quick] [--deterministic]
                               [--element bf16] [--target sm_80] [--plan TEXT]... [--json [FILE]] [--plot FILE] [--read FILE]

Prints TFLOP/s of ours, cuDNN, FlashAttention-2 and, asked for, FlexAttention for each problem of targets.json (suite `heads`: the
other head sizes; suite `bwd`: gradients alone, of a forward before). The bar is the better of cuDNN and FlashAttention-3, which
targets.json gives relative to a peer: the peer's speed of this run times `best_over_peer`; without one, the peer itself. A row
far under its bar is flagged, and geometric means come with what they must reach. Rows that we refuse say so and are
counted. The card is power-limited and remembers the kernel before, so a row's kernels are timed in turn,
launch by launch, after 200 ms of warm-up each, with the L2 cache flushed before every launch; medians of CUDA events. Kernels are
compiled first, by a pool of processes, into the disk cache.

--target sm_80 times the kernels of older devices on this one: the bar is FlashAttention-2, whose instructions are the same. Each
--plan ("tile = [64, 64], stages = 2") is one more column; where we refuse a row, the first plan that fits is held to its bar.
--deterministic is a column too, of suite bwd, and with --element f16 so are ours in bf16: f16 has to be as fast. Suite heads has a
column `wide`, of rows whose V is narrower than K: ours with a V as wide as K, whose TFLOP/s the narrow one has to reach.
"""
import argparse
import collections
import concurrent.futures
import json
import math
import multiprocessing
import os
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "python"))

import flash_mlir  # unpacks a bundle's library before processes do
from flash_mlir import _api, _timing

TARGETS = pathlib.Path(__file__).with_name("targets.json")
LEAST = {"sm_90a": 0.98, "sm_80": 1.00}  # of the bar, for every row
LEAST_BACKWARD = 0.92
PEERS = {"cudnn": "cuDNN", "fa2": "FA-2", "flex": "Flex"}
OTHER_HEADS = [(96, 96), (192, 192), (192, 128), (64, 256), (64, 512)]
LENGTHS = [512, 1024, 2048, 4096, 8192, 16384]  # of a V narrower than K; the others' is 4096
# suite, name, which rows, the geometric mean they must reach on sm_90a and on sm_80
MEANS = [
    ("fwd", "all", lambda r: True, 1.10, 1.10),
    ("fwd", "head size 64", lambda r: r["d"] == 64, 1.10, None),
    ("fwd", "head size 128", lambda r: r["d"] == 128, None, None),
    ("fwd", "head size 256", lambda r: r["d"] == 256, None, None),
    ("fwd", "dense", lambda r: not r["causal"], None, None),
    ("fwd", "causal", lambda r: r["causal"], None, None),
    ("gqa", "all", lambda r: True, 1.08, 1.08),
    ("local", "window 256", lambda r: r["left"] == 256, 1.20, None),
    ("local", "window 1024", lambda r: r["left"] == 1024, 1.20, None),
    ("local", "window 4096", lambda r: r["left"] == 4096, 1.05, None),
    ("heads", "all", lambda r: True, None, None),
]
MEANS += [("bwd", name, wanted, 1.00, 1.05) for suite, name, wanted, *_ in MEANS if suite == "fwd"]
# A speed that must not be lost: what it is, whose time over whose it is, the geometric mean it must reach
KEEPS = [("f16 over bf16", "bf16", "ours", 0.97), ("deterministic over not", "ours", "determ.", 0.85), ("(192, 128) over 192, by work", "wide", "ours", 1.00)]


def problems(suites, only="", quick=False, target="sm_90a"):
    rows = json.loads(TARGETS.read_text())["rows"]
    for d, dv in OTHER_HEADS:
        for causal in (False, True):
            for s in LENGTHS if dv < d else [4096]:
                rows.append(dict(suite="heads", b=16384 // s, hq=2048 // d, hkv=2048 // d, sq=s, sk=s, d=d, dv=dv, causal=causal, peer="cudnn"))
    for r in rows:
        if target != "sm_90a":
            r.update(peer="fa2", best_over_peer=1.0)
        if r["suite"] in suites and only in name_of(r) and not (quick and r["sq"] not in (1024, 2048, 4096, 16384)):
            yield r


def name_of(p):
    heads = f"d{p['d']}" + (f"/{p['dv']}" if p.get("dv", p["d"]) != p["d"] else "")
    mask = f"window {p['left']}" if p.get("left") else "causal" if p["causal"] else "dense"
    return f"{p['suite']} {heads} {mask} {p['b']}x{p['sq']} heads {p['hq']}/{p['hkv']}"


def mask_of(p):
    return dict(causal=p["causal"], window=(p.get("left", -1), -1))


def is_backward(p):
    return p["suite"] == "bwd"


def widened(p):
    """The problem with a V as wide as K; None where it is."""
    return dict(p, dv=p["d"]) if p.get("dv", p["d"]) < p["d"] else None


def work_of(p):
    return _timing.flops(p["b"], p["hq"], p["sq"], p["sk"], p["d"], p.get("dv", p["d"]), p["causal"], p.get("left", -1))


def columns(element, deterministic, plans, wide=False):
    """What is timed of ours: by name, how it is called."""
    own = {"ours": dict(element=element)}
    if element != "bf16":
        own["bf16"] = dict(element="bf16")
    if deterministic:
        own["determ."] = dict(element=element, deterministic=True)
    if wide:
        own["wide"] = dict(element=element, wide=True)
    return own | {f"plan {i}": dict(element=element, plan=plan) for i, plan in enumerate(plans, 1)}


def prepare(p, target, element, plan=None, deterministic=False, wide=False):
    """Compiles our kernels of a problem into the disk cache; the plan of what is timed, or None: what fails does so again, and is
    reported, where it is called."""
    p = widened(p) if wide else p
    if p is None:
        return None
    shape = lambda s, heads, d: (p["b"], s, heads, d)
    shapes = shape(p["sq"], p["hq"], p["d"]), shape(p["sk"], p["hkv"], p["d"]), shape(p["sk"], p["hkv"], p.get("dv", p["d"]))
    compiled = lambda **options: flash_mlir.compile(*shapes, element=element, target=target, **options, **mask_of(p))
    try:
        if is_backward(p):
            compiled()
            return compiled(plan=plan, backward=True, deterministic=deterministic).text("plan")
        return compiled(plan=plan).text("plan")
    except Exception:
        return None


def inputs(p, element):
    """q, k, v and, where gradients are timed, do."""
    import torch

    torch.manual_seed(0)
    dtype = {"bf16": torch.bfloat16, "f16": torch.float16}[element]
    draw = lambda s, heads, d: torch.randn(p["b"], s, heads, d, device="cuda", dtype=dtype)
    dv = p.get("dv", p["d"])
    arrays = draw(p["sq"], p["hq"], p["d"]), draw(p["sk"], p["hkv"], p["d"]), draw(p["sk"], p["hkv"], dv)
    return (*arrays, draw(p["sq"], p["hq"], dv)) if is_backward(p) else arrays


def ours(p, arrays, target, plan=None, deterministic=False):
    """A function without arguments that gives o, or (dq, dk, dv); raises where we cannot."""
    import torch

    (q, k, v, *do), options = arrays, dict(target=target, **mask_of(p))
    out, lse = q.new_empty(*q.shape[:3], v.shape[3]), q.new_empty(p["b"], p["hq"], p["sq"], dtype=torch.float32)
    if do:
        _, lse = flash_mlir.attention(q, k, v, out=out, return_lse=True, **options)
        if plan is None:
            return lambda: flash_mlir.attention_backward(*do, q, k, v, out, lse, deterministic=deterministic, **options)
        made, result = _api.planned_backward(*do, q, k, v, out, lse, plan=plan, **options), tuple(map(torch.empty_like, (q, k, v)))
        operands = q, k, v, *do, out, lse, *result
    else:
        if plan is None:
            return lambda: flash_mlir.attention(q, k, v, out=out, **options)
        made, result, operands = _api.planned(q, k, v, out, plan=plan, **options), out, (q, k, v, out, lse)

    def call():
        made.run(*operands)
        return result

    return call


def peers_attention(name, p):
    """A peer's function of q, k and v that gives o [B, S, H, D]; raises where it cannot."""
    import torch
    import torch.nn.functional as F
    from torch.nn.attention import SDPBackend, sdpa_kernel

    turned = lambda *arrays: [x.transpose(1, 2) for x in arrays]
    grouped, left = p["hq"] != p["hkv"], p.get("left")
    if left and name == "fa2":
        return lambda q, k, v: torch.ops.aten._flash_attention_forward(q, k, v, None, None, p["sq"], p["sk"], 0.0, True, False, window_size_left=left, window_size_right=0)[0]
    if name == "flex":
        from torch.nn.attention.flex_attention import create_block_mask, flex_attention

        torch._dynamo.reset()  # past its limit of recompilations it would run unfused
        mask = None
        if p["causal"]:
            reach = left or p["sk"]
            mask = create_block_mask(lambda b, h, i, j: (i >= j) & (i - j <= reach), None, None, p["sq"], p["sk"], device="cuda")
        compiled = torch.compile(flex_attention, dynamic=False)
        return lambda *arrays: compiled(*turned(*arrays), block_mask=mask, enable_gqa=grouped).transpose(1, 2)
    if left:
        raise NotImplementedError("no window")
    backend = {"cudnn": SDPBackend.CUDNN_ATTENTION, "fa2": SDPBackend.FLASH_ATTENTION}[name]

    def attend(*arrays):
        with sdpa_kernel(backend):
            return F.scaled_dot_product_attention(*turned(*arrays), is_causal=p["causal"], enable_gqa=grouped).transpose(1, 2)

    return attend


def peer(name, p, arrays):
    """As ours."""
    import torch

    attend, (q, k, v, *do) = peers_attention(name, p), arrays
    if not do:
        return lambda: attend(q, k, v)
    leaves = [x.detach().requires_grad_() for x in (q, k, v)]
    o = attend(*leaves)
    return lambda: torch.autograd.grad(o, leaves, *do, retain_graph=True)


def matrix_rate(flush):
    """TFLOP/s of an 8192^3 bf16 product (cuBLAS)."""
    import torch

    n = 8192
    a, b = (torch.randn(n, n, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    return 2 * n**3 / _timing.measure([lambda: a @ b], flush)[0] / 1e9


def distance(got, want):
    """The largest relative L2 distance of results; NaN where there is one."""
    found = [_timing.apart(x, y) for x, y in (zip(got, want) if isinstance(got, tuple) else [(got, want)])]
    return max(found, key=lambda x: (math.isnan(x), x))


def compare(p, own, peers, flush, target):
    """The row of a problem: milliseconds of each column, the distance to another's result, and the ratio to the bar."""
    element = own["ours"]["element"]
    work = work_of(p)
    row = dict({key: p[key] for key in p if not key.endswith("_ms")}, name=name_of(p), element=element, flops=work * (_timing.BACKWARD_WORK if is_backward(p) else 1))
    arrays = {e: inputs(p, e) for e in {how["element"] for how in own.values()}}
    calls, notes, mine = {}, {}, None
    for name in (*own, *peers):
        how = dict(own.get(name, {}))
        if how.get("deterministic") and not is_backward(p):
            continue
        of, operands = p, arrays[how.pop("element", element)]
        if how.pop("wide", False):
            of = widened(p)
            if of is None:
                continue
            operands = inputs(of, element)
        try:
            call = ours(of, operands, target, **how) if name in own else peer(name, p, operands)
            result = call()
        except Exception as e:  # who cannot is a dash in the table
            if name == "ours" and not isinstance(e, NotImplementedError):
                raise
            notes[name] = str(e).splitlines()[0][:100]
            continue
        if mine is None:
            mine = result
        elif "apart" not in row and operands is arrays[element]:
            row["apart"] = distance(mine, result)
        calls[name] = call
    if notes:
        row["cannot"] = notes
    held = next((name for name in own if name in calls and name != "wide"), None)  # ours, or the first plan that fits
    if held is None:
        return dict(row, refused=notes["ours"])
    row["ms"] = dict(zip(calls, _timing.measure(list(calls.values()), flush)))
    if "wide" in calls:  # as much of its time as the row is of its work
        row["ms"]["wide"] *= work / work_of(widened(p))
    if p["peer"] in calls:
        row["bar_ms"] = row["ms"][p["peer"]] / p.get("best_over_peer", 1.0)
        row["ratio"] = row["bar_ms"] / row["ms"][held]
    return row


def least(row):
    return LEAST_BACKWARD if is_backward(row) else LEAST[row.get("target", "sm_90a")]


def is_wrong(row):
    return not row.get("apart", 0) < _timing.ALLOWED * (2 if is_backward(row) else 1)


def rate(row, ms):
    return row["flops"] / ms / 1e9


def line(row, others):
    if "error" in row:
        return f"{row['name']:44} {row['error']}"
    if "refused" in row:
        return f"{row['name']:44} refused: {row['refused']}"
    shown = [f"{rate(row, row['ms'][n]):8.1f}" if n in row["ms"] else f"{'-':>8}" for n in ("ours", *others)]
    end = f"{rate(row, row['bar_ms']):8.1f} {row['ratio']:7.3f}" if "ratio" in row else f"{'-':>8} {'-':>7}"
    flag = "  LOW" if row.get("ratio", 1) < least(row) else ""
    if is_wrong(row):
        flag += f"  WRONG: {row['apart']:.1e} apart"
    return f"{row['name']:44} {' '.join(shown)} {end}{flag}"


def geometric_mean(values):
    return math.exp(sum(map(math.log, values)) / len(values))


def mean_of(ratios, bar):
    mean = geometric_mean(ratios)
    return f"{mean:6.3f} of {len(ratios):2} rows" + (f"   must be {bar:.2f}: {'ok' if mean >= bar else 'MISSED'}" if bar else "")


def summary(about, rows):
    timed = [r for r in rows if "ratio" in r]
    target = about.get("target", "sm_90a")
    yield "geometric mean of ours over the bar"
    for suite, name, wanted, *bars in MEANS:
        ratios = [r["ratio"] for r in timed if r["suite"] == suite and wanted(r)]
        bar = dict(zip(LEAST, bars))[target]
        if ratios:
            yield f"  {suite:6} {name:14} {mean_of(ratios, bar)}"
    for name, over, under, bar in KEEPS:
        ratios = [r["ms"][over] / r["ms"][under] for r in rows if over in r.get("ms", {}) and under in r["ms"]]
        if ratios:
            yield f"speed of {name}: {mean_of(ratios, bar)}, the least {min(ratios):.3f}"
    low = [r for r in timed if r["ratio"] < least(r)]
    yield f"rows under their least ratio: {len(low)}" + "".join(f"\n  {r['name']:44} {r['ratio']:6.3f} of {least(r)}" for r in low)
    refused = [r for r in rows if "refused" in r]
    yield f"rows refused: {len(refused)} of {len(rows)}" + "".join(f"\n  {count:3} {sentence}" for sentence, count in collections.Counter(r["refused"] for r in refused).items())
    ceiling = about["matrix_tflops"]
    long = [r for r in timed if r["suite"] == "fwd" and r["d"] > 64 and r["sq"] >= 4096 and not r["causal"] and "ours" in r["ms"]]
    if long and target == "sm_90a":
        slowest = min(long, key=lambda r: rate(r, r["ms"]["ours"]))
        mine = rate(slowest, slowest["ms"]["ours"])
        yield f"dense, head size 128 and 256, S >= 4096: at least {mine:.0f} TFLOP/s ({slowest['name']}), the matrix rate is {ceiling:.0f}: {'ok' if mine >= ceiling else 'MISSED'}"


def plot(about, rows, peers, path):
    """Bars of TFLOP/s over the sequence length, one panel a head size and mask."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    rows = [r for r in rows if "ms" in r and r["suite"] == "fwd"]
    sizes, masks = sorted({r["d"] for r in rows}), sorted({r["causal"] for r in rows})
    if not rows:
        raise SystemExit("grid.py: expected rows of suite fwd to plot, there are none")
    colours = {"ours": "#c2410c", "cudnn": "#4d7c0f", "fa2": "#94a3b8", "flex": "#7c3aed"}
    figure, panels = plt.subplots(len(masks), len(sizes), figsize=(4.6 * len(sizes), 3.1 * len(masks)), squeeze=False, sharey="row", layout="constrained")
    for i, causal in enumerate(masks):
        for j, d in enumerate(sizes):
            axis, some = panels[i][j], sorted((r for r in rows if r["d"] == d and r["causal"] == causal), key=lambda r: r["sq"])
            names = [n for n in ("ours", *peers) if any(n in r["ms"] for r in some)]
            for at, n in enumerate(names):
                bars = axis.bar([x + (at - (len(names) - 1) / 2) * 0.8 / len(names) for x in range(len(some))],
                                [rate(r, r["ms"][n]) if n in r["ms"] else 0 for r in some], 0.8 / len(names), color=colours[n], label=PEERS.get(n, "flash-mlir"))
                if n == "ours":
                    axis.bar_label(bars, fmt="%.0f", fontsize=7)
            for x, r in enumerate(some):
                if "bar_ms" in r:
                    axis.hlines(rate(r, r["bar_ms"]), x - 0.42, x + 0.42, color="black", linewidth=1.2, label="better of cuDNN and FlashAttention-3" if x == 0 else None)
            axis.set_xticks(range(len(some)), [str(r["sq"]) for r in some], fontsize=8)
            axis.set_title(f"head size {d}, {'causal' if causal else 'dense'}", fontsize=10)
            axis.spines[["top", "right"]].set_visible(False)
    for panel in panels:
        panel[0].set_ylabel("TFLOP/s")
    for axis in panels[-1]:
        axis.set_xlabel("sequence length (16384 tokens)")
    figure.legend(*panels[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=5, frameon=False, fontsize=9)
    figure.suptitle(f"Attention forward, {rows[0]['element']}, {about['gpu']}", fontsize=11)
    figure.savefig(path, dpi=160)


def time_rows(a, peers, tell):
    """Yields what is known of the machine, then the rows."""
    torch = _timing.pytorch("grid.py")  # before the pool forks; CUDA is first touched after it

    wanted = list(problems(a.suite.split(","), a.only, a.quick, a.target))
    own, start = columns(a.element, a.deterministic, a.plan, any(map(widened, wanted))), time.time()
    with concurrent.futures.ProcessPoolExecutor(a.jobs, multiprocessing.get_context("fork")) as pool:
        plans = [x.result() for x in [pool.submit(prepare, p, a.target, **how) for how in own.values() for p in wanted]]
    tell(f"kernels of {len(wanted)} problems ready in {time.time() - start:.0f} s with {a.jobs} processes")
    flush = _timing.l2_flush()
    yield dict(gpu=torch.cuda.get_device_name(), target=a.target, torch=torch.__version__, cudnn=torch.backends.cudnn.version(), matrix_tflops=matrix_rate(flush))
    for p, plan in zip(wanted, plans):  # of ours, the first column
        try:
            yield dict(compare(p, own, peers, flush, a.target), plan=plan, target=a.target)
        except Exception as e:  # the other rows are still worth having
            yield dict(p, name=name_of(p), error=f"{type(e).__name__}: {e}".splitlines()[0][:200])


def json_lines(option):
    """Of --json: whether the table is shown, and the file of JSON lines, if any."""
    return option != "-", sys.stdout if option == "-" else open(option, "w") if option else None


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--suite", default="fwd", help="of fwd, gqa, local, heads, bwd, with commas, or all (default: fwd)")
    ap.add_argument("--peers", default="cudnn,fa2", help="of cudnn, fa2, flex (default: cudnn,fa2)")
    ap.add_argument("--only", default="", help='rows whose name ("fwd d128 causal 4x4096 heads 16/16") holds this')
    ap.add_argument("--quick", action="store_true", help="fewer lengths")
    ap.add_argument("--deterministic", action="store_true", help="deterministic gradients besides")
    ap.add_argument("--element", default="bf16", choices=["bf16", "f16"])
    ap.add_argument("--target", default="sm_90a", choices=sorted(LEAST))
    ap.add_argument("--plan", action="append", default=[], help='a plan to time besides, "tile = [64, 64]" or "#flash.plan<tile = [64, 64]>"')
    ap.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="processes that compile")
    ap.add_argument("--json", nargs="?", const="-", metavar="FILE", help="a JSON line a row: to FILE, or instead of the table")
    ap.add_argument("--plot", metavar="FILE", help="draw suite fwd as .svg or .png (needs matplotlib)")
    ap.add_argument("--read", metavar="FILE", help="show an earlier run's JSON lines instead of timing")
    a = ap.parse_args()
    suites = {suite for suite, *_ in MEANS}
    if a.suite == "all":
        a.suite = ",".join(dict.fromkeys(suite for suite, *_ in MEANS))
    peers = a.peers.split(",") if a.peers else []
    if unknown := [x for x in a.suite.split(",") if x not in suites] + [x for x in peers if x not in PEERS]:
        ap.error(f"expected suites of {', '.join(sorted(suites))} and peers of {', '.join(PEERS)}, got {', '.join(unknown)}")
    names = list(columns(a.element, a.deterministic, a.plan, "heads" in a.suite.split(",")))[1:]
    table, lines = json_lines(a.json)
    tell = lambda text: print(text, file=sys.stdout if table else sys.stderr, flush=True)
    start = time.time()
    source = map(json.loads, open(a.read)) if a.read else time_rows(a, peers, tell)
    about, rows = next(source), []
    if a.read:
        source = list(source)
        peers = [n for n in PEERS if any(n in r.get("ms", {}) for r in source)]
        names = list(dict.fromkeys(n for r in source for n in r.get("ms", {}) if n not in ("ours", *PEERS)))
    if lines:
        print(json.dumps(about), file=lines, flush=True)
    if table:
        print(f"{about['gpu']}, torch {about['torch']}, cuDNN {about['cudnn']}, matrix rate {about['matrix_tflops']:.0f} TFLOP/s\n")
        print(f"{'TFLOP/s':44} {'ours':>8} {' '.join(f'{PEERS.get(n, n):>8}' for n in (*names, *peers))} {'bar':>8} {'ratio':>7}")
    for row in source:
        rows.append(row)
        if lines:
            print(json.dumps(row), file=lines, flush=True)
        if table:
            print(line(row, (*names, *peers)), flush=True)
    if table:
        print("\n" + "\n".join(summary(about, rows)))
        print(f"{time.time() - start:.0f} s")
    if a.plot:
        plot(about, rows, peers, a.plot)
    return any("error" in r or is_wrong(r) for r in rows) or not any("ms" in r for r in rows)


if __name__ == "__main__":
    sys.exit(main())
