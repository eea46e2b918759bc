#!/usr/bin/env python3
"""Random problems through flash_mlir against float64, by the tolerances of the cases' own runner.

    python3 test/Integration/random_gpu.py CASES_FOLDER [--target sm_90a] [--count 200] [--seed 1] [--backward] [--jobs 16] [--plan PLAN]

Sizes 1 to 2000, every mask, every head size, f16 and bf16, grouped heads, strides, softcap and sink. CASES_FOLDER holds run.py
and reference.py. Kernels are compiled first, by a pool of processes, into the disk cache. Prints each problem that fails as a
line that run.py takes, and ends with `N passed, M failed`, with --backward also `K skipped` (what is not built); exit code 1 if any
failed. The plan of --plan is then that of gradients.
"""
import argparse
import concurrent.futures
import functools
import os
import pathlib
import random
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))

import by_hand
import flash_mlir
import problems

OWN_ROWS = [(192, 128), (64, 256), (64, 512)]  # head sizes with tile rows of their own


def heads(rng):
    if rng.random() < 0.2:
        return rng.choice(OWN_ROWS)
    d = 8 * rng.randint(1, 32)
    return d, d if rng.random() < 0.7 else 8 * rng.randint(1, 32)


def mask(rng, sq, sk):
    """The fields of a mask; windows of the size of the lengths, so that tiles are cut and skipped."""
    kind = rng.choice(["dense", "causal", "window", "left", "right", "causal_left", "chunk", "sink_tokens"])
    side = lambda: rng.choice([0, rng.randint(0, 64), rng.randint(0, max(sq, sk))])
    return {
        "dense": lambda: {},
        "causal": lambda: {"causal": True},
        "window": lambda: {"window": [side(), side()]},
        "left": lambda: {"window": [side(), -1]},
        "right": lambda: {"window": [-1, side()]},
        "causal_left": lambda: {"causal": True, "window": [side(), -1]},
        "chunk": lambda: {"chunk": rng.randint(1, max(sq, sk)), "window": [rng.choice([-1, side()]), rng.choice([-1, 0])]},
        "sink_tokens": lambda: {"sink_tokens": rng.randint(1, 300), "window": [side(), 0]},
    }[kind]()


def length(rng):
    return rng.choice([rng.randint(1, 2000), rng.randint(1, 300), rng.choice([1, 63, 64, 65, 127, 128, 129, 176, 177, 192, 384])])


def case(seed):
    rng = random.Random(seed)
    d, dv = heads(rng)
    sq, sk = length(rng), length(rng)
    kv, group = rng.randint(1, 2), rng.choice([1, 1, 2, 3, 4])
    c = dict(id=f"random-{seed}", seed=seed, b=rng.randint(1, 2), hq=kv * group, hkv=kv, d=d, dv=dv, sq=sq, sk=sk, dtype=rng.choice(["bf16", "f16"]), **mask(rng, sq, sk))
    if rng.random() < 0.25:
        c.update(softcap=rng.choice([5.0, 20.0, 50.0]), magnitude=rng.choice([1.0, 2.0]))
    if rng.random() < 0.25:
        c["sink"] = True
    if rng.random() < 0.2:
        c["scale"] = rng.choice([0.01, 0.05, 0.2])
    if rng.random() < 0.4:
        c["strides"] = rng.choice(["heads_first", "padded"])
    return c


def prepare(c, target):
    """Compiles the kernels of a case into the disk cache; the sentence if that fails."""
    q, k, v = ((c["b"], n, h, w) for n, h, w in ((c["sq"], c["hq"], c["d"]), (c["sk"], c["hkv"], c["d"]), (c["sk"], c["hkv"], c["dv"])))
    try:
        compiled = functools.partial(flash_mlir.compile, q, k, v, element=c["dtype"], causal=c.get("causal", False), window=tuple(c.get("window", (-1, -1))), attention_chunk=c.get("chunk", 0),
                           sink_tokens=c.get("sink_tokens", 0), softcap=c.get("softcap", 0.0), sink=c.get("sink", False), target=target)
        compiled()
        if c.get("bwd"):
            compiled(backward=True, deterministic=c["deterministic"])
    except Exception as e:
        return f"{type(e).__name__}: {e}"
    return None


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    problems.add_options(ap, "sm_90a", 200)
    ap.add_argument("--jobs", type=int, default=os.cpu_count())
    by_hand.add_option(ap)
    a = ap.parse_args()
    by_hand.force(a.plan, a.backward)
    sys.path.insert(0, a.folder)

    cases = [case(a.seed + i) for i in range(a.count)]
    if a.backward:
        cases = [problems.with_gradients(c) for c in cases]
    start = time.time()
    if a.target != "cpu":
        with concurrent.futures.ProcessPoolExecutor(a.jobs) as pool:
            sentences = list(pool.map(prepare, cases, [a.target] * len(cases)))
        print(f"compiled {sentences.count(None)} of {len(cases)} problems in {time.time() - start:.0f} s with {a.jobs} processes", flush=True)
        cases = by_hand.fitting(a.plan, cases, sentences)
    passed, failed, skipped = problems.check_all(cases, a.target, lambda case: flash_mlir, every=20, skips=a.backward)
    print(f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if a.backward else ""))
    return failed > 0 or not passed


if __name__ == "__main__":
    sys.exit(main())
