#!/usr/bin/env python3
"""Tiles from a counter on a GPU: the same bits from every run, in streams that run at once and from captured graphs.

    python3 test/Integration/streams_gpu.py [--rounds 20]

Needs torch and an sm_90a GPU. Each kernel runs alone first; then in eight streams, on tensors of its own in each, while a
graph of it is replayed. Two launches that shared a counter would leave tiles out, which stay NaN. Ends with `N passed, M failed`.
"""
import argparse
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))

import flash_mlir
import problems
import torch

# (batch, queries, keys, heads, head size, mask): many tiles, a few more than multiprocessors, fewer, ragged
CASES = [
    (4, 2048, 2048, 16, 64, dict(causal=True)),
    (4, 2048, 2048, 16, 128, dict(causal=True)),
    (1, 1111, 2222, 15, 128, dict(causal=True)),
    (1, 300, 300, 4, 128, dict(causal=True)),
    (2, 4000, 4000, 8, 64, dict(window=(256, 0))),
    (2, 4000, 3000, 4, 256, dict(window=(100, 100))),
    (2, 2048, 2048, 8, 128, {}),
]


def run(case, rounds):
    """What is wrong, or None."""
    b, sq, sk, h, d, mask = case
    generator = torch.Generator("cuda").manual_seed(1)
    draw = lambda n: torch.randn(b, n, h, d, device="cuda", dtype=torch.bfloat16, generator=generator)
    q, k, v = draw(sq), draw(sk), draw(sk)
    fresh = lambda: torch.full_like(q, float("nan"))
    into = lambda o: flash_mlir.attention(q, k, v, out=o, **mask)
    want = fresh()
    into(want)
    torch.cuda.synchronize()
    if want.isnan().any():
        return "alone: some rows are not written"
    streams = [torch.cuda.Stream() for _ in range(8)]
    captured, side, graph = fresh(), torch.cuda.Stream(), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side):
        into(captured)
    for i in range(rounds):
        outs = [fresh() for _ in streams]
        captured.fill_(float("nan"))
        torch.cuda.synchronize()
        graph.replay()
        for stream, o in zip(streams, outs):
            with torch.cuda.stream(stream):
                into(o)
        torch.cuda.synchronize()
        for name, o in [("graph", captured)] + [(f"stream {n}", o) for n, o in enumerate(outs)]:
            if not torch.equal(o, want):
                return f"round {i}, {name}: {int((o != want).any(-1).sum())} rows differ"
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    rounds = parser.parse_args().rounds
    return problems.check_each([(str(case), case) for case in CASES], lambda case: run(case, rounds))


if __name__ == "__main__":
    sys.exit(main())
