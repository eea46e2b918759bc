"""Bad arguments get a sentence that names the operand and both values, before anything is compiled."""
import sys

import ml_dtypes
import numpy as np
import pytest

import flash_mlir
from played_torch import Played


def array(*shape, dtype=np.float16):
    return np.zeros(shape, dtype)


def dense():
    return dict(q=array(2, 8, 4, 64), k=array(2, 16, 2, 64), v=array(2, 16, 2, 64))


def packed():
    ends = np.array([0, 4, 8], np.int32)
    return dict(q=array(8, 4, 64), k=array(8, 2, 64), v=array(8, 2, 64), cu_seqlens_q=ends, cu_seqlens_k=ends)


def i32(*values):
    return np.array(values, np.int32)


REFUSED = [
    ("k's head size", dense, dict(k=array(2, 16, 2, 32)), ValueError, ["k's head size (32)", "q's (64)"]),
    ("v's length", dense, dict(v=array(2, 9, 2, 64)), ValueError, ["v's length (9)", "k's (16)"]),
    ("v's heads", dense, dict(v=array(2, 16, 1, 64)), ValueError, ["v's heads (1)", "k's (2)"]),
    ("batch", dense, dict(k=array(3, 16, 2, 64), v=array(3, 16, 2, 64)), ValueError, ["k's batch (3)", "q's (2)"]),
    ("heads", dense, dict(q=array(2, 8, 3, 64)), ValueError, ["(3)", "(2)"]),
    ("no heads", dense, dict(k=array(2, 16, 0, 64), v=array(2, 16, 0, 64)), ValueError, ["k and v", "0"]),
    ("rank", dense, dict(q=array(8, 4, 64)), ValueError, ["q of rank 4", "rank 3", "come with cu_seqlens_q"]),
    ("element types", dense, dict(k=array(2, 16, 2, 64, dtype=np.float32)), TypeError, ["k's element type (f32)", "q's (f16)"]),
    ("element type", dense, dict(q=array(2, 8, 4, 64, dtype=np.int8)), TypeError, ["q's element type", "int8"]),
    ("byte order", dense, dict(q=array(2, 8, 4, 64, dtype=">f2")), ValueError, ["q", "byte order"]),
    ("not an array", dense, dict(q=[1, 2]), TypeError, ["q", "list"]),
    ("head size 12", dense, dict(q=array(1, 4, 1, 12), k=array(1, 4, 1, 12), v=array(1, 4, 1, 12)), ValueError, ["12"]),
    ("head size 264", dense, dict(q=array(1, 4, 1, 264), k=array(1, 4, 1, 264), v=array(1, 4, 1, 264)), ValueError, ["264"]),
    ("strided rows", dense, dict(q=array(2, 8, 4, 128)[..., ::2]), ValueError, ["q's last dimension", "contiguous", "2"]),
    ("window", dense, dict(window=(-3, 0)), ValueError, ["window", "-3"]),
    ("window's form", dense, dict(window=5), TypeError, ["window", "5"]),
    ("causal and right", dense, dict(causal=True, window=(-1, 3)), ValueError, ["causal", "3"]),
    ("chunk", dense, dict(attention_chunk=-1), ValueError, ["chunk", "-1"]),
    ("sink tokens", dense, dict(sink_tokens=-1), ValueError, ["sink", "-1"]),
    ("causal's type", dense, dict(causal="yes"), TypeError, ["causal", "str"]),
    ("softcap", dense, dict(softcap=-1.0), ValueError, ["softcap", "-1"]),
    ("scale 0", dense, dict(scale=0.0), ValueError, ["scale", "0"]),
    ("scale NaN", dense, dict(scale=float("nan")), ValueError, ["scale", "nan"]),
    ("scale past f32", dense, dict(scale=1e300), ValueError, ["scale", "1e+300"]),
    ("scale that hides nothing", dense, dict(scale=1e-30), ValueError, ["scale", "1e-30"]),
    ("softcap past f32", dense, dict(softcap=1e300), ValueError, ["softcap", "1e+300"]),
    ("softcap that rounds scores", dense, dict(softcap=1e4), ValueError, ["softcap", "1024", "10000"]),
    ("softcap that is 0 in f32", dense, dict(softcap=5e-324), ValueError, ["softcap", "2^-64", "5e-324"]),
    ("softcap past any float", dense, dict(softcap=10**400), ValueError, ["softcap", "401 digits"]),
    ("scale's type", dense, dict(scale="1"), TypeError, ["scale", "str"]),
    ("splits", dense, dict(num_splits=-1), ValueError, ["num_splits", "-1"]),
    ("splits' type", dense, dict(num_splits=1.5), TypeError, ["num_splits", "float"]),
    ("sink's length", dense, dict(sink=np.zeros(3, np.float32)), ValueError, ["sink", "4", "3"]),
    ("sink's type", dense, dict(sink=np.zeros(4)), TypeError, ["sink", "float64"]),
    ("out's shape", dense, dict(out=array(2, 8, 4, 32)), ValueError, ["out's shape", "32", "64"]),
    ("out's type", dense, dict(out=array(2, 8, 4, 64, dtype=np.float32)), TypeError, ["out's element type", "f16", "float32"]),
    ("out overlaps itself", dense, dict(out=np.lib.stride_tricks.as_strided(array(8, 4, 64), (2, 8, 4, 64), (0, 512, 128, 2))), ValueError, ["out", "apart"]),
    ("target", dense, dict(target="sm_42"), ValueError, ["sm_42"]),
    ("target without arrays there", dense, dict(target="sm_90a"), ValueError, ["sm_90a", "cpu"]),
    ("unknown argument", dense, dict(causl=True), TypeError, ["causl"]),
    ("descale without f8", dense, dict(q_descale=np.ones((2, 2), np.float32)), ValueError, ["q_descale", "f8"]),
    ("cu_seqlens start", packed, dict(cu_seqlens_q=i32(1, 4, 8)), ValueError, ["cu_seqlens_q", "start at 0", "1"]),
    ("cu_seqlens falls", packed, dict(cu_seqlens_k=i32(0, 5, 4)), ValueError, ["cu_seqlens_k", "4 after 5"]),
    ("cu_seqlens past the end", packed, dict(cu_seqlens_q=i32(0, 4, 9)), ValueError, ["cu_seqlens_q", "9", "8"]),
    ("cu_seqlens length", packed, dict(cu_seqlens_k=i32(0, 4, 6, 8)), ValueError, ["cu_seqlens_k", "(4)", "(3)"]),
    ("cu_seqlens type", packed, dict(cu_seqlens_q=np.array([0, 4, 8])), TypeError, ["cu_seqlens_q", "int32", "int64"]),
    ("only one cu_seqlens", packed, dict(cu_seqlens_k=None, k=array(2, 8, 2, 64), v=array(2, 8, 2, 64)), ValueError, ["cu_seqlens_k", "cu_seqlens_q"]),
    ("a bad mask of packed sequences", packed, dict(window=(-3, 0)), ValueError, ["-3"]),
    ("seqused", dense, dict(seqused_k=i32(16, 17)), ValueError, ["seqused_k", "17", "16"]),
    ("seqused's length", dense, dict(seqused_q=i32(8)), ValueError, ["seqused_q", "2", "1"]),
    ("pages without lengths", dense, dict(page_table=np.zeros((2, 1), np.int32)), ValueError, ["page_table", "seqused_k"]),
    ("page table's batch", dense, dict(page_table=np.zeros((3, 1), np.int32), seqused_k=i32(1, 1)), ValueError, ["page_table's batch (3)", "(2)"]),
    ("a length too long", dense, dict(max_seqlen_q=-1), ValueError, ["max_seqlen_q", "-1"]),
]


@pytest.mark.parametrize("base, change, error, words", [r[1:] for r in REFUSED], ids=[r[0] for r in REFUSED])
def test_refused(base, change, error, words):
    call = base() | change
    with pytest.raises(error) as caught:
        flash_mlir.attention(call.pop("q"), call.pop("k"), call.pop("v"), **call)
    assert caught.type is error
    missing = [w for w in words if w not in str(caught.value)]
    assert not missing, caught.value


def test_sentences_are_lower_case_without_full_stop():
    for _, base, change, error, _ in REFUSED:
        call = base() | change
        if "causl" in call:  # Python's own sentence
            continue
        with pytest.raises(error) as caught:
            flash_mlir.attention(call.pop("q"), call.pop("k"), call.pop("v"), **call)
        assert str(caught.value)[0].islower() and not str(caught.value).endswith("."), caught.value


def cached(**change):
    return dict(q=array(2, 3, 4, 64), k_cache=array(2, 16, 2, 64), v_cache=array(2, 16, 2, 64), k_new=array(2, 1, 2, 64), v_new=array(2, 1, 2, 64),
                seqused_k=i32(4, 4)) | change


def paged(**change):
    return dict(q=array(2, 3, 4, 64), k_cache=array(5, 8, 2, 64), v_cache=array(5, 8, 2, 64), page_table=np.array([[3, 1], [4, -1]], np.int32), seqused_k=i32(9, 8)) | change


CACHE_REFUSED = [
    ("half a pair", cached(v_new=None), ["v_new besides k_new"]),
    ("head size", cached(k_new=array(2, 1, 2, 32)), ["k_new's head size (32)"]),
    ("length", cached(v_new=array(2, 3, 2, 64)), ["v_new's length (3)", "k_new's (1)"]),
    ("no lengths", cached(seqused_k=None), ["seqused_k besides k_new"]),
    ("no sine", cached(rotary_cos=array(99, 32)), ["rotary_sin besides rotary_cos"]),
    ("nothing to turn", cached(k_new=None, v_new=None, rotary_cos=array(99, 32), rotary_sin=array(99, 32)), ["k_new besides rotary_cos"]),
    ("too much to turn", cached(rotary_cos=array(99, 40), rotary_sin=array(99, 40)), ["rotary_cos", "(64)", "80"]),
    ("too few positions", cached(rotary_cos=array(4, 32), rotary_sin=array(4, 32)), ["rotary_cos", "5", "4"]),
    ("too few positions for q", cached(rotary_cos=array(6, 32), rotary_sin=array(6, 32), causal=True), ["rotary_cos", "7", "6"]),
    ("padding's length", cached(leftpad_k=i32(1, 2, 3)), ["leftpad_k", "2", "3"]),
    ("padding", cached(leftpad_k=i32(0, 5)), ["leftpad_k", "(4)", "5"]),
    ("no room", cached(seqused_k=i32(4, 16)), ["room", "1", "16"]),
    ("rows", cached(kv_batch_idx=i32(1, 2)), ["kv_batch_idx", "2"]),
    ("rows below 0", cached(kv_batch_idx=i32(-1, 0)), ["kv_batch_idx", "-1"]),
    ("batch", cached(q=array(3, 3, 4, 64)), ["k's batch (2)", "q's (3)"]),
    ("no page", paged(page_table=np.array([[3, 5], [4, -1]], np.int32)), ["page_table", "4", "5"]),
    ("page below 0", paged(seqused_k=i32(9, 9)), ["page_table", "-1"]),
    ("past the table", paged(seqused_k=i32(17, 1)), ["seqused_k", "(16)", "17"]),
    ("two kinds of keys", paged(cu_seqlens_k=i32(0, 1, 2)), ["cu_seqlens_k or page_table"]),
    ("a bound too small", paged(max_seqlen_k=8), ["max_seqlen_k", "8", "9"]),
    ("a cache of one row for all", cached(v_cache=np.lib.stride_tricks.as_strided(array(16, 2, 64), (2, 16, 2, 64), (0, 256, 128, 2))), ["v's elements", "apart", "[0, 128, 64, 1]"]),
    ("packed over a cache", cached(q=array(5, 4, 64), cu_seqlens_q=i32(0, 1, 2, 5)), ["k's batch (2)", "q's (3)"]),
]


@pytest.mark.parametrize("call, words", [r[1:] for r in CACHE_REFUSED], ids=[r[0] for r in CACHE_REFUSED])
def test_kvcache_refuses(call, words):
    call = {name: x for name, x in call.items() if x is not None}
    with pytest.raises(ValueError) as caught:
        flash_mlir.attention_with_kvcache(call.pop("q"), call.pop("k_cache"), call.pop("v_cache"), **call)
    assert not [w for w in words if w not in str(caught.value)], caught.value


def test_a_read_only_cache_takes_no_rows():
    call = cached()
    call["v_cache"].flags.writeable = False
    with pytest.raises(ValueError, match="v to be writable"):
        flash_mlir.attention_with_kvcache(call.pop("q"), call.pop("k_cache"), call.pop("v_cache"), **call)


def test_keys_and_values_are_not_written_into_one_cache():
    call = cached(v_cache=None)
    q, cache, _ = (call.pop(name) for name in ("q", "k_cache", "v_cache"))
    run = lambda **more: flash_mlir.attention_with_kvcache(q, cache, cache, **call | more)
    with pytest.raises(ValueError, match="k and v to have memory of their own"):
        run()
    run(v_new=call["k_new"])  # the same rows
    with pytest.raises(ValueError, match="k and v to have memory of their own"):  # of which only keys are turned
        run(v_new=call["k_new"], rotary_cos=array(99, 32), rotary_sin=array(99, 32))
    run(k_new=array(2, 0, 2, 64), v_new=array(2, 0, 2, 64))


def test_bounds_of_lengths_are_any_integers():
    call = packed() | dict(max_seqlen_q=np.int64(4), max_seqlen_k=np.int32(4))
    flash_mlir.attention(call.pop("q"), call.pop("k"), call.pop("v"), **call)


def test_backward_refuses():
    q, k, v = dense().values()
    lse = np.zeros((2, 4, 8), np.float32)
    with pytest.raises(ValueError, match="arrays that target sm_90a can reach"):
        flash_mlir.attention_backward(q, q, k, v, q, lse, causal=True, target="sm_90a")
    with pytest.raises(TypeError, match="deterministic"):
        flash_mlir.attention_backward(q, q, k, v, q, lse, deterministic="yes")
    with pytest.raises(TypeError, match="do's element type"):
        flash_mlir.attention_backward(q.astype(np.float32), q, k, v, q, lse)
    with pytest.raises(ValueError, match="lse's shape"):
        flash_mlir.attention_backward(q, q, k, v, q, lse[:, :, :4])
    with pytest.raises(ValueError, match="do's shape"):
        flash_mlir.attention_backward(q[:, :4], q, k, v, q, lse)
    x, wide = np.ones((1, 5, 2, 64), ml_dtypes.float8_e4m3fn), np.ones((1, 5, 2, 64), ml_dtypes.bfloat16)
    with pytest.raises(NotImplementedError, match="f8e4m3 is not built"):  # o and do of which are bf16
        flash_mlir.attention_backward(wide, x, x, x, wide, np.ones((1, 2, 5), np.float32))


def test_merge_refuses():
    o, lse = array(2, 8, 4, 64), np.zeros((2, 4, 8), np.float32)
    for change, error, words in [
        (dict(o2=o[:, :4]), ValueError, "o2's shape"),
        (dict(lse2=lse[:, :2]), ValueError, "lse2's shape"),
        (dict(o1=o[0, 0]), ValueError, "o1 of rank 4"),
        (dict(o2=array(2, 8, 4, 64, dtype=np.float32)), ValueError, "o2's element type"),
        (dict(lse1=lse.astype(np.float64)), TypeError, "lse1's element type"),
        (dict(o1=array(2, 8, 4, 12), o2=array(2, 8, 4, 12)), ValueError, "12"),
        (dict(target="sm_90a"), ValueError, "sm_90a"),
    ]:
        with pytest.raises(error, match=words):
            flash_mlir.merge(**(dict(o1=o, lse1=lse, o2=o, lse2=lse) | change))


@pytest.mark.parametrize("name", ["o1", "lse1", "o2", "lse2"])
def test_merge_takes_arrays_of_one_kind(monkeypatch, name):
    monkeypatch.setitem(sys.modules, "torch", played := Played())
    arrays = dict(o1=array(2, 8, 4, 64), lse1=np.zeros((2, 4, 8), np.float32))
    arrays |= dict(o2=arrays["o1"], lse2=arrays["lse1"])
    with pytest.raises(TypeError, match="o1, lse1, o2, lse2 all to be NumPy arrays or all PyTorch tensors"):
        flash_mlir.merge(**arrays | {name: played.from_numpy(arrays[name])})


@pytest.mark.parametrize("name", ["q", "k", "v"])
def test_out_may_not_be_what_is_read(name):
    arrays = {n: array(2, 8, 4, 64) for n in "qkv"}
    with pytest.raises(ValueError, match=f"memory of its own, it shares some with {name}"):
        flash_mlir.attention(**arrays, out=arrays[name])
    rows = array(2, 12, 4, 64)
    with pytest.raises(ValueError, match=f"memory of its own, it shares some with {name}"):
        flash_mlir.attention(**arrays | {name: rows[:, :8]}, out=rows[:, 4:])
    flash_mlir.attention(**arrays | {name: rows[:, 0:8]}, out=array(2, 8, 4, 128)[..., :64])
    columns = array(2, 8, 4, 128)  # side by side
    flash_mlir.attention(**arrays | {name: columns[..., :64]}, out=columns[..., 64:])
    empty = array(0, 8, 4, 64)
    flash_mlir.attention(empty, empty, empty, out=empty)
