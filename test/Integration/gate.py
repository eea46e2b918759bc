#!/usr/bin/env python3
"""The gate that needs no GPU: every tile row, for every mask, through flash-compile and ptxas.

A kernel fails on a spill inside a loop, gradients' on one in the loop of their products but for the reloads in RELOADED; on
any "Potential Performance Loss" of ptxas (serialised products, ignored setmaxnreg); where its main loop moves a descriptor to uniform registers for each product; and where it
takes more shared memory or registers than its plan. Listed are other bytes spilled (by gradients in the loop over query heads: once
for many products), and what it spills on a newer device than its own. Prints a line a kernel and at last `N passed, M failed`.

    python3 test/Integration/gate.py --compiler build/bin/flash-compile -j2 --only 128x128
"""

import argparse
import concurrent.futures
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import sass

HEADS = [(64, 64), (96, 96), (128, 128), (192, 192), (192, 128), (256, 256), (64, 256), (64, 512)]
MASKS = {
    "dense": "dense",
    "causal": "causal",
    "local": "local, left = 256, right = 0",
    "band": "local, left = 100, right = 100",
    "chunk": "local, left = 256, right = 0, chunk = 512, sink_tokens = 4",
}


# Plans that tuning may choose: those of the best kernels known, and their structures all at once.
STRUCTURES = [
    (64, "tile = [256, 64], stages = 4, ping_pong = true"),
    (64, "tile = [192, 112], ping_pong = true, early_wait = true"),
    (64, "tile = [128, 128], q_in_regs = true, early_wait = true, ping_pong = true"),
    (128, "tile = [128, 128], q_in_regs = true, early_wait = true"),
    (128, "tile = [128, 64], stages = 4, q_in_regs = true, ping_pong = true"),
    (128, "tile = [192, 80], defer_max = false"),
    (128, "tile = [192, 64], stages = 3"),
    (256, "tile = [128, 64], early_wait = true"),
    (128, "tile = [128, 128], q_in_regs = true, multicast = true"),
    (256, "tile = [128, 64], early_wait = true, multicast = true"),
    (256, "tile = [128, 80], defer_max = false, multicast = true"),
    (256, "tile = [128, 64], early_wait = true, staged_columns = 64"),
    (128, "tile = [128, 128], q_in_regs = true, early_wait = true, staged_columns = 0"),
]
# Where rows are looked up; pages of 1 are gathered.
SERVING = ("packed", "used", "pages of 1", "pages of 16", "pages of 256")
CONSUMERS_HEADS = ((64, 64), (128, 128), (192, 192), (192, 128), (256, 256), (64, 256))  # whose gradients consumers multiply on sm_90a
SPILLED_SOFTCAPS = ((128, 128), (256, 256))  # a few registers, which costs less than warps in step do
# Gradients of sm_80 whose products reload what they never store: so many times a round, of a thousand instructions.
RELOADED = {
    (64, 64, "causal", "bf16", ("backward",)): 1,
    (64, 64, "causal", "f16", ("backward",)): 1,
    (128, 128, "causal", "bf16", ("backward", "used")): 1,
    (256, 256, "dense", "bf16", ("backward",)): 4,
    (256, 256, "local", "bf16", ("backward",)): 6,
    (256, 256, "band", "bf16", ("backward",)): 6,
    (256, 256, "chunk", "bf16", ("backward",)): 4,
}
SM80_STRUCTURES = [
    (64, "tile = [64, 64], registers = [168, 168]"),
    (64, "tile = [128, 64], overlap = false, defer_max = false"),
    (128, "tile = [64, 64], q_in_regs = true, defer_max = true"),
    (128, "tile = [64, 64], q_in_regs = true, overlap = false"),
    (128, "tile = [64, 32], q_in_regs = true, registers = [168, 168]"),
    (128, "tile = [128, 64], warps = 8, q_in_regs = true"),
]


def cases():
    """(head size, head size of V, mask, element type, options, target) of every kernel."""
    for case in sm90_cases():
        yield *case, "sm_90a"
    for target in ("sm_80", "sm_86", "sm_89"):
        for d, dv in HEADS:
            for mask in MASKS:
                yield d, dv, mask, "bf16", (), target
            yield d, dv, "causal", "f16", ("softcap", "sink"), target
            yield d, dv, "local", "bf16", ("softcap", "sink"), target
            yield d, dv, "dense", "f16", ("softcap",), target
            if dv <= 256:
                for mask in MASKS:
                    yield d, dv, mask, "bf16", ("backward",), target
                yield d, dv, "causal", "f16", ("backward",), target
                yield d, dv, "causal", "bf16", ("backward", "ordered"), target
                for rows in ("packed", "used"):
                    yield d, dv, "causal", "bf16", ("backward", rows), target
            yield d, dv, "dense", "bf16", ("splits = 3",), target
            if target != "sm_89":  # it has the tiles of sm_86
                for case in serving_cases(d, dv):
                    yield *case, target
                yield d, dv, "causal", "f16", ("pages of 16", "softcap"), target
                yield d, dv, "chunk", "bf16", ("pages of 16",), target
                yield d, dv, "chunk", "bf16", ("pages of 256", "softcap"), target
                yield d, dv, "dense", "bf16", ("pages of 1", "1 query", "softcap"), target
    for mask in ("dense", "causal"):
        for d, structure in SM80_STRUCTURES:
            yield d, d, mask, "bf16", (structure,), "sm_80"


def serving_cases(d, dv):
    for option in SERVING:
        yield d, dv, "causal", "bf16", (option,)
        yield d, dv, "dense", "bf16", (option, "1 query")
    yield d, dv, "local", "bf16", ("packed",)
    yield d, dv, "dense", "bf16", ("packed", "schedule")
    for option in ("used", "pages of 1", "pages of 16"):
        yield d, dv, "dense", "bf16", (option, "1 query", "schedule")
    if (d, dv) == (128, 128):  # which fills registers most: any more or less beside it may spill
        for mask, options in (("dense", ("pages of 48",)), ("causal", ("leftpad",)), ("causal", ("pages of 16", "leftpad"))):
            yield d, dv, mask, "bf16", options
            yield d, dv, mask, "bf16", (*options, "own scale")


def sm90_cases():
    for d, dv in HEADS:
        for mask in MASKS:
            yield d, dv, mask, "bf16", ()
        yield d, dv, "dense", "f16", ()
        yield d, dv, "causal", "f16", ("softcap", "sink")
        yield d, dv, "local", "bf16", ("softcap", "sink")
        yield d, dv, "causal", "bf16", ("sink",)
        yield d, dv, "causal", "bf16", ("gather",)
        if dv <= 256:
            for mask in MASKS if (d, dv) in CONSUMERS_HEADS else ("dense", "causal", "local"):
                yield d, dv, mask, "bf16", ("backward",)
            yield d, dv, "causal", "f16", ("backward",)
            for mask in MASKS if (d, dv) in CONSUMERS_HEADS else ("causal",):
                yield d, dv, mask, "bf16", ("backward", "ordered")
            for mask in ("dense", "causal", "local"):
                for rows in ("packed", "used"):
                    yield d, dv, mask, "bf16", ("backward", rows)
            yield d, dv, "causal", "bf16", ("backward", "ordered", "packed")
            if (d, dv) not in SPILLED_SOFTCAPS:
                yield d, dv, "causal", "bf16", ("backward", "softcap")
        yield d, dv, "dense", "bf16", ("splits = 3",)
        yield d, dv, "causal", "f16", ("splits = 3", "softcap", "sink")
        yield d, dv, "dense", "bf16", ("1 query", "splits = 3")
        yield from serving_cases(d, dv)
    for mask in ("dense", "causal", "local"):
        for d, structure in STRUCTURES:
            yield d, d, mask, "bf16", (structure,)
    yield 40, 72, "causal", "bf16", ()  # padded
    for d in (8, 72, 104, 160):
        for mask in ("dense", "causal"):
            yield d, d, mask, "bf16", ("backward",)
        yield d, d, "causal", "bf16", ("backward", "ordered")
    for records in sorted((Path(__file__).resolve().parents[2] / "python/flash_mlir/records").glob("*.json")):
        # Problems of several lengths or windows may have one kernel.
        kernels = {(r["head_size"], r["head_size_v"], r["mask"], r["element"], (r["plan"][len("#flash.plan<") : -1], *(["backward"] if r.get("backward") else [])))
                   for r in json.loads(records.read_text())["records"]}
        yield from sorted(kernels)


def name_of(case):
    d, dv, mask, element, options, target = case
    return " ".join([f"{d}x{dv}", mask, element, *options, target])


def backward_text(d, dv, mask, element, options, target):
    """The gradients' op over memrefs of any strides, as a module."""
    packed = "packed" in options

    def memref(cols, element):
        return f"memref<{'?x?' if packed else '?x?x?'}x{cols}x{element}, strided<[{'' if packed else '?, '}?, ?, 1], offset: ?>>"

    t, u = memref(d, element), memref(dv, element)
    lse = "memref<?x?xf32, strided<[?, ?], offset: ?>>" if packed else "memref<?x?x?xf32, strided<[?, ?, ?], offset: ?>>"
    rows = "memref<?xi32, strided<[1], offset: ?>>"
    fields = [o for o in options if "=" in o] or (["ordered = true"] if "ordered" in options else [])
    plan = f", plan = #flash.plan<{', '.join(fields)}>" if fields else ""
    extra = " softcap %cap" if "softcap" in options else ""
    if packed or "used" in options:
        clause = "cu_seqlens" if packed else "seqused"
        extra += f" {clause}_q(%cq : {rows}) {clause}_k(%ck : {rows})"
    return f"""func.func @attention(%q: {t}, %k: {t}, %v: {u}, %o: {u}, %lse: {lse}, %do: {u}, %dq: {t}, %dk: {t}, %dv: {u}, %scale: f32, %cap: f32, %cq: {rows}, %ck: {rows}) {{
  flash.attention_backward %q, %k, %v, %o, %lse, %do scale %scale{extra} outs(%dq, %dk, %dv : {t}, {t}, {u}) by #flash.mask<{MASKS[mask]}>
      {{target = #flash.target<"{target}">{plan}}} : {t}, {t}, {u}, {u}, {lse}, {u}
  return
}}
"""


def op_text(d, dv, mask, element, options, target):
    """The attention op over memrefs of any strides, as a module."""
    if "backward" in options:
        return backward_text(d, dv, mask, element, options, target)
    softcap, sink = "softcap" in options, "sink" in options
    fields = {"gather": 'transfer = "gather"', "schedule": 'order = "varlen_dynamic"'}
    plan = ", ".join(fields.get(o, o) for o in options if o in fields or "=" in o)
    plan = f", plan = #flash.plan<{plan}>" if plan else ""

    few, packed = "1 query" in options, "packed" in options
    page = next((o.removeprefix("pages of ") for o in options if o.startswith("pages of ")), None)
    heads, kv_heads = ("8", "2") if few else ("?", "?")

    def memref(rows, heads, cols):
        strides = "?, " * (rows.count("x") + 1)
        return f"memref<{rows}{heads}x{cols}x{element}, strided<[{strides}1], offset: ?>>"

    queries, keys = ("?x", "?x") if packed else ("?x1x" if few else "?x?x", f"?x{page or '?'}x")
    q, k = memref(queries, heads, d), memref(keys, kv_heads, d)
    v, o = memref(keys, kv_heads, dv), memref(queries, heads, dv)
    lse = f"memref<{heads}x?xf32, strided<[?, ?], offset: ?>>" if packed else f"memref<?x{heads}x?xf32, strided<[?, ?, ?], offset: ?>>"
    logits, rows, table = f"memref<{heads}xf32, strided<[?], offset: ?>>", "memref<?xi32, strided<[1], offset: ?>>", "memref<?x?xi32, strided<[?, 1], offset: ?>>"
    args = f"%q: {q}, %k: {k}, %v: {v}, %o: {o}, %lse: {lse}, %scale: f32"
    extra = "" if "own scale" in options else "scale %scale "
    for used, argument, clause in (
        (softcap, "%cap: f32", "softcap %cap"),
        (packed, f"%cq: {rows}, %most: index, %ck: {rows}", f"cu_seqlens_q(%cq : {rows}) max_seqlen_q %most cu_seqlens_k(%ck : {rows})"),
        (page or "used" in options, f"%used: {rows}", f"seqused_k(%used : {rows})"),
        (page, f"%pages: {table}", f"page_table(%pages : {table})"),
        ("leftpad" in options, f"%pads: {rows}", f"leftpad_k(%pads : {rows})"),
    ):
        args += f", {argument}" if used else ""
        extra += f"{clause} " if used else ""
    if sink:
        args, extra = args + f", %sink: {logits}", f"sink(%sink : {logits}) " + extra
    outs, join = f"outs(%o, %lse : {o}, {lse})", ""
    if "schedule" in options:  # parts of the keys, as many as each sequence needs
        def parts(type, element):
            return type.replace("memref<", "memref<?x").replace("strided<[", "strided<[?, ").replace("bf16", element)

        outer, all_parts = f" {outs}", f"{parts(o, 'f32')}, {parts(lse, 'f32')}"
        args += f", %po: {parts(o, 'f32')}, %pl: {parts(lse, 'f32')}, %s: {table}"
        outs, extra = f"outs(%po, %pl : {all_parts})", extra + f"schedule(%s : {table}) "
        ends = f" cu_seqlens_q(%cq : {rows}) max_seqlen_q %most" if packed else ""
        aside = ", plan = #flash.plan<tile = [1, 16], aside = 4>" if few else ""
        join = f'  flash.combine %po, %pl{ends} schedule(%s : {table}){outer} {{target = #flash.target<"{target}">{aside}}} : {all_parts}\n'
    return f"""func.func @attention({args}) {{
  flash.attention %q, %k, %v {extra}{outs} by #flash.mask<{MASKS[mask]}>
      {{target = #flash.target<"{target}">{plan}}} : {q}, {k}, {v}
{join}  return
}}
"""


def run(command, text=None):
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=120)
    if done.returncode:
        raise RuntimeError(f"{Path(command[0]).name}: {(done.stderr or done.stdout).strip().splitlines()[0]}")
    return done.stdout + done.stderr


def over_plan(ptx, tiles, plan, log):
    """What a kernel takes beyond its plan, as sentences. `tiles`: the kernel as tile ops."""
    threads = int(re.search(r"\.maxntid (\d+)", ptx)[1])
    shared = int(re.search(r"flash\.shared_bytes = (\d+)", tiles)[1])
    launched = int(re.search(r"'attention' for(?:.*\n)+?.*Used (\d+) registers", log)[1])
    registers = plan["registers"]
    if shared > plan["shared_bytes"]["used"]:
        yield f"{shared} bytes of shared memory where the plan has {plan['shared_bytes']['used']}"
    if threads > plan["threads"]["used"]:
        yield f"{threads} threads where the plan has {plan['threads']['used']}"
    if launched * threads > registers["limit"]:
        yield f"{launched} registers in each of {threads} threads"
    planned = [registers["producer"], registers["consumer"]]
    written = [int(x) for x in re.findall(r"setmaxnreg\.\w+\.sync\.aligned\.u32\s+(\d+)", ptx)]
    if "target sm_8" in ptx:
        planned = []
        if launched > registers["consumer"]:
            yield f"{launched} registers where the plan has {registers['consumer']}"
    if sorted(written) != planned or registers["used"] > registers["limit"]:
        yield f"setmaxnreg {written} where the plan has {planned}"


def unfenced_rows(ptx):
    """Bulk copies into shared memory with no proxy fence since the one before."""
    fenced, count = False, 0
    for line in ptx.splitlines():
        if "fence.proxy.async" in line:
            fenced = True
        elif "cp.async.bulk.shared::cluster.global" in line:
            count, fenced = count + (not fenced), False
    return count


def architectures(case, ptx, seen):
    """What a kernel is assembled for: its own device; where sm_80's speed is measured also as a driver of an H200 would; for sm_89 not
    again what is as for sm_86, of which ptxas makes the same registers and spills. `seen` gathers the code for sm_86."""
    *_, mask, _, options, target = case
    code = hash(re.sub(r"\bsm_8[69]\b", "", ptx))
    if target == "sm_86":
        seen.add(code)
    if target == "sm_89" and code in seen:
        return []
    measured = target == "sm_80" and mask in ("dense", "causal") and not any(o.startswith((*SERVING, "leftpad")) for o in options)
    return [target, "sm_90"] if measured else [target]


def check(case, tools, folder, seen):
    """(name, complaints, remarks) of one kernel. `seen`: code that was assembled (architectures)."""
    name = name_of(case)
    base = Path(folder) / name.replace(" ", "-")
    complaints, remarks = [], []
    try:
        base.with_suffix(".mlir").write_text(op_text(*case))
        start = time.monotonic()
        ptx = run([tools.compiler, str(base) + ".mlir", "--emit=ptx", f"--target={case[-1]}"])
        seconds = time.monotonic() - start
        explained = "backward" not in case[4]  # of an attention alone
        if explained:
            tiles = run([tools.compiler, str(base) + ".mlir", "--emit=mlir"])
            plan = json.loads(run([tools.compiler, str(base) + ".mlir", "--explain", "--json"]))
        base.with_suffix(".ptx").write_text(ptx)
        remarks.append(f"{seconds:.2f} s to PTX")
        if unfenced := unfenced_rows(ptx):
            complaints.append(f"{unfenced} copies of rows into what lanes have read, without a proxy fence before them")
        for arch in architectures(case, ptx, seen):
            log = run([tools.ptxas, "-v", f"-arch={arch}", str(base) + ".ptx", "-o", str(base) + ".cubin"])
            complaints += [line.strip() for line in log.splitlines() if "Potential Performance Loss" in line]
            complaints += over_plan(ptx, tiles, plan, log) if explained else ()
            products, moved = sass.moved_descriptors(str(base) + ".cubin")
            if products and moved >= products:
                complaints.append(f"{moved} descriptors moved to uniform registers for {products} products of the main loop")
            spilled = sum(int(x) for x in re.findall(r"(\d+) bytes spill stores", log))
            if spilled:
                accesses, depth, stores, loads = sass.spills(str(base) + ".cubin")
                where = f"{spilled} bytes spilled on {arch}, {accesses} accesses, " + (f"at loop depth {depth}" if depth else "outside loops")
                few = RELOADED.get(case[:-1], 0) if case[-1] == "sm_80" else 0
                where += f", {stores} stores and {loads} loads among products" if stores or loads else ""
                fails = arch == case[-1] and (depth if explained else stores or loads > few)
                (complaints if fails else remarks).append(where)
    except (RuntimeError, subprocess.TimeoutExpired, TypeError, ValueError, OSError) as error:
        complaints.append(str(error))
    return name, complaints, remarks


def main():
    here = Path(__file__).resolve().parents[2]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--compiler", default=str(here / "build/bin/flash-compile"), help="flash-compile")
    parser.add_argument("--ptxas", default=shutil.which("ptxas") or "/usr/local/cuda/bin/ptxas")
    parser.add_argument("--keep", metavar="DIR", help="leave MLIR, PTX and cubins there")
    parser.add_argument("--only", default="", help="kernels whose name holds this text")
    parser.add_argument("-j", type=int, default=os.cpu_count())
    tools = parser.parse_args()
    if tools.keep:
        Path(tools.keep).mkdir(parents=True, exist_ok=True)
    passed, failed, seen = 0, 0, set()
    with tempfile.TemporaryDirectory() as temporary, concurrent.futures.ThreadPoolExecutor(tools.j) as pool:
        folder = tools.keep or temporary
        wanted = [case for case in cases() if tools.only in name_of(case)]
        for name, complaints, remarks in pool.map(lambda case: check(case, tools, folder, seen), wanted):
            failed, passed = failed + bool(complaints), passed + (not complaints)
            print(f"{'FAIL' if complaints else 'ok'}  {name}: {'; '.join(complaints + remarks)}", flush=True)
    print(f"{passed} passed, {failed} failed")
    return bool(failed or not passed)


if __name__ == "__main__":
    sys.exit(main())
