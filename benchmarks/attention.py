#!/usr/bin/env python3
"""Our attention against cuDNN's (through PyTorch) on one GPU, in one run.

    python3 benchmarks/attention.py [--json] [--only SUBSTRING] [--quick]

The card is power-limited, so the two are timed alternately, launch by launch, after 200 ms of warm-up each, with the L2 cache
flushed before every launch; medians of CUDA events. The ratio is our speed over cuDNN's. The first row is the bar of the
first release: head size 128, dense, 16 heads, 4 x 4096: at least 0.75.
"""
import argparse
import json
import pathlib
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "python"))

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import flash_mlir

WARM_UP_MS, ROUNDS, FLUSH_BYTES = 200, 30, 256 << 20


def problems(quick):
    yield dict(b=4, s=4096, hq=16, hkv=16, d=128, causal=False)
    for d in (64, 128, 256):
        for s in (1024, 4096, 16384) if not quick else (4096,):
            for causal in (False, True):
                yield dict(b=16384 // s, s=s, hq=2048 // d, hkv=2048 // d, d=d, causal=causal)
    for s in (2048, 8192) if not quick else (2048,):
        yield dict(b=16384 // s, s=s, hq=32, hkv=8, d=128, causal=True)


def name_of(p):
    return f"d{p['d']} {'causal' if p['causal'] else 'dense'} {p['b']}x{p['s']} heads {p['hq']}/{p['hkv']}"


def flops(p):
    return 4.0 * p["b"] * p["hq"] * p["s"] * p["s"] * p["d"] * (0.5 if p["causal"] else 1.0)


def calls(p):
    """Two functions without arguments, and how far their results are apart."""
    torch.manual_seed(0)
    draw = lambda heads: torch.randn(p["b"], p["s"], heads, p["d"], device="cuda", dtype=torch.bfloat16)
    q, k, v = draw(p["hq"]), draw(p["hkv"]), draw(p["hkv"])
    qt, kt, vt = (x.transpose(1, 2) for x in (q, k, v))
    out = torch.empty_like(q)

    def ours():
        return flash_mlir.attention(q, k, v, causal=p["causal"], out=out)

    def cudnn():
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            return F.scaled_dot_product_attention(qt, kt, vt, is_causal=p["causal"], enable_gqa=p["hq"] != p["hkv"])

    a, b = ours().float(), cudnn().transpose(1, 2).float()
    return ours, cudnn, float((a - b).norm() / b.norm())


def timed(call, flush):
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    flush.zero_()
    start.record()
    call()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end)


def compare(p, flush):
    ours, cudnn, apart = calls(p)
    for call in (ours, cudnn):
        spent = 0.0
        while spent < WARM_UP_MS:
            spent += timed(call, flush)
    a, b = [], []
    for _ in range(ROUNDS):
        a.append(timed(ours, flush))
        b.append(timed(cudnn, flush))
    ms = statistics.median(a), statistics.median(b)
    return dict(p, name=name_of(p), ours_ms=ms[0], cudnn_ms=ms[1], ratio=ms[1] / ms[0], ours_tflops=flops(p) / ms[0] / 1e9, cudnn_tflops=flops(p) / ms[1] / 1e9, apart=apart)


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--json", action="store_true", help="a JSON line a row")
    ap.add_argument("--only", default="", help="rows whose name holds this")
    ap.add_argument("--quick", action="store_true", help="fewer lengths")
    a = ap.parse_args()
    flush = torch.empty(FLUSH_BYTES, dtype=torch.uint8, device="cuda")
    if not a.json:
        print(f"{torch.cuda.get_device_name()}, cuDNN {torch.backends.cudnn.version()}\n\n{'problem':34} {'ours':>9} {'cuDNN':>9}  TFLOP/s   ratio")
    for p in problems(a.quick):
        if a.only not in name_of(p):
            continue
        row = compare(p, flush)
        if a.json:
            print(json.dumps(row), flush=True)
        else:
            wrong = "" if row["apart"] < 1.2e-2 else f"  WRONG: {row['apart']:.1e} apart"
            print(f"{row['name']:34} {row['ours_tflops']:9.1f} {row['cudnn_tflops']:9.1f} {'':9} {row['ratio']:6.3f}{wrong}", flush=True)


if __name__ == "__main__":
    main()
