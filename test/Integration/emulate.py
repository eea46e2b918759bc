#!/usr/bin/env python3
"""Kernels for sm_80, sm_86 and sm_89 against float64 without a GPU: their PTX runs block by block in ptx.py.

    python3 test/Integration/emulate.py [--only TEXT]

Needs flash_mlir (PYTHONPATH, FLASH_LIBRARY) and ml_dtypes. Prints a line a kernel and at last `N passed, M failed`.
"""
import argparse
import json
import pathlib
import struct
import sys

import ml_dtypes
import numpy as np
import ptx

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "python/tests")]
import float64  # noqa: E402
import flash_mlir  # noqa: E402
from flash_mlir import _api  # noqa: E402

DTYPES = {"bf16": (ml_dtypes.bfloat16, 1.2e-2), "f16": (np.float16, 2e-3)}
DEFER, PLAIN = "#flash.plan<defer_max = true>", "#flash.plan<tile = [128, 64], stages = 1, overlap = false, defer_max = false>"
# Below what is masked, past f32 as a power of two, and none or all of the denominator.
SINKS = (0.3, -3e29, -1e30, -3.4e38, -np.inf, 2.4e38, 3.4e38, np.inf)
# (head sizes, queries, keys, query heads, KV heads, options)
CASES = [((d, dv), 130, 200, 1, 1, dict(target=target)) for d, dv in ((64, 64), (96, 96), (128, 128), (192, 192), (192, 128), (256, 256), (64, 256), (64, 512)) for target in ("sm_80", "sm_86")]
CASES += [((d, dv), 150, 333, 1, 1, dict(target=target, causal=True)) for d, dv in ((64, 64), (128, 128), (192, 128), (256, 256), (64, 512)) for target in ("sm_80", "sm_89")]
CASES += [
    ((40, 72), 40, 70, 4, 1, dict(causal=True, sink=(0.3, -1.0, 2.0, 0.0))),
    *(((64, 64), 5, 3, 8, 2, dict(causal=True, sink=SINKS, splits=splits)) for splits in (1, 2)),
    ((64, 64), 130, 200, 2, 1, dict(element="f16", softcap=5.0, causal=True)),
    ((128, 128), 130, 400, 1, 1, dict(window=(100, 30))),
    ((64, 64), 200, 400, 1, 1, dict(window=(100, 0), chunk=128, sink_tokens=4)),
    ((64, 64), 200, 50, 1, 1, dict(causal=True)),
    ((64, 64), 130, 700, 1, 1, dict(plan="#flash.plan<stages = 3>")),
    ((64, 64), 130, 300, 1, 1, dict(plan=PLAIN, causal=True)),
    ((64, 64), 130, 200, 1, 1, dict(plan="#flash.plan<pipeline_loads = false>")),
    ((128, 128), 130, 333, 1, 1, dict(plan="#flash.plan<tile = [64, 64], q_in_regs = true, defer_max = true>", causal=True)),
    ((64, 64), 3, 700, 4, 2, dict(splits=3)),
    ((72, 72), 3, 300, 2, 1, dict(splits=3)),  # rows of 18 threads, which are divided by in 16 bits
    ((64, 64), 5, 300, 2, 2, dict(splits=10, causal=True, sink=(0.3, -1.0))),  # parts without a key; more than are joined at once
    ((64, 64), 5, 300, 2, 2, dict(splits=18, causal=True, sink=(0.3, -1.0), plan="#flash.plan<join = [16, 4]>")),  # the same by threads apart
    ((72, 72), 3, 300, 2, 1, dict(splits=3, plan="#flash.plan<join = [6, 3]>")),
    ((128, 128), (0, 0, 20), (0, 1, 90), 1, 1, dict(splits=3)),  # no row before the first
    ((64, 64), (5, 0, 3), (70, 200, 0), 2, 2, dict(splits=2)),
    ((64, 64), 3, (40, 48), 2, 1, dict(pages=16, pads=(3, 48))),  # no key counts of pages that end with the table
    ((128, 128), 3, (80, 90), 2, 1, dict(pages=3, pads=(0, 90), splits=2)),
    *(((128, 128), 40, (80, 130), 1, 1, dict(pages=7, pads=(0, 33), target=target)) for target in ("sm_80", "sm_86")),
    ((64, 64), 130, 333, 1, 1, dict(plan=DEFER, causal=True, growing=3000)),  # keys that tower: rows are redone
    ((256, 256), 70, 150, 1, 1, dict(causal=True, growing=3000)),
]


def emulate(program, arrays, scalars, blocks_of):
    """Runs a program's kernels, each by as many blocks as blocks_of(kernel) says, on arrays and numbers by the names of its arguments."""
    memory = ptx.Memory()
    places = {name: memory.add(array) for name, array in arrays.items()}

    def argument(p):
        if p["arg"] in scalars:
            x = scalars[p["arg"]]
            return x if isinstance(x, int) else struct.unpack("<I", struct.pack("<f", x))[0]
        array = arrays[p["arg"]]
        return dict(pointer=places[p["arg"]], size=array.shape[p.get("dim", 0)], stride=array.strides[p.get("dim", 0)] // array.itemsize)[p["kind"]]

    for kernel in json.loads(program.text("metadata"))["kernels"]:
        code, blocks = ptx.Kernel(program.text("ptx"), kernel["name"]), blocks_of(kernel)
        for number in range(blocks):
            ptx.Block(code, map(argument, kernel["params"]), memory, kernel["threads"], kernel["shared_bytes"], number, blocks).run()


def run(heads, sq, sk, hq, hkv, element="bf16", target="sm_80", growing=0, sink=None, softcap=0.0, plan=None, chunk=0, splits=1, pages=0, pads=(), **mask):
    """The largest of the errors of o and lse, as parts of what is allowed."""
    if pages:
        return run_paged(heads, sq, sk, hq, hkv, pages, pads, splits, target)
    if isinstance(sq, tuple):
        return run_packed(heads, sq, sk, hq, hkv, splits, target)
    (d, dv), (dtype, allowed), rng = heads, DTYPES[element], np.random.default_rng(1)
    q, k, v = (rng.standard_normal(shape).astype(dtype) for shape in ((1, sq, hq, d), (1, sk, hkv, d), (1, sk, hkv, dv)))
    if growing:
        k = (k.astype(np.float32) * np.linspace(1, growing, sk)[None, :, None, None]).astype(dtype)
    asked = dict(element=element, target=target, plan=plan, softcap=softcap, sink=sink is not None, num_splits=splits, attention_chunk=chunk, **mask)
    planned = flash_mlir.explain(q.shape, k.shape, v.shape, json=True, **asked)
    program = flash_mlir.compile(q.shape, k.shape, v.shape, cached=False, **asked)
    arrays = dict(q=q, k=k, v=v, o=np.full((1, sq, hq, dv), np.nan, dtype), lse=np.full((1, hq, sq), np.nan, np.float32))
    arrays |= dict(o_partial=np.full((splits, 1, sq, hq, dv), np.nan, np.float32), lse_partial=np.full((splits, 1, hq, sq), np.nan, np.float32))
    arrays["sink"] = np.array(sink or (), np.float32)
    scalars = dict(scale=float(d**-0.5), softcap=float(softcap), section=planned["order"]["l2_section"])
    # A combine's blocks may be more than its tiles.
    emulate(program, arrays, scalars, lambda kernel: planned["waves"]["grid"] if kernel["op"] == "attention" else sq * hq)
    o, lse = float64.attention(q, k, v, chunk=chunk, softcap=softcap, sink=None if sink is None else np.array(sink), **mask)
    apart = np.linalg.norm(arrays["o"].astype(np.float64) - o) / np.linalg.norm(o)
    with np.errstate(invalid="ignore"):
        lse_apart = np.max(np.where(arrays["lse"] == lse, 0, abs(arrays["lse"] - lse)) / np.maximum(1, abs(np.where(np.isinf(lse), 0, lse))))
    return max(apart / allowed, lse_apart / 1e-4)


def run_packed(heads, sq, sk, hq, hkv, splits=3, target="sm_80"):
    """The same of packed sequences whose keys are split: o alone, of which rows of no sequence must be left alone."""
    (d, dv), (dtype, allowed), rng = heads, DTYPES["bf16"], np.random.default_rng(1)
    starts = [np.concatenate([[0], np.cumsum(x)]).astype(np.int32) for x in (sq, sk)]
    (total_q, total_k), behind = (int(x[-1]) for x in starts), 3
    q, k, v = (rng.standard_normal(shape).astype(dtype) for shape in ((total_q + behind, hq, d), (total_k, hkv, d), (total_k, hkv, dv)))
    shapes = [(1, *x.shape) for x in (q, k, v)]
    problem = json.loads(_api._problem_of(*shapes, "bf16", False, (-1, -1), 0, 0, 0.0, None, splits, None, None, None, target))
    problem |= dict(packed_q=True, packed_k=True, batch=len(sq), total_q=total_q + behind, len_q=max(sq), len_k=max(sk))
    program = _api.Program.compile(json.dumps(problem))
    nothing = np.full((total_q + behind, hq, dv), np.nan, dtype)
    arrays = dict(q=q, k=k, v=v, o=nothing.copy(), lse=np.full((hq, total_q + behind), np.nan, np.float32), cu_seqlens_q=starts[0], cu_seqlens_k=starts[1])
    arrays |= dict(o_partial=np.full((splits, *nothing.shape), np.nan, np.float32), lse_partial=np.full((splits, hq, total_q + behind), np.nan, np.float32))
    emulate(program, arrays, dict(scale=float(d**-0.5), max_seqlen_q=max(sq), section=1), lambda kernel: splits * hq * sum(-(-n // 16) + 1 for n in sq) if kernel["op"] == "attention" else max(sq) * hq * len(sq))
    worst = 0
    for i in range(len(sq)):
        rows, keys = (slice(s[i], s[i + 1]) for s in starts)
        if sq[i]:
            o, _ = float64.attention(*(x[None] for x in (q[rows], k[keys], v[keys])))
            worst = max(worst, np.linalg.norm(arrays["o"][rows].astype(np.float64) - o[0]) / max(np.linalg.norm(o), 1e-9) / allowed)
    assert np.isnan(arrays["o"][total_q:].astype(np.float32)).all(), "rows behind the last sequence are written"
    return worst


def run_paged(heads, sq, used, hq, hkv, size, pads, splits, target):
    """The same over pages of `size` rows, of which the table has no more than it needs, less the first pads[i] rows of each sequence: o alone."""
    (d, dv), (dtype, allowed), rng, batch = heads, DTYPES["bf16"], np.random.default_rng(1), len(used)
    width = -(-max(used) // size)
    q, k, v = (rng.standard_normal(shape).astype(dtype) for shape in ((batch, sq, hq, d), (batch * width, size, hkv, d), (batch * width, size, hkv, dv)))
    table = rng.permutation(batch * width).astype(np.int32).reshape(batch, width)
    problem = json.loads(_api._problem_of(q.shape, (batch, width * size, hkv, d), (batch, width * size, hkv, dv), "bf16", False, (-1, -1), 0, 0, 0.0, None, splits, None, None, None, target))
    program = _api.Program.compile(json.dumps(problem | dict(page_size=size, used_k=True, leftpad_k=True)))
    arrays = dict(q=q, k=k, v=v, o=np.full((batch, sq, hq, dv), np.nan, dtype), lse=np.full((batch, hq, sq), np.nan, np.float32), page_table=table, seqused_k=np.int32(used), leftpad_k=np.int32(pads))
    arrays |= dict(o_partial=np.full((splits, batch, sq, hq, dv), np.nan, np.float32), lse_partial=np.full((splits, batch, hq, sq), np.nan, np.float32))
    emulate(program, arrays, dict(scale=float(d**-0.5), section=1), lambda kernel: splits * hq * batch * (-(-sq // 16) + 1) if kernel["op"] == "attention" else sq * hq * batch)
    worst = 0
    for i in range(batch):
        keys, values = (x[table[i]].reshape(1, width * size, hkv, -1)[:, pads[i] : used[i]] for x in (k, v))
        o, _ = float64.attention(q[i : i + 1], keys, values)
        worst = max(worst, np.linalg.norm(arrays["o"][i].astype(np.float64) - o[0]) / max(np.linalg.norm(o), 1e-9) / allowed)
    return worst


def command(doc, cases, run):
    """The command of a list of problems: run(heads, sq, sk, hq, hkv, **options) gives a result's share of the allowed error."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="problems whose line holds this")
    only, failed, passed = parser.parse_args().only, 0, 0
    for heads, sq, sk, hq, hkv, options in cases:
        name = f"{heads[0]}x{heads[1]} {sq} x {sk}, heads {hq}/{hkv} {options}"
        if only not in name:
            continue
        try:
            error = run(heads, sq, sk, hq, hkv, **options)
            said = f"{error:.2f} of the allowed error"
        except (AssertionError, IndexError) as e:
            error, said = np.inf, str(e)
        passed, failed = passed + (error <= 1), failed + (not error <= 1)
        print(f"{'ok' if error <= 1 else 'FAIL'}  {name}: {said}", flush=True)
    print(f"{passed} passed, {failed} failed")
    return bool(failed or not passed)


if __name__ == "__main__":
    sys.exit(command(__doc__, CASES, run))
