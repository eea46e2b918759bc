"""The plan in words and as data."""
import ctypes
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flash_mlir
from flash_mlir import _api, _library

SHAPES = ((4, 4096, 16, 128), (4, 4096, 4, 128), (4, 4096, 4, 128))


def test_text_names_the_decisions_and_why():
    text = flash_mlir.explain(*SHAPES, causal=True)
    for word in ("sm_90a", "causal", "128 queries x 128 keys", "of 232448 bytes", "because", "waves"):
        assert word in text


@pytest.mark.parametrize("batch, queries, keys, count, why", [
    (1, 200000, 200000, 2, "outgrow the L2 cache"),
    (1, 4096, 4096, 1, "tiles fill the SMs"),
    (1, 256, 65536, 4, "tiles alone leave SMs idle"),
    (1, 1, 65536, 8, "reading keys takes all time"),
])
def test_splits_are_for_a_reason(batch, queries, keys, count, why):
    splits = flash_mlir.explain((batch, queries, 16, 128), *[(batch, keys, 16, 128)] * 2, json=True)["splits"]
    assert splits["count"] == count and why in splits["why"]


def test_json_is_the_same_plan():
    plan = flash_mlir.explain(*SHAPES, causal=True, json=True)
    assert isinstance(plan, dict) and plan
    assert "128" in str(plan)


def test_a_field_by_hand_is_kept():
    by_hand = flash_mlir.explain(*SHAPES, causal=True, plan="#flash.plan<tile = [128, 64]>")
    assert "128 queries x 64 keys" in by_hand and "set by hand" in by_hand


@pytest.mark.parametrize("plan", ["tile = [128, 64]", " #flash.plan<tile = [128, 64]>", "tile = [128, 64], why = {tile = \"set by hand\"}"])
def test_a_plan_is_read_with_or_without_its_name(plan):
    assert flash_mlir.explain(*SHAPES, plan=plan) == flash_mlir.explain(*SHAPES, plan="#flash.plan<tile = [128, 64]>")


def test_a_plan_that_does_not_fit_says_by_how_much():
    with pytest.raises(ValueError, match="232448"):
        flash_mlir.explain(*SHAPES, plan="#flash.plan<tile = [128, 128], stages = 9>")


@pytest.mark.parametrize("plan, words", [("#flash.plan<tiles = 1>", "tiles"), ("nonsense", "nonsense"), ('#flash.plan<order = "odd">', "odd"), (f'#flash.plan<why = {{a = "{"]" * 9999}"}}, tile = {"[" * 9999}', "brackets"), (f"#flash.plan<a = affine_map<(d) -> ({'-' * 99999}d)>>", "more text")])
def test_a_plan_that_is_none(plan, words):
    with pytest.raises(ValueError, match=words):
        flash_mlir.explain(*SHAPES, plan=plan)


@pytest.mark.parametrize("target", ("sm_90a", "sm_80"))
@pytest.mark.parametrize("d, causal, deterministic, sink", [(64, True, False, True), (40, False, False, False), (128, True, True, False), (256, False, False, True)])
def test_gradients_launch_what_is_explained(target, d, causal, deterministic, sink):
    call = dict(causal=causal, sink=sink, target=target, backward=True, deterministic=deterministic)
    shapes = ((2, 300, 8, d), (2, 500, 2, d), (2, 500, 2, d))
    plan = flash_mlir.explain(*shapes, json=True, **call)
    kernels = json.loads(flash_mlir.compile(*shapes, **call).text("metadata"))["kernels"]
    assert [(k["op"], k["threads"]) for k in kernels] == [(k["op"], k["threads"]) for k in plan["kernels"]]
    assert next(k for k in kernels if k["op"] == "attention_backward")["shared_bytes"] <= plan["shared_bytes"]["used"]
    assert plan["sum_of_dq"]["ordered"] == deterministic and ("turns" in plan["workspace"]["parts"]) == deterministic
    text = flash_mlir.explain(*shapes, **call)
    assert f"workspace   {plan['workspace']['bytes']} bytes" in text and all(f"{k['op']}: {k['blocks']} blocks of {k['threads']} threads" in text for k in plan["kernels"])


def test_arrays_and_shapes_are_planned_alike():
    arrays = [np.zeros(shape, np.float16) for shape in ((1, 8, 4, 64), (1, 8, 2, 64), (1, 8, 2, 64))]
    assert flash_mlir.explain(*arrays) == flash_mlir.explain(*(a.shape for a in arrays), element="f16", target="cpu")


def test_refusals():
    with pytest.raises(ValueError, match="k's head size"):
        flash_mlir.explain(SHAPES[0], (4, 4096, 4, 64), SHAPES[2])
    with pytest.raises(ValueError, match="sm_86 has 101376"):
        flash_mlir.explain(*SHAPES, target="sm_86", plan="#flash.plan<stages = 5>")
    with pytest.raises(NotImplementedError, match="f8"):
        flash_mlir.explain(*SHAPES, element="f8e4m3")
    with pytest.raises(ValueError, match="f32"):
        flash_mlir.explain(*SHAPES, element="f32")


FLAGS = "in_step", "ordered", "own_dv", "alternate", "late_v", "late_dp", "overlap", "defer_max", "q_in_regs", "early_wait", "ping_pong", "exact_counts", "stealing", "multicast", "persistent", "pack_gqa"
FIELDS = {
    "tile": [[64, 32], [64, 64], [64, 96], [128, 32], [128, 48], [128, 64], [128, 128], [192, 80], [256, 64], [16, 8]],
    "stages": [1, 2, 3, 4],
    "split_by": ['"rows"', '"columns"'],
    "warps": [1, 3, 4, 8, 16],
    "consumers": [1, 2, 3, 4],
    "registers": [[255, 255], [168, 168], [24, 240], [32, 160]],
    "splits": [1, 3],
    "order": ['"single"', '"static"', '"dynamic"', '"varlen_dynamic"'],
    "transfer": ['"tma"', '"gather"'],
    **{flag: ["false", "true"] for flag in FLAGS},
}
HEADS = [(64, 64), (96, 96), (128, 128), (192, 128), (256, 256), (64, 256), (64, 512), (40, 72)]
MASKS = [{}, dict(causal=True), dict(window=(100, 0)), dict(causal=True, attention_chunk=128)]
fields = st.sampled_from(list(FIELDS)).flatmap(lambda field: st.tuples(st.just(field), st.sampled_from(FIELDS[field])))


def test_what_gradients_do_not_have_is_refused():
    for call in (dict(num_splits=2), dict(pack_gqa=True), dict(pack_gqa=False)):
        with pytest.raises(ValueError, match="num_splits and pack_gqa are attention's, gradients have neither; leave them out"):
            flash_mlir.explain(*SHAPES, backward=True, **call)
    with pytest.raises(ValueError, match="deterministic is of gradients"):
        flash_mlir.explain(*SHAPES, deterministic=True)


def test_gradients_say_why_warps_are_in_step_and_what_is_divided():
    shapes = [(2, 1024, 8, 96)] * 3
    text = flash_mlir.explain(*shapes, backward=True)
    assert "because: not a producer and consumers: expected consumers to divide dQ" in text.replace("\n", " ")
    assert "the copy engine adds dQ" not in text
    assert "consumers to divide dQ" in flash_mlir.explain(*shapes, backward=True, json=True)["tile"]["why_in_step"]
    assert flash_mlir.explain(*[(2, 1024, 8, 64)] * 3, backward=True, json=True)["tile"]["split_by"] == "keys"


@settings(max_examples=120, deadline=None, derandomize=True)
@given(st.booleans(), st.sampled_from(["sm_80", "sm_86", "sm_89", "sm_90a", "cpu"]), st.sampled_from(HEADS), st.sampled_from([1, 300]), st.sampled_from([1, 2]), st.sampled_from(MASKS),
       st.lists(fields, max_size=4, unique_by=lambda field: field[0]))
def test_a_plan_that_explain_accepts_compiles(backward, target, head, queries, group, mask, fields):
    plan = "#flash.plan<" + ", ".join(f"{field} = {value}" for field, value in fields) + ">"
    shapes = (2, queries, 2 * group, head[0]), (2, 400, 2, head[0]), (2, 400, 2, head[1])
    options = dict(mask, plan=plan, target=target)
    try:
        flash_mlir.explain(*shapes, backward=backward, **options)
    except (ValueError, NotImplementedError) as e:
        assert str(e).count("\n") == 0, "one sentence"
        return
    problem = _api._problem_of(*shapes, **dict(dict(element="bf16", causal=False, window=(-1, -1), attention_chunk=0, softcap=0.0, sink=False, num_splits=0,
                                                   pack_gqa=None, passes=None, sink_tokens=0, backward=backward), **options))
    handle = ctypes.c_void_p()
    _library.call("flash_compile", problem.encode(), ctypes.byref(handle))
    _library.Program(handle)
