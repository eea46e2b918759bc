#!/usr/bin/env python3
"""Captured calls on a GPU: each scheduler once into a CUDA graph, replayed over other lengths and other data.

    python3 test/Integration/graph_gpu.py [--replays 10000] [--only TEXT] [--target sm_90a] [--jobs 1]
    python3 test/Integration/graph_gpu.py --backward [--plan PLAN] ...      forward and gradients, captured together

Needs torch and a GPU. Between replays the tables (and, every so often, the data) are overwritten where they lie; nothing else
changes, so that whatever a launch leaves behind, its counter above all, meets the next. Every replay starts from NaN and must give
the bits of a call that was not captured (dq of gradients that are not deterministic: its values), and at the end every counter that
blocks take tiles from must be 0. Nobody waits for a replay: a round's lengths are drawn and their results kept before it, results are
compared on the GPU, and counted. Ends with `N passed, M failed`, and of gradients `K skipped` (what is not built).
"""
import argparse
import functools
import pathlib
import random
import sys
import types

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))

import by_hand
import flash_mlir
import problems
import torch
from flash_mlir import _api, _timing

BF16, D = torch.bfloat16, 128
ROUND, SETS = 1000, 20  # replays between new data, of so many sets of lengths


def draw(*shape):
    return torch.randn(*shape, device="cuda", dtype=BF16)


def table(*shape):
    return torch.zeros(shape, device="cuda", dtype=torch.int32)


def put(into, values):
    into.copy_(torch.tensor(values, dtype=torch.int32), non_blocking=False)


def ends(rng, n, most, total):
    """Ends of n sequences of 0 to `most` rows, `total` at most in all."""
    cu = [0]
    for _ in range(n):
        cu.append(min(cu[-1] + rng.choice([0, 1, rng.randint(0, most), rng.randint(0, most)]), total))
    return cu


class Equal:
    """Sequences as long as their tensors, or with keys in use, under a plan that names the order."""

    def __init__(self, order, target, batch, queries, keys, heads, used=False, **mask):
        self.order = order
        self.q, self.k, self.v = draw(batch, queries, heads, D), draw(batch, keys, heads, D), draw(batch, keys, heads, D)
        self.outs = [torch.empty_like(self.q), torch.empty(batch, heads, queries, device="cuda")]
        self.tables = dict(seqused_k=table(batch)) if used else {}
        self.call = _api.planned(self.q, self.k, self.v, self.outs[0], plan=f'#flash.plan<order = "{order}">', target=target, **mask, **self.tables)
        self.data, self.kept = [self.q, self.k, self.v], ()

    def next(self, rng):
        for x in self.tables.values():
            put(x, [rng.choice([0, 1, rng.randint(0, 64), rng.randint(0, self.k.shape[1])]) for _ in range(len(x))])

    def run(self):
        self.call.run(self.q, self.k, self.v, *self.outs, *self.tables.values())


class Tables:
    """Calls of the API whose lengths stand in tables."""

    def __init__(self, order, function, q, k, v, tables, fill, kept=(), prepared=False, **options):
        self.order, self.function, self.fill, self.tables = order, function, fill, tables
        self.arrays, self.options, self.kept = (q, k, v), options, kept
        self.outs, self.prepared = [torch.empty_like(q)], prepared
        self.data = [q, *({id(k): k, id(v): v}.values())]

    def next(self, rng):
        for name, values in self.fill(rng).items():
            put(self.tables[name], values)

    def run(self):
        metadata = flash_mlir.prepare(*self.arrays, validate=False, **self.tables, **self.options) if self.prepared else None
        self.function(*self.arrays, out=self.outs[0], validate=False, scheduler_metadata=metadata, **self.tables, **self.options)


class Gradients:
    """A forward and its gradients, of q and k of a length or of packed ones."""

    def __init__(self, order, target, d, batch, queries, keys, heads, kv_heads, deterministic=True, packed=False, **mask):
        self.order, self.kept, self.tables, self.sizes = order, (), {}, (batch, queries, keys)
        shape = lambda n, h: (batch * n, h, d) if packed else (batch, n, h, d)
        self.data = [draw(*shape(n, h)) for n, h in ((queries, heads), (keys, kv_heads), (keys, kv_heads), (queries, heads))]
        if packed:
            self.tables = dict(cu_seqlens_q=table(batch + 1), cu_seqlens_k=table(batch + 1))
            mask.update(self.tables, max_seqlen_q=queries, max_seqlen_k=keys, validate=False)
        self.options, self.deterministic, self.loose = dict(mask, target=target), deterministic, () if deterministic else (0,)

    def next(self, rng):
        batch, *lengths = self.sizes
        for name, most in zip(self.tables, lengths):
            put(self.tables[name], ends(rng, batch, most, batch * most))

    def run(self):
        *arrays, do = self.data
        self.outs = flash_mlir.attention_backward(do, *arrays, *flash_mlir.attention(*arrays, return_lse=True, **self.options), deterministic=self.deterministic, **self.options)


def packed(order, target, n, most_q, most_k, heads=8, kv_heads=2, **options):
    total_q, total_k = n * most_q, n * most_k
    tables = dict(cu_seqlens_q=table(n + 1), cu_seqlens_k=table(n + 1))

    def fill(rng):
        return dict(cu_seqlens_q=ends(rng, n, most_q, total_q), cu_seqlens_k=ends(rng, n, most_k, total_k))

    return Tables(order, flash_mlir.attention, draw(total_q, heads, D), draw(total_k, kv_heads, D), draw(total_k, kv_heads, D), tables, fill,
                  max_seqlen_q=most_q, max_seqlen_k=most_k, target=target, **options)


def used(order, target, batch, queries, most_k, heads=8, kv_heads=2, page=0, append=0, packed_q=False, **options):
    """Caches in use up to a length of their own, contiguous or in pages; `append` rows are written behind it."""
    pages = -(-most_k // page) if page else 0
    k, v = (draw(batch * pages, page, kv_heads, D) if page else draw(batch, most_k, kv_heads, D) for _ in range(2))
    q = draw(batch * queries, heads, D) if packed_q else draw(batch, queries, heads, D)
    tables = dict(seqused_k=table(batch))
    if page:
        tables["page_table"] = table(batch, pages)
    if packed_q:
        tables["cu_seqlens_q"] = table(batch + 1)
        options["max_seqlen_q"] = queries
    if append:
        options.update(k_new=draw(batch, append, kv_heads, D), v_new=draw(batch, append, kv_heads, D))
    if page:
        options["max_seqlen_k"] = most_k - append

    started = []

    def fill(rng):
        new = dict(seqused_k=[rng.choice([0, 1, rng.randint(0, 64), rng.randint(0, most_k - append)]) for _ in range(batch)])
        if page and (rng.random() < 0.05 or not started):
            started.append(True)
            order_of = rng.sample(range(batch * pages), batch * pages)
            new["page_table"] = [order_of[i * pages : (i + 1) * pages] for i in range(batch)]
        if packed_q:
            new["cu_seqlens_q"] = ends(rng, batch, queries, batch * queries)
        return new

    return Tables(order, flash_mlir.attention_with_kvcache, q, k, v, tables, fill, kept=(k, v) if append else (), target=target, **options)


CASES = {
    "static": lambda t: Equal("static", t, 2, 1024, 1024, 16),
    "static, lengths in use": lambda t: Equal("static", t, 6, 700, 1500, 16, used=True),
    "dynamic": lambda t: Equal("dynamic", t, 2, 1111, 1500, 16, causal=True),
    "single": lambda t: Equal("single", t, 2, 1000, 700, 8, causal=True),
    "packed": lambda t: packed("varlen_dynamic", t, 12, 300, 500, causal=True, num_splits=1),
    "packed, fewer tiles than blocks": lambda t: packed("varlen_dynamic", t, 3, 8, 500, num_splits=1),
    "packed and split": lambda t: packed("varlen_dynamic", t, 12, 4, 3000, num_splits=3),
    "lengths in use": lambda t: used("dynamic", t, 12, 300, 900, causal=True, num_splits=1),
    "split": lambda t: used("single", t, 8, 1, 4000, num_splits=4),
    "split by the planner": lambda t: used("", t, 4, 1, 8000),
    "split by their own lengths": lambda t: used("varlen_dynamic", t, 24, 1, 16000),
    "split by their own lengths, packed": lambda t: used("varlen_dynamic", t, 24, 2, 16000, packed_q=True),
    "split by their own lengths, packed keys": lambda t: packed("varlen_dynamic", t, 24, 3, 16000),
    "split by their own lengths, pages of 16": lambda t: used("varlen_dynamic", t, 24, 1, 16000, page=16),
    "split by their own lengths, prepared before": lambda t: used("varlen_dynamic", t, 24, 1, 16000, prepared=True),
    "pages of 256, appended": lambda t: used("", t, 8, 2, 4000, page=256, append=2, causal=True),
    "pages of 1": lambda t: used("", t, 4, 1, 700, page=1),
    "appended": lambda t: used("", t, 8, 3, 600, append=3, causal=True, num_splits=1),
}

BACKWARD = {
    "": lambda t: Gradients("backward_lpt", t, 128, 2, 1000, 1300, 8, 2),
    "causal": lambda t: Gradients("backward_spt", t, 128, 2, 1111, 1500, 8, 8, causal=True),
    "causal, window": lambda t: Gradients("backward_lpt", t, 64, 2, 1111, 1500, 8, 2, causal=True, window=(100, -1)),
    "packed": lambda t: Gradients("varlen_dynamic", t, 64, 12, 300, 500, 8, 2, packed=True, causal=True),
    "packed, head size 128": lambda t: Gradients("varlen_dynamic", t, 128, 12, 300, 500, 8, 8, packed=True),
    "sums in any order": lambda t: Gradients("single", t, 128, 2, 1000, 1300, 8, 2, deterministic=False),
    "causal, sums in any order": lambda t: Gradients("backward_lpt", t, 64, 2, 1111, 1500, 8, 2, deterministic=False, causal=True),
    "packed, sums in any order": lambda t: Gradients("varlen_dynamic", t, 128, 12, 300, 500, 8, 2, deterministic=False, packed=True, causal=True),
    "head size 256": lambda t: Gradients("backward_spt", t, 256, 2, 600, 700, 4, 2, causal=True),
}
BACKWARD = {f"gradients{', ' * bool(name)}{name}": case for name, case in BACKWARD.items()}


def differs(x, y, loose):
    """Whether two results differ in a bit, or by more than the order of their sums, as a number on the GPU."""
    if not loose:
        bits = torch.int16 if x.element_size() == 2 else torch.int32
        return (x.view(bits) != y.view(bits)).any()
    holes, (x, y) = (x.isnan() != y.isnan()).any(), (z.float().nan_to_num() for z in (x, y))
    return holes | ((x - y).norm() > 1e-3 * y.norm())


def left_behind(calls):
    """What the counters of calls hold, or None where that is right: all 0."""
    for call in calls:
        address, count = call.program.counters(call.device)
        if not count and "flash_counters" in call.program.text("ptx"):
            return "the counters of a kernel that ran are not found"
        view = types.SimpleNamespace(__cuda_array_interface__=dict(shape=(count,), typestr="<i4", data=(address, False), version=2))
        if count and (held := torch.as_tensor(view, device="cuda").cpu()).any():
            return f"counters are left at {held[held != 0].tolist()}"
    return None


def check(target, replays, seed, plan, name):
    """What is wrong, or None."""
    rng = random.Random(seed)
    torch.manual_seed(seed)
    by_hand.force(plan, name in BACKWARD)
    if name in BACKWARD:
        problems.nan_where_unwritten()
    case = (CASES | BACKWARD)[name](target)
    case.next(rng)
    before = set(_api._calls)
    case.run()  # compiles, and knows its workspace before the capture
    torch.cuda.synchronize()
    calls = [_api._calls[key] for key in _api._calls if key not in before] or [case.call]
    plan = calls[-1].program.text("plan")
    if f'order = "{case.order}' not in plan:
        return f"expected a plan of order {case.order}, got {plan}"
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=torch.cuda.Stream()):
        case.run()
    captured, loose = case.outs, getattr(case, "loose", ())
    results = [*captured, *case.kept]
    wrong, holes = torch.zeros(len(results), device="cuda", dtype=torch.int64), torch.zeros((), device="cuda", dtype=torch.int64)
    for first in range(0, replays, ROUND):
        for x in case.data if first else ():
            x.normal_()
        caches, sets = [x.clone() for x in case.kept], []

        def restart(outs):
            for x, was in zip(case.kept, caches):
                x.copy_(was)
            for o in outs:
                o.fill_(float("nan"))

        for _ in range(SETS if case.tables else 1):
            case.next(rng)
            restart(case.outs)
            case.run()
            sets.append(([x.clone() for x in case.tables.values()], [x.clone() for x in (*case.outs, *case.kept)]))
            if "cu_seqlens_q" not in case.tables:
                holes += sum(o.isnan().any() for o in case.outs)
        for _ in range(min(ROUND, replays - first)):
            lengths, want = rng.choice(sets)
            for x, values in zip(case.tables.values(), lengths):
                x.copy_(values)
            restart(captured)
            graph.replay()
            for at, (x, y) in enumerate(zip(results, want)):
                wrong[at] += differs(x, y, at in loose)
    for at, count in enumerate(wrong.tolist()):
        if count:
            return f"result {at} of {count} of {replays} replays differs from a call that was not captured"
    if holes:
        return "some rows are not written"
    return left_behind(calls)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replays", type=int, default=10000)
    parser.add_argument("--only", default="", help="cases whose name holds this")
    parser.add_argument("--target", default=None)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1, help="processes that share the cases")
    problems.add_backward(parser, "gradients in place of attention")
    by_hand.add_option(parser)
    a = parser.parse_args()
    cases = [(name, name) for name in (BACKWARD if a.backward else CASES) if a.only in name]
    return problems.check_each(cases, functools.partial(check, a.target, a.replays, a.seed, a.plan), a.jobs, skips=a.backward)


if __name__ == "__main__":
    sys.exit(main())
