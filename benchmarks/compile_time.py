#!/usr/bin/env python3
"""How long compiling takes, for every head size of the tile tables and every mask.

    python3 benchmarks/compile_time.py [--target sm_80] [--json] [--only SUBSTRING] [--repeat 5]

From op text to PTX and on to a cubin, medians in a warm process; and the time the library takes to load, in fresh processes.
Says which limit is missed, and then exits with 1: 0.5 s to PTX; 1.0 s (dense) or 1.5 s (causal, local) to a cubin; 0.3 s to load.
"""
import argparse
import ctypes
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "python"))

HEADS = [(64, 64), (96, 96), (128, 128), (192, 192), (192, 128), (256, 256), (64, 256), (64, 512)]
MASKS = {"dense": {}, "causal": {"causal": True}, "local": {"window": [256, 0]}}
LIMITS = {"load": 0.3, "ptx": 0.5, "cubin": {"dense": 1.0, "causal": 1.5, "local": 1.5}}

LOAD = """
import ctypes, sys, time
start = time.perf_counter()
ctypes.CDLL(sys.argv[1]).flash_version()
print(time.perf_counter() - start)
"""


def load_time(path, repeat):
    runs = [subprocess.run([sys.executable, "-c", LOAD, path], capture_output=True, text=True, check=True).stdout for _ in range(repeat)]
    return statistics.median(map(float, runs))


def compile_times(problem, repeat):
    """Median seconds to PTX, and from op text to a cubin (None without ptxas)."""
    from flash_mlir import _library as lib

    ptx, cubin = [], []
    for at in range(repeat + 1):  # the first one warms up
        handle = ctypes.c_void_p()
        start = time.perf_counter()
        lib.call("flash_compile", problem, ctypes.byref(handle))
        middle = time.perf_counter()
        program = lib.Program(handle)
        lib.call("flash_assemble", handle)
        end = time.perf_counter()
        if at:
            ptx.append(middle - start)
            cubin.append(end - start)
    return statistics.median(ptx), statistics.median(cubin) if program.part("cubin") else None


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    ap.add_argument("--only", default="", help='rows whose name ("128x128 causal") holds this')
    ap.add_argument("--repeat", type=int, default=5)
    ap.add_argument("--target", default="sm_90a", choices=["sm_80", "sm_86", "sm_89", "sm_90a", "cpu"], help="(default: %(default)s)")
    a = ap.parse_args()
    rows = [(d, dv, mask) for d, dv in HEADS for mask in MASKS if a.only in f"{d}x{dv} {mask}"]
    if not rows or a.repeat < 1:
        ap.error(f"expected --repeat of at least 1, got {a.repeat}" if rows else f"no row's name holds {a.only!r}")
    from flash_mlir import _library as lib

    load = load_time(lib.library()._name, a.repeat)
    result = {"ptxas": lib.ptxas(), "cores": os.cpu_count(), "load": load, "rows": []}
    missed = [f"load {load:.3f} s, limit {LIMITS['load']}"] if load > LIMITS["load"] else []
    if not a.json:
        print(f"load {load * 1e3:.0f} ms, ptxas {result['ptxas'] or 'none'}\n\n{'problem':16} {'to PTX':>8} {'to cubin':>9}")
    for d, dv, mask in rows:
        name = f"{d}x{dv} {mask}"
        problem = dict(target=a.target, element="bf16", head_size=d, head_size_v=dv, batch=4, heads=16, kv_heads=16, len_q=4096, len_k=4096, **MASKS[mask])
        ptx, cubin = compile_times(json.dumps(problem).encode(), a.repeat)
        result["rows"].append(dict(name=name, ptx=ptx, cubin=cubin))
        over = [f"{name} to {what} {took:.2f} s, limit {limit}" for what, took, limit in (("PTX", ptx, LIMITS["ptx"]), ("cubin", cubin or 0, LIMITS["cubin"][mask])) if took > limit]
        missed += over
        if not a.json:
            shown = f"{cubin:8.3f}s" if cubin else "        -"
            print(f"{name:16} {ptx:7.3f}s {shown}{'  MISSED' if over else ''}", flush=True)
    result["missed"] = missed
    if a.json:
        print(json.dumps(result, indent=2))
    else:
        print("\n" + "\n".join(missed) if missed else "\nall within their limits")
    return bool(missed)


if __name__ == "__main__":
    sys.exit(main())
