#!/usr/bin/env python3
"""Offsets past 32 bits on a GPU: caches of more than 2^31 elements, batch strides of 2^30, pages past number 2^20.

    python3 test/Integration/offsets_gpu.py [--targets sm_90a,sm_80]

Needs torch and 80 GB of device memory. Every result is compared with float64 over the keys that the problem names. Ends with
`N passed, M failed`.
"""
import argparse
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))

import flash_mlir
import problems
import torch

WORST = 5e-3  # relative L2: bf16 rounds to 2^-9
BF16 = dict(device="cuda", dtype=torch.bfloat16)


def off(o, q, k, v):
    """Relative L2 of o [Sq, Hq, D] against dense attention of q over k, v [Sk, Hkv, D] in float64."""
    q, k, v = (x.double() for x in (q, k, v))
    group = q.shape[1] // k.shape[1]
    k, v = (x.repeat_interleave(group, 1) for x in (k, v))
    scores = torch.einsum("qhd,khd->hqk", q, k) / q.shape[-1] ** 0.5
    want = torch.einsum("hqk,khd->qhd", scores.softmax(-1), v)
    return float((o.double() - want).norm() / want.norm())


def large_cache(target):
    """More than 2^31 elements in each of K and V; the last sequences lie behind them."""
    b, s, h, d = 9, 65536, 32, 128
    k, v = torch.empty(b, s, h, d, **BF16), torch.empty(b, s, h, d, **BF16)
    assert k.numel() > 2**31
    k.normal_(), v.normal_()
    q = torch.randn(b, 3, h, d, **BF16)
    o = flash_mlir.attention(q, k, v, target=target)
    return max(off(o[i, :, 30:], q[i, :, 30:], k[i, :, 30:], v[i, :, 30:]) for i in (0, b - 1))


def large_batch_stride(target):
    """Every operand's sequences 2^30 elements apart, and the result's."""
    b, s, h, d, stride = 3, 300, 4, 128, 2**30
    spread = lambda: torch.empty((b - 1) * stride + s * h * d, **BF16).as_strided((b, s, h, d), (stride, h * d, d, 1)).normal_()
    q, k, v, o = spread(), spread(), spread(), spread()
    flash_mlir.attention(q, k, v, out=o, target=target)
    return max(off(o[i], q[i], k[i], v[i]) for i in range(b))


def pages(page):
    def large_pages(target):
        """Pages past number 2^20, 2^34 elements behind the first, read and appended to."""
        d, b, count = 64, 3, 5
        total = max(2**20 + 64, 2**34 // (page * d) + 64)
        k, v = torch.empty(total, page, 1, d, **BF16), torch.empty(total, page, 1, d, **BF16)
        table = torch.stack([total - 1 - torch.randperm(60)[:count] for _ in range(b)])
        table[:, 1] = torch.randperm(60)[:b]  # and some of the first
        for x in (k, v):
            x[table.flatten()] = torch.randn(b * count, page, 1, d, **BF16)
        used = page * count - torch.tensor([20, 37, 120])
        q, k_new, v_new = torch.randn(b, 7, 4, d, **BF16), torch.randn(b, 9, 1, d, **BF16), torch.randn(b, 9, 1, d, **BF16)
        i32 = dict(device="cuda", dtype=torch.int32)
        o = flash_mlir.attention_with_kvcache(q, k, v, k_new=k_new, v_new=v_new, seqused_k=used.to(**i32), page_table=table.to(**i32), target=target)
        keys = lambda x, new, i: torch.cat([x[table[i].to("cuda")].flatten(0, 1)[: used[i]], new[i]])
        return max(off(o[i], q[i], keys(k, k_new, i), keys(v, v_new, i)) for i in range(b))

    large_pages.__name__ += f" of {page}"
    return large_pages


def check(case):
    problem, target = case
    torch.cuda.empty_cache()
    torch.manual_seed(1)
    error = problem(target)
    return None if error < WORST else f"relative L2 {error:.1e}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--targets", default="sm_90a,sm_80")
    targets = parser.parse_args().targets.split(",")
    return problems.check_each([(f"{p.__name__} {t}", (p, t)) for t in targets for p in (large_cache, large_batch_stride, pages(256), pages(48))], check)


if __name__ == "__main__":
    sys.exit(main())
