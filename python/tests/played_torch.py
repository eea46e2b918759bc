"""As much of PyTorch as flash_mlir's function of its graph meets, on NumPy: for machines without it."""
import types

import numpy as np


class Tensor:
    """Looks like a tensor on the CPU; NumPy holds it."""

    layout, device = "strided", types.SimpleNamespace(type="cpu", index=None)

    def __init__(self, array, requires_grad=False):
        self.array, self.requires_grad, self.shape, self.dtype = array, requires_grad, array.shape, f"torch.{array.dtype.name}"

    def stride(self, at=slice(None)):
        return tuple(s // self.array.itemsize for s in self.array.strides)[at]

    def contiguous(self):
        return Tensor(np.ascontiguousarray(self.array))

    def data_ptr(self):
        return self.array.ctypes.data

    def tolist(self):
        return self.array.tolist()

    def numpy(self):
        return self.array

    ndim = property(lambda self: self.array.ndim)


class Played(types.SimpleNamespace):
    """As much of torch as a function of its graph needs; the graph is one function deep."""

    def __init__(self):
        played = self

        class Function:
            @classmethod
            def apply(cls, *inputs):
                context = types.SimpleNamespace(mark_non_differentiable=lambda *_: None, save_for_backward=lambda *x: setattr(context, "saved_tensors", x))
                played.enabled = False
                o, *others = cls.forward(context, *inputs)
                played.enabled = True
                o.node = cls, context, inputs
                return o, *others

        function = types.SimpleNamespace(once_differentiable=lambda f: f)
        self.enabled, self.deterministic = True, False
        super().__init__(Tensor=Tensor, strided="strided", float32="float32", is_grad_enabled=lambda: self.enabled,
                         autograd=types.SimpleNamespace(Function=Function, function=function, grad=self.grad),
                         are_deterministic_algorithms_enabled=lambda: self.deterministic, empty=lambda shape, dtype, device: Tensor(np.empty(shape, dtype.removeprefix("torch."))),
                         zeros=lambda shape, dtype, device: Tensor(np.zeros(shape, dtype.removeprefix("torch."))))

    def from_numpy(self, array):
        return Tensor(array)

    def use_deterministic_algorithms(self, mode):
        self.deterministic = mode

    def grad(self, o, wanted, do):
        function, context, inputs = o.node
        grads = dict(zip(map(id, inputs), function.backward(context, do, None), strict=True))
        return [grads[id(x)] for x in wanted]
