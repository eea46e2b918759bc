#!/usr/bin/env python3
"""Random serving problems through flash_mlir against float64, by the tolerances of the cases' own runner.

    python3 test/Integration/random_serving.py CASES_FOLDER [--target cpu] [--count 300] [--seed 1] [--backward [--plan PLAN]]

Packed, used, paged and appended sequences, some with one that outgrows the others, chosen cache rows, padding, rotary embedding, splits and packed heads in every mix
the API allows; empty sequences anywhere, NaN in whatever does not count. CASES_FOLDER holds run.py and reference.py. Prints each
problem that fails as a line that run.py takes, and ends with `N passed, M failed, K skipped`; exit code 1 if any failed.
"""
import argparse
import pathlib
import random
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))

import by_hand
import flash_mlir
import problems
from flash_mlir import _api

LONG = 3000  # keys
HEAD_SIZES = [(64, 64), (128, 128), (128, 128), (96, 96), (80, 40), (192, 128), (256, 256), (64, 256)]


def length(rng, most):
    return rng.choice([0, 1, rng.randint(1, 8), rng.randint(1, most), rng.randint(1, most), rng.choice([1, 16, 63, 64, 65, 128])]) if most > 128 else rng.randint(0, most)


def ends(lengths):
    cu = [0]
    for n in lengths:
        cu.append(cu[-1] + n)
    return cu


def used(rng, lengths):
    return [rng.choice([n, rng.randint(0, n)]) for n in lengths]


def mask(rng):
    side = lambda: rng.choice([0, rng.randint(0, 64), rng.randint(0, 300)])
    kind = rng.choice(["dense", "dense", "causal", "causal", "window", "left", "sink_tokens", "chunk"])
    return {
        "dense": lambda: {},
        "causal": lambda: {"causal": True},
        "window": lambda: {"window": [side(), side()]},
        "left": lambda: {"causal": True, "window": [side(), -1]},
        "sink_tokens": lambda: {"sink_tokens": rng.randint(1, 100), "window": [side(), 0]},
        "chunk": lambda: {"chunk": rng.randint(1, 200), "window": [-1, 0]},
    }[kind]()


def case(seed):
    rng = random.Random(seed)
    d, dv = rng.choice(HEAD_SIZES)
    kv, group = rng.randint(1, 2), rng.choice([1, 2, 3, 4, 8])
    c = dict(id=f"serving-{seed}", seed=seed, hq=kv * group, hkv=kv, d=d, dv=dv, dtype=rng.choice(["bf16", "f16"]), **mask(rng))
    b = rng.choice([1, 2, 3, 5, rng.randint(1, 24)])
    uneven = random.Random(-seed).random() < 0.2
    cached = rng.random() < 0.4  # an append or a choice of rows: k and v are a cache
    paged = rng.random() < 0.4
    most_q = rng.choice([1, 4, 4 if uneven else 200])
    packed_q = rng.random() < 0.6
    if packed_q:
        lengths_q = [length(rng, most_q) for _ in range(b)]
        c["cu_q"] = ends(lengths_q)
    else:
        c.update(b=b, sq=max(1, length(rng, most_q)))
        lengths_q = [c["sq"]] * b
    if rng.random() < 0.25:
        c["seqused_q"] = used(rng, lengths_q)
    new = rng.choice([1, rng.randint(1, 40)]) if cached and rng.random() < 0.6 else 0
    if packed_q and not paged and not cached:
        lengths_k = [length(rng, 500) for _ in range(b)]
        if uneven:
            lengths_k[seed % b] = LONG
        c["cu_k"] = ends(lengths_k)
    else:
        sk = (LONG if uneven else max(1, length(rng, 500))) + new
        c["sk"] = sk
        c["b"] = b
        lengths_k = [sk - new] * b
    if paged or new or rng.random() < 0.4:
        c["seqused_k"] = used(rng, lengths_k)
        if uneven:
            c["seqused_k"] = [n if i == seed % b else n % 500 for i, n in enumerate(c["seqused_k"])]
    if paged:
        c["page_size"] = rng.choice([1, 2, 7, 16, 32, 64, 128, rng.randint(1, 200)])
    c["poison"] = True
    if new:
        c["append"] = new
        if rng.random() < 0.6:
            c.update(rotary=rng.choice(["half", "interleaved"]), rotary_dim=rng.choice([16, 32, d]))
    elif rng.random() < 0.2:
        c["sink"] = True
    if cached and rng.random() < 0.4:
        if "seqused_k" in c:  # the runner's NaNs lie past each sequence's own length, so that lengths must be alike
            c["seqused_k"] = [c["seqused_k"][0]] * b
        c["kv_batch_idx"] = rng.sample(range(b), b) if new else [rng.randrange(b) for _ in range(b)]
    if cached and ("kv_batch_idx" not in c) and (rng.random() < 0.4 or not new):
        c["leftpad_k"] = [rng.randint(0, n) for n in c.get("seqused_k", lengths_k)]
    if rng.random() < 0.2:
        c.update(softcap=rng.choice([5.0, 30.0]))
    c["num_splits"] = rng.choice([0, 0, 0, 1, 2, 3, 7])
    if rng.random() < 0.3:
        c["pack_gqa"] = rng.random() < 0.5
    if rng.random() < 0.2 and not new:
        c["strides"] = rng.choice(["heads_first", "padded"])
    return c


class Bounded:
    """The API with bounds of lengths, where a problem may give them, and with metadata prepared before."""

    def __init__(self, c):
        rng, self.most = random.Random(c["seed"]), {}
        _api.workers = lambda: [2, 12, 40][c["seed"] % 3]  # what a plan for the cpu is made for
        self.prepares = c["seed"] % 2
        spans = lambda cu: [b - a for a, b in zip(cu, cu[1:])]
        if "cu_q" in c and rng.random() < 0.7:
            self.most["max_seqlen_q"] = max(spans(c["cu_q"]), default=0) + rng.choice([0, 3])
        if "cu_k" in c and rng.random() < 0.7:
            self.most["max_seqlen_k"] = max(spans(c["cu_k"]), default=0) + rng.choice([0, 100])
        if "page_size" in c and rng.random() < 0.7:
            self.most["max_seqlen_k"] = max(c["seqused_k"], default=0) + rng.choice([0, 100])

    def metadata(self, arrays, call):
        options = {name: x for name, x in call.items() if name not in ("out", "return_lse")}
        return flash_mlir.prepare(*arrays, validate=True, **self.most, **options) if self.prepares else None

    def attention_backward(self, *arrays, **call):
        return flash_mlir.attention_backward(*arrays, validate=True, **self.most, **call)

    def attention(self, *arrays, **call):
        metadata = self.metadata(arrays, call)
        return flash_mlir.attention(*arrays, validate=True, scheduler_metadata=metadata, **self.most, **call)

    def attention_with_kvcache(self, *arrays, **call):
        metadata = self.metadata(arrays, call)
        return flash_mlir.attention_with_kvcache(*arrays, validate=True, scheduler_metadata=metadata, **self.most, **call)


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    problems.add_options(ap, "cpu", 300)
    by_hand.add_option(ap)
    a = ap.parse_args()
    by_hand.force(a.plan, a.backward)
    sys.path.insert(0, a.folder)
    cases = [case(a.seed + i) for i in range(a.count)]
    if a.backward:
        cases = [problems.with_gradients(c) for c in cases]
    passed, failed, skipped = problems.check_all(cases, a.target, Bounded, every=50, skips=True)
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
