#!/usr/bin/env python3
"""The same bits every time: each problem runs again and again, beside other work, and must give the same o and lse.

    python3 test/Integration/repeat_gpu.py [--runs 20] [--only TEXT] [--jobs 16] [--plan PLAN]

Head sizes of every tile row, every mask, f16 and bf16, sizes that fill the machine unevenly: so that tiles from a counter reach
blocks in another order each time. Results start as NaN. Kernels are compiled first, by a pool of processes. Ends with `N passed, M failed`; exit code 1 if any failed.
"""
import argparse
import concurrent.futures
import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))

import by_hand
import problems

HEADS = [(64, 64), (96, 96), (128, 128), (192, 192), (192, 128), (256, 256), (64, 256), (64, 512)]
MASKS = {
    "dense": {},
    "causal": {"causal": True},
    "window": {"window": (256, 0)},
    "band": {"window": (100, 100)},
    "chunk": {"window": (256, 0), "attention_chunk": 512, "sink_tokens": 4},
}
SIZES = [(3, 1900, 1900), (2, 777, 2900), (16, 512, 512)]  # batch, queries, keys


def cases():
    for d, dv in HEADS:
        for mask in MASKS:
            for at, size in enumerate(SIZES):
                yield d, dv, mask, size, "f16" if at == 1 else "bf16"


def name_of(case):
    d, dv, mask, (b, sq, sk), element = case
    return f"{d}x{dv} {mask} {b}x{sq}x{sk} {element}"


def prepare(case):
    """Compiles the kernel of a case into the disk cache; the sentence if that fails."""
    import flash_mlir

    d, dv, mask, (b, sq, sk), element = case
    try:
        flash_mlir.compile((b, sq, 6, d), (b, sk, 3, d), (b, sk, 3, dv), element=element, target="sm_90a", **MASKS[mask])
    except (ValueError, NotImplementedError, RuntimeError) as e:
        return f"{type(e).__name__}: {e}"
    return None


def check(case, runs, torch, flash_mlir):
    """How many of the runs differ from the first, or a sentence."""
    d, dv, mask, (b, sq, sk), element = case
    torch.manual_seed(0)
    dtype = {"bf16": torch.bfloat16, "f16": torch.float16}[element]
    q, k, v = (torch.randn(b, s, h, w, device="cuda", dtype=dtype) for s, h, w in ((sq, 6, d), (sk, 3, d), (sk, 3, dv)))
    noise = torch.empty(32 << 20, device="cuda", dtype=torch.uint8)
    first, different = None, 0
    for run in range(runs):
        out = torch.full((b, sq, 6, dv), float("nan"), device="cuda", dtype=dtype)
        if run % 2:
            noise.fill_(run)  # another state of the caches, and blocks that start at other times
        o, lse = flash_mlir.attention(q, k, v, out=out, return_lse=True, **MASKS[mask])
        bits = o.view(torch.int16), lse.view(torch.int32)
        if first is None:
            first = [x.clone() for x in bits]
            if torch.isnan(o).any() or torch.isnan(lse).any():
                return "NaN in the result"
        different += not all(torch.equal(x, y) for x, y in zip(first, bits))
    return f"{different} of {runs} runs differ from the first" if different else None


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--runs", type=int, default=20)
    ap.add_argument("--only", default="", help="problems whose name holds this")
    ap.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes that compile")
    by_hand.add_option(ap)
    a = ap.parse_args()
    by_hand.force(a.plan)
    wanted = [case for case in cases() if a.only in name_of(case)]
    with concurrent.futures.ProcessPoolExecutor(a.jobs) as pool:
        wanted = by_hand.fitting(a.plan, wanted, list(pool.map(prepare, wanted)))
    import torch

    import flash_mlir

    return problems.check_each([(name_of(case), case) for case in wanted], lambda case: check(case, a.runs, torch, flash_mlir))


if __name__ == "__main__":
    sys.exit(main())
