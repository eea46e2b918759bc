"""Packed, paged and appended sequences on the CPU, against float64 of each sequence alone."""
import float64
import numpy as np
import pytest

import flash_mlir
from flash_mlir import _api


def draw(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def i32(*values):
    return np.array(values, np.int32)


def close(got, want):
    np.testing.assert_allclose(got, want, atol=2e-5, rtol=1e-5)


def alone(q, k, v, **mask):
    """o [S, H, Dv] and lse [H, S] of one sequence."""
    o, lse = float64.attention(q[None], k[None], v[None], **mask)
    return o[0], lse[0]


def test_packed_sequences_with_empty_ones_and_tails():
    cu_q, cu_k, used_q, used_k = i32(0, 0, 5, 70, 70, 71), i32(0, 9, 9, 109, 110, 130), i32(0, 5, 60, 0, 1), i32(9, 0, 97, 1, 11)
    q, k, v = draw(75, 4, 32), draw(140, 2, 32, seed=1), draw(140, 2, 32, seed=2)
    for x, cu, used in ((q, cu_q, used_q), (k, cu_k, used_k), (v, cu_k, used_k)):
        for b in range(5):
            x[cu[b] + used[b] : cu[b + 1]] = np.nan
        x[cu[-1] :] = np.nan
    for extra in ({}, {"num_splits": 3}, {"pack_gqa": True}, {"pack_gqa": False}, {"max_seqlen_q": 65, "max_seqlen_k": 97}):
        out = np.full(q.shape, 7, np.float32)
        o, lse = flash_mlir.attention(q, k, v, causal=True, cu_seqlens_q=cu_q, cu_seqlens_k=cu_k, seqused_q=used_q, seqused_k=used_k, out=out, return_lse=True, **extra)
        assert o is out and lse.shape == (4, 75)
        for b in range(5):
            rows, keys = slice(cu_q[b], cu_q[b] + used_q[b]), slice(cu_k[b], cu_k[b] + used_k[b])
            want, wanted = alone(q[rows], k[keys], v[keys], causal=True)
            close(o[rows], want)
            close(lse[:, rows], wanted)
        assert (o[65:70] == 7).all() and (o[71:] == 7).all()  # rows out of use are left alone


@pytest.mark.parametrize("splits", [1, 3, 0])  # 0: each sequence's own
@pytest.mark.parametrize("tables", ["packed", "packed, used", "used"])
def test_rows_that_do_not_count_are_left_alone(monkeypatch, tables, splits):
    monkeypatch.setattr(_api, "workers", lambda: 12)  # so many that a long sequence alone leaves some idle
    keys = 4000  # many a part, where each sequence has its own number
    q, k, used_k = draw(16, 4, 32), draw(3, keys, 2, 32, seed=1), i32(keys, 3, 0)
    cu, used_q, longest = i32(0, 4, 4, 9), i32(2, 0, 5), 5
    if tables == "used":
        q, starts, counts = q[:15].reshape(3, longest, 4, 32), longest * np.arange(3), used_q
        rows = dict(seqused_q=used_q)
    else:
        starts, counts = cu[:3], used_q if "used" in tables else np.diff(cu)
        rows = dict(cu_seqlens_q=cu, max_seqlen_q=longest, **({"seqused_q": used_q} if "used" in tables else {}))
    call = flash_mlir.attention_with_kvcache(q, k, k, seqused_k=used_k, num_splits=1, **rows).reshape(-1, 4, 32)
    out = np.full(q.shape, 7, np.float32)
    o = flash_mlir.attention_with_kvcache(q, k, k, seqused_k=used_k, num_splits=splits, out=out, **rows).reshape(-1, 4, 32)
    if not splits:
        assert list(_api._calls.values())[-1].program.has_schedule
    counted = np.concatenate([np.arange(s, s + n) for s, n in zip(starts, counts)])
    close(o[counted], call[counted])
    assert (np.delete(o, counted, axis=0) == 7).all()


def test_pages_of_one_row_and_of_many():
    used, q = i32(0, 33, 7), draw(3, 2, 4, 32)
    for size in (1, 5, 64):
        per = -(-40 // size)
        order = np.random.default_rng(size).permutation(3 * per + 2)
        table = order[: 3 * per].reshape(3, per).astype(np.int32)
        pools = [np.full((3 * per + 2, size, 2, 32), np.nan, np.float32) for _ in range(2)]
        rows = draw(2, 3, 40, 2, 32, seed=size)
        for pool, all_rows in zip(pools, rows):
            for b in range(3):
                for r in range(used[b]):
                    pool[table[b, r // size], r % size] = all_rows[b, r]
                table[b, -(-used[b] // size) :] = -7
        o, lse = flash_mlir.attention(q, *pools, page_table=table, seqused_k=used, return_lse=True)
        for b in range(3):
            want, wanted = alone(q[b], rows[0][b, : used[b]], rows[1][b, : used[b]])
            close(o[b], want)
            close(lse[b], wanted)


def test_append_writes_the_caches_and_nothing_else():
    k, v, new = draw(3, 40, 2, 32), draw(3, 40, 2, 32, seed=1), draw(2, 2, 5, 2, 32, seed=2)
    before = k.copy(), v.copy()
    q, used, rows, pad = draw(2, 1, 4, 32, seed=3), i32(35, 0), i32(2, 0), i32(4, 0)
    o = flash_mlir.attention_with_kvcache(q, k, v, k_new=new[0], v_new=new[1], seqused_k=used, kv_batch_idx=rows, leftpad_k=pad)
    for b in range(2):
        for cache, old, fresh in zip((k, v), before, new):
            old[rows[b], used[b] : used[b] + 5] = fresh[b]
        keys = slice(pad[b], used[b] + 5)
        close(o[b], alone(q[b], k[rows[b], keys], v[rows[b], keys])[0])
    assert np.array_equal(k, before[0]) and np.array_equal(v, before[1])


def test_two_sequences_may_not_append_to_one_place():
    q, new, used = draw(2, 1, 4, 32), draw(2, 2, 1, 2, 32), i32(3, 4)
    k, v = draw(3, 8, 2, 32), draw(3, 8, 2, 32)
    append = lambda **more: flash_mlir.attention_with_kvcache(q, k, v, k_new=new[0], v_new=new[1], seqused_k=used, **more)
    with pytest.raises(ValueError, match="kv_batch_idx to name each row of the cache at most once"):
        append(kv_batch_idx=i32(1, 1))
    pages = np.array([[0, 1], [0, 2]], np.int32)  # of eight rows: both write into page 0
    with pytest.raises(ValueError, match="a page that k_new is written into"):
        append(page_table=pages)
    used = i32(8, 8)  # and here each into its own, behind a shared one
    append(page_table=pages)


def test_append_without_queries_still_appends():
    k, v, new = np.zeros((2, 8, 1, 32), np.float32), np.zeros((2, 8, 1, 32), np.float32), draw(2, 3, 1, 32)
    o = flash_mlir.attention_with_kvcache(draw(2, 0, 2, 32), k, v, k_new=new, v_new=new, seqused_k=i32(1, 5))
    assert o.shape == (2, 0, 2, 32)
    assert np.array_equal(k[0, 1:4], new[0]) and np.array_equal(v[1, 5:], new[1])


def rotated(x, at, cos, sin, interleaved):
    half, y = cos.shape[1], x.astype(np.float64)
    a, b = (slice(0, 2 * half, 2), slice(1, 2 * half, 2)) if interleaved else (slice(0, half), slice(half, 2 * half))
    c, s = cos[at][:, None].astype(np.float64), sin[at][:, None].astype(np.float64)
    first, second = y[..., a] * c - y[..., b] * s, y[..., a] * s + y[..., b] * c
    y[..., a], y[..., b] = first, second
    return y.astype(np.float32)


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("is_packed", [False, True])
def test_rotary(interleaved, causal, is_packed):
    k, v, new = draw(2, 40, 2, 32), draw(2, 40, 2, 32, seed=1), draw(2, 2, 5, 2, 32, seed=2)
    q, used, cos, sin = draw(2, 3, 4, 32, seed=3), i32(20, 0), draw(30, 12, seed=4), draw(30, 12, seed=5)
    before, kept = k.copy(), q.copy()
    call = dict(q=q.reshape(6, 4, 32), cu_seqlens_q=i32(0, 3, 6)) if is_packed else dict(q=q)
    o = flash_mlir.attention_with_kvcache(call.pop("q"), k, v, k_new=new[0], v_new=new[1], seqused_k=used, rotary_cos=cos, rotary_sin=sin,
                                          rotary_interleaved=interleaved, causal=causal, **call)
    o = o.reshape(2, 3, 4, 32)
    assert np.array_equal(q, kept)
    for b in range(2):
        turned = rotated(new[0, b], used[b] + np.arange(5), cos, sin, interleaved)
        close(k[b, used[b] : used[b] + 5], turned)
        assert np.array_equal(k[b, used[b] + 5 :], before[b, used[b] + 5 :])
        at = used[b] + (np.arange(3) if causal else np.zeros(3, int))
        close(o[b], alone(rotated(q[b], at, cos, sin, interleaved), k[b, : used[b] + 5], v[b, : used[b] + 5], causal=causal)[0])


def test_fixed_splits_give_the_same_bits_whatever_stands_beside():
    q, k, v = draw(40, 4, 32), draw(300, 2, 32, seed=1), draw(300, 2, 32, seed=2)
    run = lambda ends_q, ends_k: flash_mlir.attention(q[: ends_q[-1]], k[: ends_k[-1]], v[: ends_k[-1]], cu_seqlens_q=ends_q, cu_seqlens_k=ends_k, num_splits=4)
    one, many = run(i32(0, 5), i32(0, 150)), run(i32(0, 5, 5, 40), i32(0, 150, 151, 300))
    assert np.array_equal(one, many[:5])


def test_validate_false_skips_reading_the_tables():
    q, k, v = draw(8, 4, 32), draw(8, 2, 32), draw(8, 2, 32)
    call = dict(cu_seqlens_q=i32(0, 4, 8), cu_seqlens_k=i32(0, 4, 8))
    assert np.array_equal(flash_mlir.attention(q, k, v, validate=False, **call), flash_mlir.attention(q, k, v, validate=True, **call))
    with pytest.raises(ValueError, match="never to fall"):
        flash_mlir.attention(q, k, v, validate=True, **(call | {"cu_seqlens_k": i32(0, 5, 4)}))


def test_a_kernel_serves_all_tables():
    """Batch, lengths and pages are run-time values: equal kinds of calls share a program."""
    from flash_mlir import _cache

    q = draw(2, 1, 4, 32)
    for size, pages in ((4, 9), (8, 5)):
        pool, table = draw(pages, size, 2, 32), np.arange(4, dtype=np.int32).reshape(2, 2)
        flash_mlir.attention(q, pool, pool, page_table=table, seqused_k=i32(3, 2), num_splits=1, pack_gqa=False)
        programs = len(_cache._programs) if size == 4 else programs
    assert len(_cache._programs) == programs


def test_a_window_as_wide_as_all_sequences_is_none():
    from flash_mlir import _cache

    q, k, ends = draw(8, 4, 32), draw(8, 2, 32, seed=1), i32(0, 3, 8)
    o = flash_mlir.attention(q, k, k, cu_seqlens_q=ends, cu_seqlens_k=ends)
    programs = set(_cache._programs)
    assert np.array_equal(o, flash_mlir.attention(q, k, k, cu_seqlens_q=ends, cu_seqlens_k=ends, window=(7, 9)))
    assert set(_cache._programs) == programs


def test_offsets_past_2_to_the_31():
    """Page numbers past 2^20, and batch strides of 2^30; memory that nobody touches costs nothing."""
    size, width = 64, 32
    flat = np.zeros((2**20 + 40) * size * width, np.float16)
    pool, q, rows = flat.reshape(-1, size, 1, width), draw(2, 3, 2, width).astype(np.float16), draw(2, 2 * size, 1, width, seed=1).astype(np.float16)
    table = i32(2**20 + 39, 2**20 + 3, 7, 2**20 + 1).reshape(2, 2)
    pool[table] = rows.reshape(2, 2, size, 1, width)
    o, lse = flash_mlir.attention(q, pool, pool, page_table=table, seqused_k=i32(2 * size, size + 9), return_lse=True)
    for b, n in enumerate((2 * size, size + 9)):
        want, wanted = alone(q[b], rows[b, :n], rows[b, :n])
        np.testing.assert_allclose(o[b].astype(np.float64), want, atol=5e-3)
        close(lse[b], wanted)
    pool[table] = 0
    cache = np.lib.stride_tricks.as_strided(flat, (3, 20, 1, width), (2**31, 2 * width, 2 * width, 2))
    new = draw(3, 4, 1, width, seed=2).astype(np.float16)
    o = flash_mlir.attention_with_kvcache(np.concatenate((q, q[:1])), cache, cache, k_new=new, v_new=new, seqused_k=i32(0, 3, 16), leftpad_k=i32(0, 3, 16))
    for b in range(3):
        np.testing.assert_allclose(o[b].astype(np.float64), alone(q[b % 2], new[b], new[b])[0], atol=5e-3)


def test_tens_of_thousands_of_sequences():
    rng = np.random.default_rng(5)
    lengths_q, lengths_k = rng.integers(0, 4, 20000), rng.integers(0, 6, 20000)
    cu_q, cu_k = (np.concatenate(([0], np.cumsum(n))).astype(np.int32) for n in (lengths_q, lengths_k))
    q, k = draw(cu_q[-1], 2, 32), draw(cu_k[-1], 1, 32, seed=1)
    o = flash_mlir.attention(q, k, k, causal=True, cu_seqlens_q=cu_q, cu_seqlens_k=cu_k)
    for b in (0, *rng.integers(0, 20000, 300), 19999):
        close(o[cu_q[b] : cu_q[b + 1]], alone(q[cu_q[b] : cu_q[b + 1]], k[cu_k[b] : cu_k[b + 1]], k[cu_k[b] : cu_k[b + 1]], causal=True)[0])
