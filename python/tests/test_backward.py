"""Gradients on the CPU against finite differences of attention in float64."""
import types

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flash_mlir
import float64
from flash_mlir import _arrays
from test_cpu import MASKS, SINKS, TYPES, draw, inputs

FORWARD = dict(attention_chunk="chunk")


def wide(x):
    return x.astype(np.float32).astype(np.float64)


def gradients(q, k, v, do=None, deterministic=False, **options):
    """(dq, dk, dv[, dsink]) of sum(o * do), and do."""
    o, lse = flash_mlir.attention(q, k, v, return_lse=True, **options)
    do = draw(o.shape, o.dtype, 7) if do is None else do
    return flash_mlir.attention_backward(do, q, k, v, o, lse, deterministic=deterministic, **options), do


def check(q, k, v, tolerance=1e-4, do=None, sink=None, **options):
    """Every gradient along a few directions, at most `tolerance` of its length (or of 1, which terms that cancel have) off."""
    names = {FORWARD.get(n, n): x for n, x in options.items()}
    grads, do = gradients(q, k, v, do, **options, **({} if sink is None else dict(sink=sink)))
    at = [wide(x) for x in (q, k, v)] + ([] if sink is None else [wide(sink)])
    assert len(grads) == len(at)

    def loss(q, k, v, sink=None):
        exact = lambda x: x  # float64.attention rounds what it is given
        return (float64.attention(q, k, v, sink=sink, widen=exact, **names)[0] * wide(do)).sum()

    for number, (grad, x) in enumerate(zip(grads, at)):
        assert grad.shape == x.shape and np.isfinite(wide(grad)).all()
        for seed in range(3):
            direction, step = np.random.default_rng(seed).standard_normal(x.shape), 1e-4
            moved = [[y + side * step * direction if i == number else y for i, y in enumerate(at)] for side in (1, -1)]
            want = (loss(*moved[0]) - loss(*moved[1])) / (2 * step)
            got = (wide(grad) * direction).sum()
            assert abs(got - want) <= tolerance * (np.linalg.norm(wide(grad)) + 1), f"operand {number}: {got} for {want}"


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
def test_masks(mask):
    check(*inputs(sq=70, sk=150, d=16, dtype="f32"), **mask)
    check(*inputs(sq=150, sk=70, d=16, dtype="f32"), **mask)


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_types(dtype):
    check(*inputs(sq=70, sk=90, d=32, dv=64, dtype=dtype), tolerance=0.1, causal=True)


def test_scores():
    q, k, v = inputs(sq=70, sk=90, d=16, dtype="f32")
    check(q, k, v, softcap=2.0, causal=True)
    check(q, k, v, scale=0.7)
    check(q, k, v, sink=np.array([0.5, -1, 3, 8], np.float32), causal=True)
    check(q, k, v, sink=np.array([0.5, -1, 3, 8], np.float32), softcap=3.0, window=(30, 2))


def test_sinks_of_any_size():
    """One that no score comes near leaves all alone, the highest takes everything: whether a row has keys or none."""
    q, k, v = inputs(sq=70, sk=50, hq=len(SINKS), hkv=3, d=16, dtype="f32")
    got, do = gradients(q, k, v, causal=True, sink=SINKS)
    without, _ = gradients(q, k, v, do, causal=True)
    assert not got[3][np.abs(SINKS) > 1].any()
    assert np.allclose(got[0][:, :, SINKS < -1], without[0][:, :, SINKS < -1], atol=1e-6)
    assert not got[0][:, :, SINKS > 1].any()
    assert all(np.isfinite(x).all() for x in got)


@settings(max_examples=15, deadline=None)
@given(st.data())
def test_random_problems(data):
    pick = lambda low, high: data.draw(st.integers(low, high))
    hkv, group = pick(1, 2), pick(1, 4)
    q, k, v = inputs(pick(1, 2), pick(1, 140), pick(1, 140), hkv * group, hkv, 8 * pick(1, 3), 8 * pick(1, 3), "f32")
    options = dict(window=(pick(-1, 150), pick(-1, 150)), sink_tokens=pick(0, 70), softcap=float(pick(0, 1) * 3))
    if pick(0, 2) == 0:
        options["attention_chunk"] = pick(1, 90)
    sink = draw((hkv * group,), np.float32, 9) if pick(0, 1) else None
    check(q, k, v, sink=sink, **options)


def test_what_sees_and_is_seen_by_nothing_is_zero():
    q, k, v = inputs(sq=100, sk=30, d=16, dtype="f32")  # the first 70 rows see no key
    (dq, dk, dv), _ = gradients(q, k, v, causal=True)
    assert not dq[:, :70].any() and dq[:, 71:].all()
    q, k, v = inputs(sq=3, sk=200, d=16, dtype="f32")  # nobody sees the first keys
    (dq, dk, dv), _ = gradients(q, k, v, window=(10, 0))
    assert not dk[:, :187].any() and not dv[:, :187].any() and dv[:, 187:].all()
    for b, sq, sk in ((1, 0, 5), (1, 5, 0), (1, 0, 0), (0, 5, 5)):
        q, k, v = inputs(b, sq, sk, d=16, dtype="f32")
        sink = np.ones(4, np.float32)
        (dq, dk, dv, dsink), _ = gradients(q, k, v, sink=sink)
        assert not any(x.any() for x in (dq, dk, dv, dsink))
    sink = np.full(4, -np.inf, np.float32)  # rows without a key and without a sink
    q, k, v = inputs(sq=40, sk=7, d=16, dtype="f32")
    grads, _ = gradients(q, k, v, causal=True, sink=sink)
    assert all(np.isfinite(x).all() for x in grads) and not grads[0][:, :33].any() and not grads[3].any()


def test_large_scores_of_ragged_tiles():
    """exp(-lse) is infinite: what lies past the keys must not meet it."""
    q, k, v = inputs(sq=5, sk=70, d=16, dtype="f32")
    q[..., 0], k[..., 0] = -50, 50
    grads, _ = gradients(q, k, v)
    assert all(np.isfinite(x).all() for x in grads)


@pytest.mark.parametrize("options", [{}, dict(causal=True), dict(window=(60, 9)), dict(causal=True, sink_tokens=5)], ids=str)
def test_packed_is_each_sequence_alone(options):
    lengths = ((70, 130), (0, 9), (130, 70), (9, 0), (1, 1), (64, 64))
    parts = [inputs(1, sq, sk, 4, 2, 16, dtype="f32") for sq, sk in lengths]
    q, k, v = (np.concatenate([part[i][0] for part in parts]) for i in range(3))
    ends = [np.cumsum([0] + [pair[i] for pair in lengths], dtype=np.int32) for i in range(2)]
    do = draw(q.shape, q.dtype, 7)
    packed = dict(cu_seqlens_q=ends[0], cu_seqlens_k=ends[1])
    got, _ = gradients(q, k, v, do, **packed, **options)
    for n, part in enumerate(parts):
        rows = [slice(*ends[i][n : n + 2]) for i in range(2)]
        want, _ = gradients(*part, do=do[None, rows[0]], **options)
        for g, w, r in zip(got, want, (rows[0], rows[1], rows[1])):
            assert np.allclose(g[r], w[0], rtol=1e-5, atol=1e-6)


def test_only_rows_in_use_count():
    q, k, v = inputs(3, 80, 100, 4, 2, 16, dtype="f32")
    do = draw(q.shape, q.dtype, 7)
    used_q, used_k = np.array([80, 0, 33], np.int32), np.array([1, 50, 70], np.int32)
    for x, used in ((q, used_q), (do, used_q), (k, used_k), (v, used_k)):
        for b, n in enumerate(used):
            x[b, n:] = np.nan
    got, _ = gradients(q, k, v, do, seqused_q=used_q, seqused_k=used_k, causal=True)
    for b in range(3):
        cut = lambda x, used: x[b : b + 1, : used[b]]
        want, _ = gradients(cut(q, used_q), cut(k, used_k), cut(v, used_k), cut(do, used_q), causal=True)
        for g, w, used in zip(got, want, (used_q, used_k, used_k)):
            assert np.allclose(cut(g, used), w, rtol=1e-5, atol=1e-6)


def test_strides():
    q, k, v = inputs(2, 70, 90, 4, 2, 16, dtype="f32")
    want, do = gradients(q, k, v, causal=True)
    turned = lambda x: np.ascontiguousarray(x.swapaxes(1, 2)).swapaxes(1, 2)
    got, _ = gradients(turned(q), turned(k), turned(v), turned(do), causal=True)
    assert all(np.array_equal(g, w) for g, w in zip(got, want))
    for ones in (np.broadcast_to(np.float32(1), q.shape), np.broadcast_to(np.ones(16, np.float32), q.shape)):
        want, _ = gradients(q, k, v, np.ones(q.shape, np.float32))
        got, _ = gradients(q, k, v, ones)
        assert all(np.array_equal(g, w) for g, w in zip(got, want))


@pytest.mark.parametrize("options", [{}, dict(causal=True), dict(window=(40, 3)), dict(window=(9, 0), sink_tokens=70)], ids=str)
def test_same_bits_with_any_workers(options, monkeypatch):
    q, k, v = inputs(2, 300, 260, 4, 2, 16, dtype="f16")
    do = draw(q.shape, q.dtype, 7)
    seen = set()
    for workers in (1, 2, 5, 2, 5):
        monkeypatch.setattr(flash_mlir._api, "workers", lambda: workers)
        grads, _ = gradients(q, k, v, do, deterministic=True, **options)
        seen.add(b"".join(x.tobytes() for x in grads))
    assert len(seen) == 1


@pytest.mark.parametrize("shape, strides, address, copied", [
    ((2, 5, 3, 64), (960, 192, 64, 1), 256, False),
    ((2, 5, 3, 64), (0, 192, 64, 1), 256, True),  # expanded
    ((2, 5, 3, 64), (0, 0, 0, 0), 256, True),
    ((1, 5, 3, 64), (0, 192, 64, 1), 256, False),  # of one element
    ((2, 5, 3, 64), (1020, 204, 68, 1), 256, True),  # rows at multiples of 8 bytes
    ((2, 5, 3, 64), (960, 192, 64, 1), 258, True),
])
def test_do_is_copied_where_kernels_cannot_read_its_rows(monkeypatch, shape, strides, address, copied):
    class Cuda:
        device, ndim = types.SimpleNamespace(type="cuda"), len(shape)
        stride = lambda self, at=slice(None): strides[at]
        element_size, data_ptr = lambda self: 2, lambda self: address
        contiguous = lambda self: self if strides[0] == 960 else "copy"
        clone = lambda self: "copy"

    Cuda.shape = shape
    monkeypatch.setattr(_arrays, "is_torch", lambda x: True)
    x = Cuda()
    assert _arrays.with_rows(x) == ("copy" if copied else x)
