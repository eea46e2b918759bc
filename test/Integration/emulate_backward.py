#!/usr/bin/env python3
"""Gradients for sm_80, sm_86 and sm_89 against float64 without a GPU: their kernels' PTX runs block by block in ptx.py.

    python3 test/Integration/emulate_backward.py [--only TEXT]

Needs flash_mlir (PYTHONPATH, FLASH_LIBRARY), ml_dtypes and ../shared/cases. Prints a line a problem and at last `N passed, M failed`.
"""
import json
import os
import pathlib
import struct
import sys

import emulate
import ml_dtypes
import numpy as np
import ptx

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "python/tests"), os.path.join(os.environ.get("FLASH_SHARED", ROOT.parent / "shared"), "cases")]
import float64  # noqa: E402
import flash_mlir  # noqa: E402
import reference  # noqa: E402
from flash_mlir import _api  # noqa: E402

DTYPES = {"bf16": (ml_dtypes.bfloat16, 1.2e-2), "f16": (np.float16, 2e-3)}
# (head sizes, queries, keys, query heads, KV heads, options); of packed sequences queries and keys are lists
CASES = [((d, d), 130, 200, 1, 1, dict(target=target, causal=causal)) for d in (64, 96, 128) for target in ("sm_80", "sm_86") for causal in (False, True)]
CASES += [
    ((40, 72), 40, 70, 4, 1, dict(causal=True, sink=(0.3, -1.0, 2.0, 0.0))),
    ((64, 64), 50, 40, 6, 2, dict(causal=True, sink=emulate.SINKS[:6])),
    ((64, 64), 130, 200, 4, 2, dict(element="f16", softcap=5.0, causal=True, target="sm_89")),
    ((128, 128), 200, 130, 2, 1, dict(causal=True)),  # queries without a key
    ((64, 64), 130, 400, 1, 1, dict(window=(100, 30))),  # keys without a query
    ((64, 64), 200, 400, 1, 1, dict(window=(100, 0), chunk=128, sink_tokens=4)),
    ((64, 64), 200, 300, 2, 1, dict(causal=True, deterministic=True)),
    ((128, 64), 150, 150, 2, 1, dict(deterministic=True, window=(70, -1), target="sm_86")),
    ((64, 64), (70, 0, 130), (90, 40, 130), 2, 1, dict(causal=True)),
    ((128, 128), (0, 65, 31), (20, 300, 0), 2, 2, dict(deterministic=True, sink=(0.3, -1.0))),
    ((64, 64), 200, 300, 1, 1, dict(causal=True, plan="#flash.plan<stages = 2>")),
    ((64, 64), 200, 150, 4, 1, dict(plan="#flash.plan<stages = 2>")),  # heads one after another
    ((128, 128), 200, 300, 1, 1, dict(plan="#flash.plan<stages = 2, tile = [64, 64]>")),  # by four warps
    ((128, 128), 200, 100, 2, 1, dict(causal=True, plan='#flash.plan<stages = 2, tile = [64, 64], split_by = "columns">')),
    ((256, 256), 70, 100, 2, 1, dict(causal=True, plan='#flash.plan<tile = [64, 64], warps = 8, split_by = "columns">')),
    ((192, 192), 70, 100, 1, 1, dict(causal=True)),
    ((192, 192), 70, 100, 1, 1, dict(target="sm_86")),
    ((256, 256), 70, 100, 1, 1, dict(causal=True)),
    ((256, 256), 70, 100, 1, 1, dict(target="sm_89", window=(40, 20))),
    ((192, 128), 70, 100, 2, 1, dict(element="f16", softcap=5.0)),
    ((64, 64), 100, 70, 1, 1, dict(softcap=5.0)),
    ((64, 256), 70, 100, 1, 1, dict(causal=True)),
    ((248, 136), (20, 0, 65), (70, 3, 40), 2, 1, dict(causal=True, deterministic=True)),
    ((256, 256), 40, 70, 2, 2, dict(target="sm_86", deterministic=True)),
    ((8, 8), 70, 100, 1, 1, dict(deterministic=True)),
    ((104, 120), 70, 100, 2, 1, dict(causal=True, plan='#flash.plan<stages = 2, tile = [64, 64], split_by = "columns">')),
    ((136, 160), 70, 100, 1, 1, dict(target="sm_86")),
    ((160, 160), 40, 70, 1, 1, dict(target="sm_89", deterministic=True)),
    ((104, 96), 70, 100, 1, 1, dict(target="sm_86", sink=(0.3,), chunk=32, window=(20, 0), sink_tokens=4)),
]


def run(heads, sq, sk, hq, hkv, element="bf16", target="sm_80", sink=None, softcap=0.0, plan=None, chunk=0, deterministic=False, **mask):
    """The largest of the errors of the gradients, as parts of what is allowed."""
    (d, dv), (dtype, allowed), rng = heads, DTYPES[element], np.random.default_rng(1)
    packed = isinstance(sq, tuple)
    lengths = list(zip(sq, sk)) if packed else [(sq, sk)]
    batch = len(lengths)
    starts = [np.concatenate([[0], np.cumsum(x)]).astype(np.int32) for x in zip(*lengths)]
    total_q, total_k = (int(x[-1]) for x in starts)
    q, k, v, do = (rng.standard_normal(shape).astype(dtype) for shape in ((total_q, hq, d), (total_k, hkv, d), (total_k, hkv, dv), (total_q, hq, dv)))
    wide = [x.astype(np.float32).astype(np.float64) for x in (q, k, v, do)]
    logits = None if sink is None else np.array(sink, np.float32)
    o, lse, want = np.zeros((total_q, hq, dv)), np.zeros((hq, total_q)), [np.zeros(x.shape) for x in (q, k, v)]
    if sink is not None:
        want.append(np.zeros(hq))
    for i, (nq, nk) in enumerate(lengths):
        rows, keys = (slice(x[i], x[i + 1]) for x in starts)
        see = float64.visible(nq, nk, mask.get("causal", False), mask.get("window", (-1, -1)), chunk, mask.get("sink_tokens", 0))
        parts = [wide[0][rows], wide[1][keys], wide[2][keys]]
        o[rows], lse[:, rows] = reference.forward(*parts, d**-0.5, see, softcap, sink)
        of = reference.backward(*parts, wide[3][rows], d**-0.5, see, softcap, sink)
        for to, where, grad in zip(want, (rows, keys, keys), of):
            to[where] = grad
        if sink is not None:
            want[3] += of[3]

    shape = (lambda x: x.shape) if packed else (lambda x: (1, *x.shape))
    asked = dict(element=element, target=target, plan=plan, softcap=softcap, attention_chunk=chunk, **mask)
    problem = json.loads(_api._problem_of(*[(1, *x.shape) for x in (q, k, v)], **dict(dict(causal=False, window=(-1, -1), sink_tokens=0), **asked), sink=sink is not None, num_splits=0, pack_gqa=None, passes=None))
    problem |= dict(backward=True, deterministic=deterministic)
    if packed:
        problem |= dict(packed_q=True, packed_k=True, batch=batch, total_q=total_q, len_q=max(sq), len_k=max(sk))
    program = _api.Program.compile(json.dumps(problem))
    module, kernels = program.text("mlir"), json.loads(program.text("metadata"))["kernels"]
    tile_m, tile_n = map(int, module.split("flash.plan<tile = [")[1].split("]")[0].split(","))
    tiles = (lambda total, tile: total // tile + batch) if packed else (lambda total, tile: -(-total // tile))
    padded = [next(x for x in (64, 96, 128, 192, 256) if x >= size) for size in heads]
    tiles_q, width = tiles(total_q, tile_m), padded[0] if padded in ([192, 128], [64, 256]) else max(padded)
    arrays = dict(q=q, k=k, v=v, do=do, o=o.astype(dtype), lse=lse.astype(np.float32))
    arrays |= dict(dq=np.full_like(q, np.nan), dk=np.full_like(k, np.nan), dv=np.full_like(v, np.nan))
    arrays |= dict(dq_sum=np.full((hq, tiles_q * tile_m, d), np.nan, np.float32).transpose(1, 0, 2))
    arrays |= {name: np.full((hq, tiles_q * tile_m), np.nan, np.float32) for name in ("lse_log2", "delta")}
    arrays = {name: x.reshape(shape(x)) for name, x in arrays.items()}
    threads = next(kernel["threads"] for kernel in kernels if kernel["op"] == "attention_backward")
    parts = width // (threads // 2) if width > 192 else 1  # of dQ, which take turns each
    arrays |= dict(turns=np.full(tiles_q * hq * parts, -1, np.int32), cu_seqlens_q=starts[0], cu_seqlens_k=starts[1])
    arrays |= dict(sink=np.array(sink or (), np.float32), dsink=np.full(hq, np.nan, np.float32))
    memory = ptx.Memory()
    places = {name: memory.add(array if array.flags.c_contiguous else array.base) for name, array in arrays.items()}
    bits = {name: struct.unpack("<I", struct.pack("<f", x))[0] for name, x in (("scale", d**-0.5), ("softcap", softcap))}
    bits["section"] = 1

    def argument(p):
        if p["arg"] in bits:
            return bits[p["arg"]]
        array = arrays[p["arg"]]
        return dict(pointer=places[p["arg"]], size=array.shape[p.get("dim", 0)], stride=array.strides[p.get("dim", 0)] // array.itemsize)[p["kind"]]

    for kernel in kernels:
        code = ptx.Kernel(program.text("ptx"), kernel["name"])
        blocks = {"attention_backward": tiles(total_k, tile_n) * hkv, "attention_backward_sink": hq}.get(kernel["op"], tiles_q * hq)
        for number in range(blocks):
            ptx.Block(code, map(argument, kernel["params"]), memory, kernel["threads"], kernel["shared_bytes"], number, blocks).run()
    worst = 0
    for name, x in zip(("dq", "dk", "dv", "dsink"), want):
        got = arrays[name].astype(np.float64).reshape(x.shape)
        assert np.isfinite(got).all(), f"{name} is not finite"
        assert not got[(x == 0)].any() or name == "dsink", f"{name} is not 0 where nothing is seen"
        worst = max(worst, np.linalg.norm(got - x) / max(np.linalg.norm(x), 1e-6) / allowed)
    return worst


if __name__ == "__main__":
    sys.exit(emulate.command(__doc__, CASES, run))
