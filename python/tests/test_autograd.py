"""Gradients through PyTorch's graph on the CPU: with PyTorch where it is installed, and everywhere with what plays its part."""
import importlib
import pathlib
import subprocess
import sys

import numpy as np
import pytest

import flash_mlir
import float64
from played_torch import Played
from test_cpu import draw


@pytest.fixture(params=["PyTorch", "played"])
def torch(request, monkeypatch):
    module = Played() if request.param == "played" else pytest.importorskip("torch")
    monkeypatch.setitem(sys.modules, "torch", module)
    monkeypatch.setattr(flash_mlir._api, "_calls", {})
    yield module
    module.use_deterministic_algorithms(False)
    sys.modules.pop("flash_mlir._autograd", None)  # which is of that torch
    vars(flash_mlir).pop("_autograd", None)


def inputs(torch, *shapes):
    arrays = [draw(shape, np.float32, seed) for seed, shape in enumerate(shapes)]
    tensors = [torch.from_numpy(x) for x in arrays]
    for x in tensors:
        x.requires_grad = True
    return arrays, tensors


SIZES = dict(equal=((2, 40, 4, 16), (2, 60, 4, 16), (2, 60, 4, 24)), grouped=((1, 70, 4, 16), (1, 50, 2, 16), (1, 50, 2, 16)))
OPTIONS = [{}, dict(causal=True), dict(window=(20, 5), softcap=2.0, num_splits=1), dict(causal=True, scale=0.5)]


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("sinks", [False, True])
def test_finite_differences(torch, sizes, options, sinks):
    arrays, tensors = inputs(torch, *SIZES[sizes], *([(4,)] if sinks else []))
    attention = lambda q, k, v, sink=None: flash_mlir.attention(q, k, v, sink=sink, **options)
    o = attention(*tensors)
    do = draw(tuple(o.shape), np.float32, 9)
    grads = torch.autograd.grad(o, tensors, torch.from_numpy(do))
    for at, (grad, x) in enumerate(zip(grads, arrays)):
        for seed in range(2):
            direction, step = np.random.default_rng(seed).standard_normal(x.shape).astype(np.float32), 1e-2
            loss = lambda side: (attention(*(y + side * step * direction if i == at else y for i, y in enumerate(arrays))).astype(np.float64) * do).sum()
            want, got = (loss(1) - loss(-1)) / (2 * step), (grad.numpy() * direction).sum()
            assert abs(got - want) <= 5e-3 * (np.linalg.norm(grad.numpy()) + 1), f"operand {at}: {got} for {want}"


def test_what_backward_is_called_with(torch, monkeypatch):
    _, (q, k, v) = inputs(torch, (30, 2, 16), (30, 2, 16), (30, 2, 16))
    ends, calls, backward = torch.from_numpy(np.array([0, 10, 30], np.int32)), [], flash_mlir._api.attention_backward
    importlib.import_module("flash_mlir._autograd")  # reads the function's signature
    monkeypatch.setattr(flash_mlir._api, "attention_backward", lambda *a, **options: calls.append(options) or backward(*a, **options))
    for deterministic in (False, True):
        torch.use_deterministic_algorithms(deterministic)
        o, lse = flash_mlir.attention(q, k, v, causal=True, cu_seqlens_q=ends, cu_seqlens_k=ends, max_seqlen_q=20, pack_gqa=False, return_lse=True)
        ones = torch.from_numpy(np.ones(tuple(o.shape), np.float32))
        assert all(np.isfinite(x.numpy()).all() for x in torch.autograd.grad(o, (q, k, v), ones))
        assert calls[-1]["deterministic"] is deterministic and calls[-1]["causal"] is True and calls[-1]["max_seqlen_q"] == 20
        assert calls[-1]["cu_seqlens_q"].tolist() == [0, 10, 30] and "pack_gqa" not in calls[-1]
    assert len(calls) == 2


def test_what_is_refused(torch):
    _, (q, k, v) = inputs(torch, (1, 8, 2, 16), (4, 16, 2, 16), (4, 16, 2, 16))
    with pytest.raises(ValueError, match="expected no out where gradients are wanted"):
        flash_mlir.attention(q, k, v, out=q)
    with pytest.raises(TypeError, match="expected k to be a PyTorch tensor where gradients are wanted, got ndarray"):
        flash_mlir.attention(q, np.zeros((1, 8, 2, 16), np.float32), v)
    int32 = lambda *x: torch.from_numpy(np.array(x, np.int32))
    o = flash_mlir.attention(q, k, v, page_table=int32([2, 0]), seqused_k=int32(20))
    with pytest.raises(NotImplementedError, match="gradients of keys in pages"):
        torch.autograd.grad(o, (q,), o)


def test_nothing_is_kept_where_nothing_learns(torch, monkeypatch):
    _, (q, k, v) = inputs(torch, (1, 8, 2, 16), (1, 8, 2, 16), (1, 8, 2, 16))
    for x in (q, k, v):
        x.requires_grad = False
    monkeypatch.setattr(flash_mlir._api, "_in_graph", None)
    assert not flash_mlir.attention(q, k, v).requires_grad
    v.requires_grad = True
    with pytest.raises(TypeError):
        flash_mlir.attention(q, k, v)
    monkeypatch.setattr(torch, "is_grad_enabled", lambda: False)
    flash_mlir.attention(q, k, v)


def test_torch_is_not_imported_for_others():
    code = "import sys, numpy, flash_mlir; x = numpy.ones((1, 8, 2, 16), numpy.float32); flash_mlir.attention(x, x, x); sys.exit('torch' in sys.modules)"
    folder = pathlib.Path(flash_mlir.__file__).parents[1]
    assert subprocess.run([sys.executable, "-c", code], cwd=folder).returncode == 0


# What only PyTorch itself can show.


def leaves(torch, *shapes):
    return [x.requires_grad_() for x in inputs(pytest.importorskip("torch"), *shapes)[1]]


@pytest.mark.parametrize("expanded", [False, True])
def test_against_pytorchs_own(expanded):
    torch = pytest.importorskip("torch")
    q, k, v = leaves(torch, (2, 40, 4, 16), (2, 60, 2, 16), (2, 60, 2, 16))
    turned = [x.transpose(1, 2).double() for x in (q, k, v)]
    see = torch.from_numpy(float64.visible(40, 60, True, (30, -1), 0, 0))
    want = torch.nn.functional.scaled_dot_product_attention(*turned, attn_mask=see, enable_gqa=True).transpose(1, 2)
    got = flash_mlir.attention(q, k, v, causal=True, window=(30, -1))
    weight = 1.0 if expanded else torch.from_numpy(draw(tuple(got.shape), np.float32, 9))
    for x, y in zip(torch.autograd.grad((got * weight).sum(), (q, k, v)), torch.autograd.grad((want * weight).sum(), (q, k, v))):
        assert torch.allclose(x, y, rtol=1e-4, atol=1e-5)


def test_a_value_that_changes_before_backward_is_noticed():
    torch = pytest.importorskip("torch")
    q, k, v = leaves(torch, (1, 8, 2, 16), (1, 8, 2, 16), (1, 8, 2, 16))
    o = flash_mlir.attention(q * 1, k, v)
    o.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        o.sum().backward()


@pytest.mark.parametrize("packed", [False, True])
def test_rows_that_do_not_count_have_no_gradients(packed, monkeypatch):
    torch = pytest.importorskip("torch")
    empty = torch.empty
    monkeypatch.setattr(torch, "empty", lambda *a, **options: empty(*a, **options).fill_(float("nan")))
    used, ends = torch.tensor([5, 0, 9], dtype=torch.int32), torch.tensor([0, 6, 9, 20], dtype=torch.int32)
    q, k, v = leaves(torch, *[(23, 2, 16) if packed else (3, 10, 2, 16)] * 3)
    tables = dict(cu_seqlens_q=ends, cu_seqlens_k=ends) if packed else {}
    o = flash_mlir.attention(q, k, v, seqused_q=used, seqused_k=used, **tables)
    counts = torch.zeros(o.shape[:-2], dtype=torch.bool)
    for b, n in enumerate(used):
        (counts[ends[b] :] if packed else counts[b])[:n] = True
    o[counts].sum().backward()
    for x in (q, k, v):
        assert not x.grad[~counts].any() and x.grad[counts].isfinite().all() and v.grad[counts].any()
