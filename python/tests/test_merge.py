"""merge: attention over disjoint sets of keys, joined; its laws."""
import float64
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flash_mlir


@st.composite
def parts(draw):
    """Three parts (o, lse) of one shape; some rows of each have seen no key."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    b, s, h = draw(st.integers(1, 2)), draw(st.integers(1, 70)), draw(st.integers(1, 3))
    packed, spread = draw(st.booleans()), draw(st.sampled_from([1.0, 30.0, 1000.0]))
    shape, lse_shape = ((s, h, 32), (h, s)) if packed else ((b, s, h, 32), (b, h, s))
    made = []
    for _ in range(3):
        lse = (spread * rng.normal(size=lse_shape)).astype(np.float32)
        lse[rng.random(lse_shape) < 0.2] = -np.inf
        o = rng.normal(size=shape).astype(np.float32)
        o[np.isneginf(np.swapaxes(lse, -1, -2))] = 0
        made.append((o, lse))
    return made


def alike(x, y):
    weights = np.spacing(np.abs(y[1], where=np.isfinite(y[1]), out=np.ones_like(y[1])).max())  # move with what lse is rounded by
    np.testing.assert_allclose(x[0], y[0], atol=2e-6 + 4 * weights, rtol=1e-5)
    np.testing.assert_allclose(x[1], y[1], atol=1e-5, rtol=1e-6)


def merge(x, y):
    return flash_mlir.merge(*x, *y)


@settings(max_examples=60, deadline=None)
@given(parts())
def test_laws(three):
    a, b, c = three
    alike(merge(a, b), merge(b, a))
    alike(merge(merge(a, b), c), merge(a, merge(b, c)))
    nothing = np.zeros_like(a[0]), np.full_like(a[1], -np.inf)
    for joined in (merge(a, nothing), merge(nothing, a)):
        assert all(np.array_equal(x, y) for x, y in zip(joined, a))
    twice = merge(a, a)
    alike(twice, (a[0], a[1] + np.float32(np.log(2))))


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32])
def test_halves_of_the_keys(dtype):
    rng = np.random.default_rng(3)
    q, k, v = (rng.normal(size=(2, n, h, 64)).astype(np.float32).astype(dtype) for n, h in ((5, 4), (90, 2), (90, 2)))
    halves = [flash_mlir.attention(q, k[:, part].copy(), v[:, part].copy(), return_lse=True) for part in (slice(0, 33), slice(33, 90))]
    o, lse = merge(*halves)
    want, wanted = float64.attention(q, k, v)
    assert o.dtype == dtype
    np.testing.assert_allclose(o.astype(np.float64), want, atol={np.float32: 1e-5}.get(dtype, 2e-2))
    np.testing.assert_allclose(lse, wanted, atol=1e-4)


def test_strides_wide_rows_and_no_rows():
    rng = np.random.default_rng(4)
    o, lse = rng.normal(size=(2, 3, 7, 512)).astype(np.float32), rng.normal(size=(2, 3, 7)).astype(np.float32)
    flipped = o.swapaxes(1, 2)  # three heads of seven rows
    joined = flash_mlir.merge(flipped, lse, flipped, lse)
    np.testing.assert_allclose(joined[0], flipped, rtol=1e-6)
    empty = flash_mlir.merge(flipped[:0], lse[:0], flipped[:0], lse[:0])
    assert empty[0].shape == (0, 7, 3, 512) and empty[1].shape == (0, 3, 7)


def test_a_head_size_that_is_not_built_is_said_of_o1():
    o, lse = np.zeros((1, 2, 2, 1000), np.float32), np.zeros((1, 2, 2), np.float32)
    with pytest.raises(ValueError, match=r"expected o1's head size \(1000\)"):
        flash_mlir.merge(o, lse, o, lse)
