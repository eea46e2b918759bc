"""Gradients for PyTorch: attention of tensors that require them. Only such a call imports this, so that torch stays optional."""
import inspect

import torch

from . import _api

SHARED = frozenset(inspect.signature(_api.attention_backward).parameters)  # of attention's options, those that its gradients depend on


def attention(q, k, v, *, sink, out, return_lse, **options):
    """flash_mlir.attention with all of its options, for PyTorch's graph."""
    if out is not None:
        raise ValueError("expected no out where gradients are wanted: o belongs to PyTorch's graph; leave it out, or call under torch.no_grad()")
    for name, x in dict(q=q, k=k, v=v, sink=sink).items():
        if x is not None and not isinstance(x, torch.Tensor):
            raise TypeError(f"expected {name} to be a PyTorch tensor where gradients are wanted, got {type(x).__name__}")
    tables = {name: x for name, x in options.items() if isinstance(x, torch.Tensor)}
    plain = {name: x for name, x in options.items() if name not in tables}
    o, lse = Attention.apply(q, k, v, sink, plain, tuple(tables), *tables.values())
    return (o, lse) if return_lse else o


class Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, sink, plain, names, *tables):
        options = dict(plain, **dict(zip(names, tables)))
        o, lse = _api.attention(q, k, v, sink=sink, return_lse=True, **options)
        ctx.mark_non_differentiable(lse)
        ctx.save_for_backward(q, k, v, sink, o, lse, *tables)  # PyTorch says so if one of them changes before it is used
        ctx.plain, ctx.names = plain, names
        return o, lse

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, do, _):
        q, k, v, sink, o, lse, *tables = ctx.saved_tensors
        options = dict(ctx.plain, **dict(zip(ctx.names, tables)))
        if options.get("page_table") is not None:
            raise NotImplementedError("gradients of keys in pages are not built; pass contiguous keys and values")
        shared = {name: x for name, x in options.items() if name in SHARED}
        grads = _api.attention_backward(do, q, k, v, o, lse, sink=sink, deterministic=torch.are_deterministic_algorithms_enabled(), **shared)
        return *grads[:3], None if sink is None else grads[3], None, None, *[None] * len(tables)
