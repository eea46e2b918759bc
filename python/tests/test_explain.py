"""The plan in words and as data."""
import numpy as np
import pytest

import flash_mlir

SHAPES = ((4, 4096, 16, 128), (4, 4096, 4, 128), (4, 4096, 4, 128))


def test_text_names_the_decisions_and_why():
    text = flash_mlir.explain(*SHAPES, causal=True)
    for word in ("sm_90a", "causal", "128 queries x 128 keys", "of 232448 bytes", "because", "waves"):
        assert word in text


def test_json_is_the_same_plan():
    plan = flash_mlir.explain(*SHAPES, causal=True, json=True)
    assert isinstance(plan, dict) and plan
    assert "128" in str(plan)


def test_a_field_by_hand_is_kept():
    by_hand = flash_mlir.explain(*SHAPES, causal=True, plan="#flash.plan<tile = [128, 64]>")
    assert "128 queries x 64 keys" in by_hand and "set by hand" in by_hand


def test_a_plan_that_does_not_fit_says_by_how_much():
    with pytest.raises(ValueError, match="232448"):
        flash_mlir.explain(*SHAPES, plan="#flash.plan<tile = [128, 128], stages = 9>")


@pytest.mark.parametrize("plan, words", [("#flash.plan<tiles = 1>", "tiles"), ("nonsense", "nonsense"), ('#flash.plan<order = "odd">', "odd")])
def test_a_plan_that_is_none(plan, words):
    with pytest.raises(ValueError, match=words):
        flash_mlir.explain(*SHAPES, plan=plan)


def test_arrays_and_shapes_are_planned_alike():
    arrays = [np.zeros(shape, np.float16) for shape in ((1, 8, 4, 64), (1, 8, 2, 64), (1, 8, 2, 64))]
    assert flash_mlir.explain(*arrays) == flash_mlir.explain(*(a.shape for a in arrays), element="f16", target="cpu")


def test_refusals():
    with pytest.raises(ValueError, match="k's head size"):
        flash_mlir.explain(SHAPES[0], (4, 4096, 4, 64), SHAPES[2])
    with pytest.raises(ValueError, match="sm_86 has 101376"):
        flash_mlir.explain(*SHAPES, target="sm_86", plan="#flash.plan<stages = 3>")
    with pytest.raises(NotImplementedError, match="f8"):
        flash_mlir.explain(*SHAPES, element="f8e4m3")
    with pytest.raises(ValueError, match="f32"):
        flash_mlir.explain(*SHAPES, element="f32")
