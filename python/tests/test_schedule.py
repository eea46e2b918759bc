"""Sequences of different lengths with their own numbers of splits: the same results, metadata that is reused, and refused."""
import float64
import numpy as np
import pytest

import flash_mlir
from flash_mlir import _api

LONGEST, D = 4000, 32


@pytest.fixture(autouse=True)
def many_workers(monkeypatch):
    monkeypatch.setattr(_api, "workers", lambda: 12)  # so many that a long sequence alone leaves some idle


def draw(rng, *shape):
    return rng.normal(size=shape).astype(np.float32)


def ends(lengths):
    return np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)


def lengths_of(rng, batch):
    lengths = rng.integers(0, 300, batch).astype(np.int32)
    lengths[rng.integers(batch)], lengths[rng.integers(batch)] = LONGEST, 0
    return lengths


def last_program():
    return list(_api._calls.values())[-1].program


def cached(rng, batch=6, rows=1, heads=4, kv_heads=1, **call):
    q, k, v = draw(rng, batch, rows, heads, D), draw(rng, batch, LONGEST + 8, kv_heads, D), draw(rng, batch, LONGEST + 8, kv_heads, D)
    return (q, k, v), dict(seqused_k=lengths_of(rng, batch), **call)


def packed(rng, batch=6, heads=4, kv_heads=2, **call):
    lengths_q, lengths_k = rng.integers(0, 4, batch), lengths_of(rng, batch)
    total_q, total_k = int(lengths_q.sum()), int(lengths_k.sum())
    call.update(cu_seqlens_q=ends(lengths_q), cu_seqlens_k=ends(lengths_k), max_seqlen_q=4, max_seqlen_k=LONGEST)
    return (draw(rng, total_q, heads, D), draw(rng, total_k, kv_heads, D), draw(rng, total_k, kv_heads, D)), call


PROBLEMS = {
    "cached": lambda rng: cached(rng),
    "causal": lambda rng: cached(rng, rows=3, causal=True),
    "windows": lambda rng: cached(rng, rows=2, window=(2500, 0)),
    "sinks": lambda rng: cached(rng, sink=draw(rng, 4), kv_heads=2),
    "unpacked heads": lambda rng: cached(rng, heads=2, pack_gqa=False),
    "padded": lambda rng: cached(rng, leftpad_k=np.zeros(6, np.int32)),
    "packed": lambda rng: packed(rng),
    "packed and used": lambda rng: packed(rng, causal=True),
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_results_are_those_of_whole_sequences(name):
    for seed in range(3):
        _api._calls.clear()  # so that the last program is this one's
        arrays, call = PROBLEMS[name](np.random.default_rng(seed))
        if name == "packed and used":
            call["seqused_q"] = np.maximum(np.diff(call["cu_seqlens_q"]) - 1, 0).astype(np.int32)
        if name == "padded":
            call["leftpad_k"] = call["seqused_k"] // 3
        o, lse = flash_mlir.attention_with_kvcache(*arrays, return_lse=True, **call)
        assert last_program().has_schedule
        want, wanted = flash_mlir.attention_with_kvcache(*arrays, return_lse=True, num_splits=1, **call)
        rows = np.ones(arrays[0].shape[:-2], bool)
        if "seqused_q" in call:
            inside = [np.arange(n) < used for n, used in zip(np.diff(call["cu_seqlens_q"]), call["seqused_q"])]
            rows = np.concatenate(inside)
        np.testing.assert_allclose(o[rows], want[rows], atol=2e-5)
        np.testing.assert_allclose(np.moveaxis(lse, -2, -1)[rows], np.moveaxis(wanted, -2, -1)[rows], atol=1e-4)


def test_appended_rows_count():
    (q, k, v), call = cached(np.random.default_rng(1))
    new = draw(np.random.default_rng(2), 6, 5, 1, D)
    o = flash_mlir.attention_with_kvcache(q, k, v, k_new=new, v_new=new, **call)
    assert last_program().has_schedule
    for b, n in enumerate(call["seqused_k"] + 5):
        want, _ = float64.attention(q[b : b + 1], k[b : b + 1, :n], v[b : b + 1, :n])
        np.testing.assert_allclose(o[b], want[0], atol=2e-5)


def test_pages():
    rng = np.random.default_rng(1)
    used, size = np.array([LONGEST, 0, 33, 700], np.int32), 50
    pages = LONGEST // size
    table = rng.permutation(4 * pages).reshape(4, pages).astype(np.int32)
    pool = draw(rng, 4 * pages, size, 1, D)
    q = draw(rng, 4, 1, 4, D)
    o = flash_mlir.attention(q, pool, pool, page_table=table, seqused_k=used)
    assert last_program().has_schedule
    for b, n in enumerate(used):
        rows = pool[table[b]].reshape(-1, 1, D)[None, :n]
        np.testing.assert_allclose(o[b], float64.attention(q[b : b + 1], rows, rows)[0][0], atol=2e-5)


def test_a_program_follows_lengths_that_change_where_they_lie():
    (q, k, v), call = cached(np.random.default_rng(1))
    flash_mlir.attention(q, k, v, **call)
    replayed = last_program()
    for seed in range(2, 8):
        call["seqused_k"][:] = lengths_of(np.random.default_rng(seed), 6)
        o = flash_mlir.attention(q, k, v, **call)
        assert last_program() is replayed
        np.testing.assert_allclose(o, flash_mlir.attention(q, k, v, num_splits=1, **call), atol=2e-5)
        _api._calls.popitem()  # so that the last program is the first again


def test_the_most_work_comes_first_and_is_split_most():
    (q, k, v), call = cached(np.random.default_rng(1))
    call["seqused_k"][:] = 100, LONGEST, 0, 200, 100, 3000
    starts, order, splits, sections = flash_mlir.prepare(q, k, v, **call).table.tolist()
    assert order[:6] == [1, 5, 3, 0, 4, 2]
    assert splits[:6] == [1, 4, 1, 1, 1, 3]  # shares of 16 key tiles of 64
    assert starts == [0, 4, 7, 8, 9, 10, 11]
    assert sections[:6] == [1] * 6


@pytest.mark.parametrize("kind", [cached, packed])
def test_metadata_is_computed_once_and_reused(kind):
    arrays, call = kind(np.random.default_rng(1))
    metadata = flash_mlir.prepare(*arrays, **call)
    assert metadata.table.shape == (4, 7)
    for _ in range(2):
        assert np.array_equal(flash_mlir.attention(*arrays, scheduler_metadata=metadata, **call), flash_mlir.attention(*arrays, **call))
    others = [x + 1 for x in arrays]  # another layer
    assert np.array_equal(flash_mlir.attention(*others, scheduler_metadata=metadata, **call), flash_mlir.attention(*others, **call))


def test_metadata_of_another_problem_is_refused():
    (q, k, v), call = cached(np.random.default_rng(1))
    metadata = flash_mlir.prepare(q, k, v, **call)

    def refused(match, arrays=(q, k, v), **change):
        for _ in range(2):  # the second time the call is known
            with pytest.raises(ValueError, match=match):
                flash_mlir.attention(*arrays, scheduler_metadata=metadata, **(call | change))

    kernel = "of this call's types, head sizes, mask, splits and tables, it was prepared for others"
    refused(kernel, window=(100, 0))
    refused(kernel, num_splits=3)
    refused(kernel, arrays=(q[:, :, :2], k, v))
    more = [np.concatenate((x, x[:1])) for x in (q, k, v, call["seqused_k"])]
    refused(r"of this call's sequences \(7\), it was prepared for 6", arrays=more[:3], seqused_k=more[3])
    refused("of this call's k's shape", arrays=(q, k[:, :-1], v[:, :-1]))
    with pytest.raises(TypeError, match="scheduler_metadata to be what prepare returns, got ndarray"):
        flash_mlir.attention(q, k, v, scheduler_metadata=metadata.table, **call)
    with pytest.raises(TypeError, match="expected no out"):
        flash_mlir.prepare(q, k, v, out=q, **call)


def test_metadata_of_other_lengths_is_refused_where_the_call_validates():
    (q, k, v), call = cached(np.random.default_rng(1))
    metadata = flash_mlir.prepare(q, k, v, **call)
    call["seqused_k"][:] = LONGEST // 2
    with pytest.raises(ValueError, match="of the present lengths, these have changed since; call prepare again"):
        flash_mlir.attention(q, k, v, scheduler_metadata=metadata, **call)
    o = flash_mlir.attention(q, k, v, scheduler_metadata=metadata, validate=False, **call)  # other shares, and still right
    np.testing.assert_allclose(o, flash_mlir.attention(q, k, v, num_splits=1, **call), atol=2e-5)


def test_where_nothing_is_scheduled_metadata_holds_nothing():
    (q, k, v), call = cached(np.random.default_rng(1), num_splits=2)
    metadata = flash_mlir.prepare(q, k, v, **call)
    assert metadata.table is None
    assert np.array_equal(flash_mlir.attention(q, k, v, scheduler_metadata=metadata, **call), flash_mlir.attention(q, k, v, **call))
