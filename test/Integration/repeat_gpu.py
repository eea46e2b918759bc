#!/usr/bin/env python3
"""The same bits every time: each problem runs again and again, beside other work, and must give the same o and lse.

    python3 test/Integration/repeat_gpu.py [--runs 20] [--only TEXT] [--jobs 16] [--plan PLAN]
    python3 test/Integration/repeat_gpu.py --backward [--target sm_90a] [--runs 100] [--plan PLAN]      deterministic gradients

Head sizes of every tile row, every mask, f16 and bf16, sizes that fill the machine unevenly: so that tiles from a counter reach
blocks in another order each time; of gradients packed sequences too. Results start as NaN. Kernels are compiled first, by a pool of
processes. Ends with `N passed, M failed, K skipped` (what is not built); exit code 1 if any failed.
"""
import argparse
import concurrent.futures
import itertools
import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))

import by_hand
import problems

HEADS = [(64, 64), (96, 96), (128, 128), (192, 192), (192, 128), (256, 256), (64, 256), (64, 512)]
HEADS_BACKWARD = [(64, 64), (96, 96), (128, 128), (192, 192), (192, 128), (256, 256)]
# queries and keys of each sequence, KV heads for 6 query heads of a forward and of gradients, element
SIZES = {
    "3x1900x1900": ([(1900, 1900)] * 3, 3, 3, "bf16"),
    "2x777x2900": ([(777, 2900)] * 2, 3, 6, "f16"),
    "16x512x512": ([(512, 512)] * 16, 3, 1, "bf16"),
    "packed": ([(700, 900), (0, 30), (1, 1), (1500, 1300), (64, 64), (300, 0)], None, 2, "bf16"),
}


def cases(backward):
    yield from itertools.product(HEADS_BACKWARD if backward else HEADS, problems.MASKS, [s for s in SIZES if backward or s != "packed"])


def name_of(case):
    (d, dv), mask, size = case
    return f"{d}x{dv} {mask} {size} {SIZES[size][-1]}"


def shapes(case, backward):
    """Of q, k and v; packed or not."""
    ((d, dv), _, size), (lengths, *kv_heads, _) = case, SIZES[case[2]]
    sq, sk = map(sum, zip(*lengths)) if size == "packed" else lengths[0]
    batch = () if size == "packed" else (len(lengths),)
    return (*batch, sq, 6, d), (*batch, sk, kv_heads[backward], d), (*batch, sk, kv_heads[backward], dv)


def prepare(case, backward, target):
    """Compiles the kernel of a case into the disk cache; the sentence if that fails."""
    import flash_mlir

    if case[2] == "packed":  # compiled when it is called
        return None
    try:
        flash_mlir.compile(*shapes(case, backward), element=SIZES[case[2]][-1], target=target, backward=backward, deterministic=backward, **problems.MASKS[case[1]])
    except (ValueError, NotImplementedError, RuntimeError) as e:
        return f"{type(e).__name__}: {e}"
    return None


def check(case, runs, backward, target):
    """How many of the runs differ from the first, or a sentence."""
    import torch

    import flash_mlir

    torch.manual_seed(0)
    (_, mask, size), (lengths, *_, element) = case, SIZES[case[2]]
    q, k, v = (torch.randn(*shape, device="cuda", dtype={"bf16": torch.bfloat16, "f16": torch.float16}[element]) for shape in shapes(case, backward))
    options = dict(problems.MASKS[mask], target=target)
    if size == "packed":
        ends = [torch.tensor([0, *itertools.accumulate(x)], device="cuda", dtype=torch.int32) for x in zip(*lengths)]
        options.update(cu_seqlens_q=ends[0], cu_seqlens_k=ends[1])
    noise = torch.empty(32 << 20, device="cuda", dtype=torch.uint8)
    run = lambda: flash_mlir.attention(q, k, v, return_lse=True, **options)
    if backward:
        o, lse = run()
        do = torch.randn_like(o)
        run = lambda: flash_mlir.attention_backward(do, q, k, v, o, lse, deterministic=True, **options)
    first, different = run(), 0
    if any(x.isnan().any() for x in first):
        return "NaN in the result"
    for at in range(1, runs):
        if at % 2:
            noise.fill_(at)  # another state of the caches, and blocks that start at other times
        different += problems.differ(first, run())
    return f"{different} of {runs} runs differ from the first" if different else None


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--runs", type=int, help="of each problem (default: 20, of gradients 100)")
    ap.add_argument("--only", default="", help="problems whose name holds this")
    ap.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes that compile")
    ap.add_argument("--target", default="sm_90a")
    problems.add_backward(ap, "deterministic gradients in place of attention")
    by_hand.add_option(ap)
    a = ap.parse_args()
    by_hand.force(a.plan, a.backward)
    wanted = [case for case in cases(a.backward) if a.only in name_of(case)]
    with concurrent.futures.ProcessPoolExecutor(a.jobs) as pool:
        wanted = by_hand.fitting(a.plan, wanted, list(pool.map(prepare, wanted, [a.backward] * len(wanted), [a.target] * len(wanted))))
    import torch  # noqa: F401 behind the processes

    problems.nan_where_unwritten()
    runs = a.runs or (100 if a.backward else 20)
    return problems.check_each([(name_of(case), case) for case in wanted], lambda case: check(case, runs, a.backward, a.target), skips=True)


if __name__ == "__main__":
    sys.exit(main())
