"""Attention on the CPU against float64."""
import threading

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flash_mlir
import float64

TYPES = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}
REL = {"f32": 1e-5, "f16": 5e-3, "bf16": 1.2e-2}


def draw(shape, dtype, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32).astype(dtype)


def inputs(b=1, sq=37, sk=75, hq=4, hkv=2, d=64, dv=None, dtype="bf16"):
    shapes = (b, sq, hq, d), (b, sk, hkv, d), (b, sk, hkv, dv or d)
    return [draw(shape, TYPES[dtype], seed) for seed, shape in enumerate(shapes)]


def agree(got, want, dtype):
    (o, lse), (wo, wlse) = got, want
    o = o.astype(np.float32).astype(np.float64)
    assert o.shape == wo.shape and lse.shape == wlse.shape
    assert np.isfinite(o).all()
    live = np.isfinite(wlse)
    assert np.array_equal(lse[~live], wlse[~live])
    assert np.allclose(lse[live], wlse[live], rtol=1e-6, atol=1e-4)
    error = np.linalg.norm(o - wo, axis=-1)
    allowed = 3 * REL[dtype] * np.linalg.norm(wo, axis=-1) + 0.1 * REL[dtype] * np.abs(wo).max(initial=0)
    assert (error <= allowed).all()


def check(q, k, v, dtype="bf16", **options):
    names = {"attention_chunk": "chunk"}
    same = {names.get(n, n): x for n, x in options.items() if n not in ("num_splits", "pack_gqa")}
    agree(flash_mlir.attention(q, k, v, return_lse=True, **options), float64.attention(q, k, v, **same), dtype)


MASKS = {
    "dense": {},
    "causal": dict(causal=True),
    "window": dict(window=(9, 5)),
    "left": dict(window=(20, -1)),
    "chunk": dict(attention_chunk=16),
    "sink tokens": dict(window=(7, 0), sink_tokens=3),
}


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
@pytest.mark.parametrize("dtype", TYPES)
def test_masks_and_types(mask, dtype):
    check(*inputs(dtype=dtype), dtype, **mask)


@st.composite
def problem(draw):
    """Few kernels (head sizes, masks), many sizes: compiling is what takes time."""
    size = st.integers(1, 150)
    kv, group = draw(st.integers(1, 2)), draw(st.sampled_from([1, 2, 3]))
    d, dv = draw(st.sampled_from([(64, 64), (40, 8)]))
    shape = dict(b=draw(st.integers(1, 2)), sq=draw(size), sk=draw(size), hq=kv * group, hkv=kv, d=d, dv=dv)
    return shape, draw(st.sampled_from(list(MASKS.values())))


@settings(max_examples=40, deadline=None, derandomize=True)
@given(problem())
def test_random_sizes(p):
    shape, mask = p
    check(*inputs(**shape), **mask)


@pytest.mark.parametrize("options", [dict(num_splits=3), dict(num_splits=7, causal=True), dict(pack_gqa=True), dict(pack_gqa=True, num_splits=2, causal=True)], ids=str)
def test_splits_and_packing_are_the_same_attention(options):
    check(*inputs(sq=5, sk=300, hq=6, hkv=2), **options)


def test_softcap_scale_and_sink():
    q, k, v = inputs()
    check(q, k, v, softcap=3.0, scale=0.5, causal=True)
    check(q, k, v, sink=np.array([0.5, -1, 2, 0], np.float32), window=(4, 0))

# Every size that f32 holds: below what is masked, past f32 as a power of two, and none or all of the denominator.
SINKS = np.array([0, *(sign * x for sign in (-1, 1) for x in (1e10, 1.5e29, 3e29, 8.7e29, 8.9e29, 1e30, 2e38, 2.4e38, 3.4e38, np.inf))], np.float32)


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # inf - inf, which float64 means to have
@pytest.mark.parametrize("options", [{}, dict(num_splits=3), dict(pack_gqa=True), dict(softcap=3.0)], ids=str)
def test_sinks_of_any_size(options):
    """Also of rows without a key, whose lse is the sink."""
    for sk in (75, 9, 0):
        check(*inputs(sq=12, sk=sk, hq=len(SINKS), hkv=3), sink=SINKS, causal=True, **options)


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("most, splits", [(2.0**27, 1), (-(2.0**27), 1), (2.0**16, 2), (-(2.0**16), 2)])
def test_scores_of_the_range_that_is_promised(dtype, most, splits):
    """All of a row's scores are the same number, just within the range: a mean of v, whatever rounding makes of scale * m."""
    for seed in range(8):
        scale = np.random.default_rng(seed).uniform(0.05, 0.25)
        q, k, v = inputs(sq=5, dtype=dtype)
        q[:] = 0.98 * np.sqrt(abs(most) / scale / 64)
        k[:] = np.sign(most) * q[0, 0, 0, 0]
        check(q, k, v, dtype, scale=scale, num_splits=splits)


def test_rows_without_keys():
    q, k, v = inputs(sq=9, sk=4)
    o, lse = flash_mlir.attention(q, k, v, causal=True, return_lse=True)
    assert not o[:, :5].any() and np.isneginf(lse[:, :, :5]).all() and np.isfinite(lse[:, :, 5:]).all()
    o, lse = flash_mlir.attention(q, k[:, :0], v[:, :0], return_lse=True)
    assert not o.any() and np.isneginf(lse).all()


def test_nothing_to_do():
    q, k, v = inputs()
    assert flash_mlir.attention(q[:, :0], k, v).shape == (1, 0, 4, 64)
    assert flash_mlir.attention(q[:0], k[:0], v[:0]).shape == (0, 37, 4, 64)
    assert flash_mlir.attention(q[:, :, :0], k, v).shape == (1, 37, 0, 64)


def test_strides_and_out():
    q, k, v = inputs(b=2)
    want = flash_mlir.attention(q, k, v)
    heads_first = [np.ascontiguousarray(x.swapaxes(1, 2)).swapaxes(1, 2) for x in (q, k, v)]
    assert np.array_equal(flash_mlir.attention(*heads_first), want)
    wide = np.full((2, 37, 4, 80), np.nan, q.dtype)
    out = wide[..., 8:72]
    assert flash_mlir.attention(q, k, v, out=out) is out
    assert np.array_equal(out, want)
    assert np.isnan(wide[..., :8].astype(np.float32)).all() and np.isnan(wide[..., 72:].astype(np.float32)).all()
    assert np.array_equal(flash_mlir.attention(q[:, ::-1], k, v), want[:, ::-1])
    assert np.array_equal(flash_mlir.attention(np.broadcast_to(q[:1], q.shape), k, v)[0], want[0])


def test_it_may_not_write_what_is_read_only():
    q, k, v = inputs()
    out = np.empty_like(q)
    out.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        flash_mlir.attention(q, k, v, out=out)


def test_threads_may_call_at_once():
    """First calls of the same and of different kernels, all at the same moment."""
    q, k, v = inputs(d=48, dv=48)
    want = [float64.attention(q, k, v, causal=c)[0] for c in (False, True)]
    results, start = {}, threading.Barrier(6)

    def work(at):
        start.wait()
        results[at] = flash_mlir.attention(q, k, v, causal=bool(at % 2))

    threads = [threading.Thread(target=work, args=(at,)) for at in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for at, o in results.items():
        assert np.abs(o.astype(np.float64) - want[at % 2]).max() < 0.05
    assert len(results) == 6
