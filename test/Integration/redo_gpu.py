#!/usr/bin/env python3
"""Keys that tower over all before them, in more tiles than the GPU holds blocks: rows are done again, and blocks take a second tile.

    python3 test/Integration/redo_gpu.py CASES_FOLDER [--targets sm_90a,sm_80] [--jumps 100,3000,60000] [--only TEXT] [--jobs 1]

From a random key on, scores are higher by the jump, so that what was measured against an older maximum overflows. o and lse are
held against float64 by the tolerances of run.py, lse with room for how scores are added up. Needs torch and a GPU; CASES_FOLDER holds run.py and reference.py. Ends with
`N passed, M failed`.
"""
import argparse
import functools
import itertools
import pathlib
import random
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))

import flash_mlir
import numpy as np
import problems
import torch

torch.set_float32_matmul_precision("highest")  # the yardstick's scores: no TF32

HEADS = [(64, 64), (96, 96), (128, 128), (192, 192), (192, 128), (256, 256), (64, 256), (64, 512)]
BATCH, HEADS_OF_EACH, LENGTH = 2, 12, 1900  # 360 tiles of 128 rows, two for each block where a multiprocessor holds one


def attention(q, k, v, scale, visible, naive=False):
    """o and lse in float64 of (batch, length, heads, columns), computed where `visible` is; or run.py's yardstick: scores in float32,
    P and o rounded to bf16."""
    q, k, v = (x.to(visible.device).double().transpose(1, 2) for x in (q, k, v))
    rounded = (lambda x: x.bfloat16().double()) if naive else (lambda x: x)
    scores = (q.float() @ k.float().mT * scale).double() if naive else q @ k.mT * scale
    scores = scores.masked_fill(~visible, float("-inf"))
    lse = scores.logsumexp(-1)
    p = (scores - scores.amax(-1, keepdim=True).nan_to_num(neginf=0.0)).exp()
    return rounded(rounded(p) @ v / p.sum(-1, keepdim=True)).nan_to_num(0.0).transpose(1, 2), lse


def lse_short(name, got, want, d):
    """run.py's, behind what tensor cores cut off: a score is a sum of d products, which they cut to the 24 bits of f32 once for each 16."""
    import run

    cut = d / 16 * 2.0**-23 * np.abs(want)
    with np.errstate(invalid="ignore"):  # -inf of both
        return run.lse_short(name, np.where(np.abs(got - want) <= cut, want, got), want, "bf16")


def check(folder, device, case):
    """What is wrong, or None."""
    sys.path.insert(0, folder)
    import reference
    import run

    (d, dv), mask, jump, target = case
    torch.manual_seed(1)
    draw = lambda columns: torch.randn(BATCH, LENGTH, HEADS_OF_EACH, columns, device="cuda", dtype=torch.bfloat16)
    q, k, v, scale = draw(d), draw(d), draw(dv), d**-0.5
    q[..., 0], k[..., 0] = 1, 0
    for b, h in itertools.product(range(BATCH), range(HEADS_OF_EACH)):
        k[b, random.Random(f"{case} {b} {h}").randrange(200, LENGTH) :, h, 0] = jump / scale
    options = problems.MASKS[mask]
    visible = reference.visible(LENGTH, LENGTH, **{"chunk" if name == "attention_chunk" else name: x for name, x in options.items()})
    o, lse = flash_mlir.attention(q, k, v, target=target, return_lse=True, **options)
    inputs = q, k, v, scale, torch.as_tensor(visible, device=device)
    results = (o, lse, *attention(*inputs), attention(*inputs, naive=True)[0])
    o, lse, o_want, lse_want, o_naive = (x.double().cpu().numpy() for x in results)
    for b in range(BATCH):
        wrong = run.short(f"o[{b}]", o[b], o_want[b], o_naive[b], "bf16", False) or lse_short(f"lse[{b}]", lse[b], lse_want[b], d)
        if wrong:
            return wrong
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--targets", default="sm_90a,sm_80")
    parser.add_argument("--jumps", default="100,3000,60000", help="of scores (default: %(default)s)")
    parser.add_argument("--only", default="", help="cases whose name holds this")
    parser.add_argument("--jobs", type=int, default=1, help="processes that share the cases")
    parser.add_argument("--reference", default="cuda", help="the device of what is expected: cpu leaves a sanitizer our kernels alone (default: %(default)s)")
    a = parser.parse_args()
    cases = [
        (f"{d}x{dv} {mask} jump {jump} {target}", ((d, dv), mask, float(jump), target))
        for target, (d, dv), mask, jump in itertools.product(a.targets.split(","), HEADS, problems.MASKS, a.jumps.split(","))
    ]
    return problems.check_each([(name, case) for name, case in cases if a.only in name], functools.partial(check, a.folder, a.reference), a.jobs)


if __name__ == "__main__":
    sys.exit(main())
