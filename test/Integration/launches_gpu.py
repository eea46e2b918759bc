#!/usr/bin/env python3
"""Thousands of launches of random sizes under every scheduler: none may hang, and none may leave a tile out.

    python3 test/Integration/launches_gpu.py [--launches 5000] [--targets sm_90a,sm_80] [--only TEXT] [--jobs 1]
    python3 test/Integration/launches_gpu.py --only "splits|decode|used|packed" --jobs 4
    python3 test/Integration/launches_gpu.py --backward [--plan PLAN] ...      each followed by its gradients, deterministic or not

Needs torch and a GPU. Of a kernel whose blocks take several tiles only launches count that have more tiles than blocks; those that
have not run besides. Results start as NaN, so that a tile nobody computed stays NaN. Run it under `timeout`: a hang does not end.
Ends with `N passed, M failed`, and of gradients `K skipped` (what is not built).
"""
import argparse
import functools
import pathlib
import random
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))

import by_hand
import flash_mlir
import problems
import torch
from flash_mlir import _api

MOST = 700  # queries and keys of a sequence
MANY = 48  # sequences: more tiles than multiprocessors, so that blocks take a second one
HEADS = [(1, 1), (2, 2), (1, 4)]  # KV heads, query heads of each; few, for every ratio and number of parts has its own kernels
SPLITS = [2, 5, 9]
CACHES, CACHED = (107, 112), 2560  # so many that tiles fill the multiprocessors, and so long that the longest would starve there
DEVICE = dict(device="cuda", dtype=torch.int32)
CALLS = []  # of the present launch


class Operands:
    """Slices of tensors drawn once."""

    def __init__(self, d):
        self.d = d
        self.parts = [torch.randn(max(MANY * MOST * 4, CACHES[1] * CACHED) * d, device="cuda", dtype=torch.bfloat16) for _ in range(3)]
        self.out = torch.empty_like(self.parts[0])

    def cut(self, which, *shape):
        n = 1
        for size in shape:
            n *= size
        return (self.out[:n].fill_(float("nan")) if which == "o" else self.parts["qkv".index(which)][:n]).view(*shape)


def whole(rng, at, queries=MOST, **options):
    """Sequences of one length."""
    b, (h, group), sq, sk = rng.choice([1, 4] + 8 * [MANY]), rng.choice(HEADS), rng.randint(1, queries), rng.randint(1, MOST)
    return (at.cut("q", b, sq, h * group, at.d), at.cut("k", b, sk, h, at.d), at.cut("v", b, sk, h, at.d)), dict(options, out=at.cut("o", b, sq, h * group, at.d))


def packed(rng, at, **options):
    """Packed sequences, some of them empty."""
    ends = [0]
    for _ in range(rng.choice([rng.randint(1, 30)] + 4 * [5 * MANY])):
        ends.append(ends[-1] + rng.choice([0, rng.randint(0, 20), rng.randint(0, 4 * MOST // 31)]))
    total, h = max(ends[-1], 1), rng.randint(1, 4)
    shape, cu = (total, h, at.d), torch.tensor(ends, **DEVICE)
    longest = max(b - a for a, b in zip(ends, ends[1:]))
    out = at.cut("o", *shape)[: ends[-1]]
    operands = [at.cut(x, *shape)[: ends[-1]] for x in "qkv"]
    return operands, dict(options, cu_seqlens_q=cu, cu_seqlens_k=cu, max_seqlen_q=longest, max_seqlen_k=longest, out=out)


def used(rng, at):
    """One query of each of many caches that are filled to different lengths: each has its own number of splits, which a kernel before finds."""
    b, group, length = rng.randint(*CACHES), rng.choice([1, 4]), CACHED
    lengths = torch.tensor([rng.choice([0, rng.randint(0, length), length]) for _ in range(b)], **DEVICE)
    return (at.cut("q", b, 1, group, at.d), at.cut("k", b, length, 1, at.d), at.cut("v", b, length, 1, at.d)), dict(seqused_k=lengths, out=at.cut("o", b, 1, group, at.d))


# what a launch is of; the scheduler follows from it
KINDS = {
    "dense, static": lambda rng, at: whole(rng, at),
    "causal, dynamic": lambda rng, at: whole(rng, at, causal=True),
    "window, dynamic": lambda rng, at: whole(rng, at, window=rng.choice([(256, 0), (40, 40)])),
    "splits, single": lambda rng, at: whole(rng, at, num_splits=rng.choice(SPLITS)),
    "decode": lambda rng, at: whole(rng, at, queries=1),
    "used, scheduled": used,
    "packed, varlen": lambda rng, at: packed(rng, at),
    "packed causal, varlen": lambda rng, at: packed(rng, at, causal=True),
}


def has_rounds(call, operands, seqused_k=None, cu_seqlens_q=None, **_):
    """Whether a call on sm_90a surely has more tiles than blocks: parts of split keys may be more. The answer may lie on the GPU."""
    q, k, v = operands
    sms, plan = torch.cuda.get_device_properties(0).multi_processor_count, call.program.text("plan")
    if call.program.has_schedule:  # whose first row ends with the number of tiles
        return flash_mlir.prepare(q, k, v, seqused_k=seqused_k, validate=False, target="sm_90a").table[0, -1] > sms
    if 'order = "single"' in plan:
        return False
    rows, packs = int(re.search(r"tile = \[(\d+)", plan)[1]), "pack_gqa = true" in plan
    heads, group = (k.shape[-2], q.shape[-2] // k.shape[-2]) if packs else (q.shape[-2], 1)
    if cu_seqlens_q is None:
        return q.shape[0] * heads * -(-q.shape[1] * group // rows) > sms
    return (q.shape[0] * group // rows + len(cu_seqlens_q) - 1) * heads > sms


def run(launches, plan, case):
    """What is wrong, or None."""
    kind, d, target, gradients = case  # options of attention_backward, which then runs too, under the plan
    by_hand.force(plan, gradients is not None)
    if gradients is not None:
        problems.nan_where_unwritten()
    rng, at, bad = random.Random(1), Operands(d), torch.zeros((), device="cuda", dtype=torch.int64)
    many = target == "sm_90a" and kind.endswith(("static", "dynamic", "varlen", "scheduled"))  # else a block has a tile
    kept = _api._kept
    if many and not hasattr(kept, "__wrapped__"):
        _api._kept = functools.wraps(kept)(lambda *key: CALLS.append(kept(*key)) or CALLS[-1])
    ran = counted = 0
    while int(counted) < launches:
        if ran >= 10 * launches:
            return f"{int(counted)} of {ran} launches have more tiles than blocks, expected {launches}"
        for _ in range(launches - int(counted)):
            operands, options = KINDS[kind](rng, at)
            CALLS.clear()
            o, lse = flash_mlir.attention(*operands, target=target, validate=False, return_lse=True, **options)
            ran, counted = ran + 1, counted + (has_rounds(CALLS[0], operands, **options) if many else 1)
            bad += o.isnan().any()
            if gradients is not None:
                options.pop("out")
                for x in flash_mlir.attention_backward(operands[0], *operands, o, lse, target=target, validate=False, **gradients, **options):
                    bad += x.isnan().any()
    bad = int(bad)  # waits for all
    return f"{bad} results of {ran} launches hold NaN" if bad else None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--launches", type=int, default=5000)
    parser.add_argument("--targets", default="sm_90a,sm_80")
    parser.add_argument("--only", default="", help="kinds whose name holds this, or one of these with | between them")
    parser.add_argument("--jobs", type=int, default=1, help="processes that share the kinds")
    problems.add_backward(parser, "gradients too")
    by_hand.add_option(parser)
    a = parser.parse_args()
    kinds = [kind for kind in KINDS if any(text in kind for text in a.only.split("|")) and not (a.backward and kind.startswith(("splits", "used")))]
    cases = [(f"{kind} d{d} {target}", (kind, d, target, None)) for target in a.targets.split(",") for kind in kinds for d in (64, 128, 256)]
    if a.backward:
        cases = [(f"{name}{', deterministic' * more}", (*case, dict(deterministic=more))) for name, (*case, _) in cases for more in (False, True)]
    return problems.check_each(cases, functools.partial(run, a.launches, a.plan), a.jobs, skips=a.backward)


if __name__ == "__main__":
    sys.exit(main())
