"""Plans, compiles and runs one attention op, and checks the answer.

    python3 -m flash_mlir.demo [FOLDER]

Prints the plan for an H200 and why, writes PTX (and a cubin where ptxas is found) to FOLDER (default: build/demo), computes a
smaller problem on the CPU and compares it with float64. Exit code 1 when it disagrees.
"""
import argparse
import pathlib
import sys
import time

import ml_dtypes
import numpy as np

import flash_mlir

LARGE = ((4, 4096, 16, 128), (4, 4096, 4, 128), (4, 4096, 4, 128))
SMALL = ((1, 300, 4, 128), (1, 513, 2, 128), (1, 513, 2, 128))
ALLOWED = 1.2e-2  # relative L2 error of bf16


def in_float64(q, k, v):
    """Causal attention in float64, o [B, Sq, Hq, Dv]."""
    q, k, v = (x.astype(np.float32).astype(np.float64) for x in (q, k, v))
    k, v = (np.repeat(x, q.shape[2] // k.shape[2], axis=2) for x in (k, v))
    s = np.einsum("bihd,bjhd->bhij", q, k) * q.shape[-1] ** -0.5
    i, j = np.arange(q.shape[1])[:, None], np.arange(k.shape[1])[None, :]
    s = np.where(j <= i + k.shape[1] - q.shape[1], s, -np.inf)
    p = np.exp(s - s.max(axis=3, keepdims=True))
    return np.einsum("bhij,bjhd->bihd", p / p.sum(axis=3, keepdims=True), v)


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("folder", nargs="?", type=pathlib.Path, default=pathlib.Path("build/demo"))
    folder = ap.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)

    print("1. The plan for an H200\n")
    print(flash_mlir.explain(*LARGE, causal=True, target="sm_90a"))

    print("2. The kernel\n")
    start = time.perf_counter()
    program = flash_mlir.compile(*LARGE, causal=True, target="sm_90a", cached=False)
    took = time.perf_counter() - start
    for part in ("mlir", "ptx", "cubin"):
        content = program.part(part)
        if content:
            path = folder / f"attention.{part}"
            path.write_bytes(content)
            print(f"   {path}  {len(content)} bytes")
    if not program.part("cubin"):
        print("   no cubin: ptxas was not found; the driver compiles the PTX on the machine with the GPU")
    print(f"   in {took:.2f} s\n")

    print("3. The same op on the CPU")
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal(shape).astype(ml_dtypes.bfloat16) for shape in SMALL)
    flash_mlir.attention(q, k, v, causal=True)
    start = time.perf_counter()
    o = flash_mlir.attention(q, k, v, causal=True)
    took = time.perf_counter() - start
    want = in_float64(q, k, v)
    error = np.linalg.norm(o.astype(np.float64) - want) / np.linalg.norm(want)
    right = error < ALLOWED  # false for NaN too
    print(f"   {SMALL[0]} x {SMALL[1]} bf16, causal: {took * 1e3:.1f} ms, relative error {error:.2e} against float64 (allowed {ALLOWED})")
    print("ok" if right else "WRONG")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
