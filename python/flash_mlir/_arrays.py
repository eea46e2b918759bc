"""What is known of an array without looking at its elements: NumPy arrays, PyTorch tensors, and what DLPack brings on a
GPU. PyTorch is never imported here; an array of its own brings it."""
import sys

import numpy as np

ELEMENT = {"float16": "f16", "bfloat16": "bf16", "float32": "f32", "float8_e4m3fn": "f8e4m3", "int32": "i32"}


def is_torch(x):
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(x, torch.Tensor)


def learns(*arrays):
    """Whether PyTorch is to find gradients of one of them."""
    for x in arrays:
        if getattr(x, "requires_grad", False):
            return sys.modules["torch"].is_grad_enabled()
    return False


def take(name, x):
    """x as a NumPy array or PyTorch tensor, never copied; TypeError for anything else."""
    if isinstance(x, np.ndarray) or is_torch(x):
        return x
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(x, "__dlpack__"):
        return torch.from_dlpack(x)
    raise TypeError(f"expected {name} to be a NumPy array or a PyTorch tensor, got {type(x).__name__}")


def signature(x):
    """Everything of x that a plan can depend on, hashable; None for None."""
    if isinstance(x, np.ndarray):
        return x.shape, x.strides, x.dtype
    if is_torch(x):
        return x.shape, x.stride(), x.dtype, x.device
    return None if x is None else type(x)


class Array:
    """Shape, strides in elements, element type ("bf16", ...) and device ("cpu" or "cuda:0") of a named operand."""

    def __init__(self, name, x):
        self.name, self.shape = name, tuple(x.shape)
        if isinstance(x, np.ndarray):
            self.type, self.device, self.index = x.dtype.name, "cpu", 0
            self.strides = tuple(s // x.itemsize for s in x.strides)
            if not x.dtype.isnative or not x.flags.aligned or any(s % x.itemsize for s in x.strides):
                raise ValueError(f"expected {name}'s elements in the machine's byte order and aligned to their size; copy it first")
        else:
            self.type, self.device, self.index = str(x.dtype).removeprefix("torch."), x.device.type, x.device.index or 0
            self.strides = tuple(x.stride())
            if x.layout != sys.modules["torch"].strided or self.device not in ("cpu", "cuda"):
                raise TypeError(f"expected {name} to be a dense tensor on the CPU or a CUDA device, got {x.layout} on {x.device}")
        self.element = ELEMENT.get(self.type)

    @property
    def place(self):
        return f"{self.device}:{self.index}" if self.device == "cuda" else self.device


def pointer(x):
    return x.ctypes.data if isinstance(x, np.ndarray) else x.data_ptr()


class _Places:
    """Where the elements of x lie, for NumPy, which never looks at them: x may be a GPU's."""

    def __init__(self, x):
        size, strides = (x.itemsize, x.strides) if isinstance(x, np.ndarray) else (x.element_size(), tuple(s * x.element_size() for s in x.stride()))
        self.__array_interface__ = dict(data=(pointer(x), True), shape=tuple(x.shape), strides=strides, typestr=f"|V{size}", version=3)


def share_memory(x, y):
    """Whether an element of x lies where one of y does; what takes long to find out counts as shared."""
    if 0 in x.shape or 0 in y.shape:
        return False
    try:
        return np.shares_memory(np.asarray(_Places(x)), np.asarray(_Places(y)), max_work=10_000)
    except np.exceptions.TooHardError:
        return True


def empty(like, shape, float32=False, zeros=False):
    """An uninitialised array (or of zeros) where `like` lives, of its element type or of f32."""
    if isinstance(like, np.ndarray):
        return (np.zeros if zeros else np.empty)(shape, np.float32 if float32 else like.dtype)
    torch = sys.modules["torch"]
    return (torch.zeros if zeros else torch.empty)(shape, dtype=torch.float32 if float32 else like.dtype, device=like.device)


def with_rows(x):
    """x, or a copy of it with rows that kernels read: contiguous, and on a GPU each of its own, at multiples of 16 bytes."""
    if isinstance(x, np.ndarray):
        return x if x.ndim == 0 or x.shape[-1] <= 1 or x.strides[-1] == x.itemsize else np.ascontiguousarray(x)
    if not is_torch(x) or not x.ndim or x.shape[-1] <= 1:
        return x
    fits = x.stride(-1) == 1
    if fits and x.device.type == "cuda":
        bytes_of = [s * x.element_size() for n, s in zip(x.shape[:-1], x.stride()) if n > 1]
        fits = all(b > 0 and b % 16 == 0 for b in bytes_of) and x.data_ptr() % 16 == 0
    if fits:
        return x
    copy = x.contiguous()
    return x.clone() if copy is x else copy


def empty_table(like, shape):
    """An uninitialised array of i32 where `like` lives."""
    if isinstance(like, np.ndarray):
        return np.empty(shape, np.int32)
    torch = sys.modules["torch"]
    return torch.empty(shape, dtype=torch.int32, device=like.device)


def stacked(x, y):
    """x and y behind each other along a new first dimension, row-major and f32."""
    if isinstance(x, np.ndarray):
        return np.ascontiguousarray(np.stack((x, y)), np.float32)
    return sys.modules["torch"].stack((x, y)).float().contiguous()


def stream(x):
    """The caller's current CUDA stream on x's device, as an integer."""
    torch = sys.modules["torch"]
    raw = getattr(getattr(torch, "_C", None), "_cuda_getCurrentRawStream", None)  # without an object around it
    return raw(x.device.index) if raw else torch.cuda.current_stream(x.device).cuda_stream


def capability(x):
    return sys.modules["torch"].cuda.get_device_capability(x.device)


def gpu_name(index):
    return sys.modules["torch"].cuda.get_device_name(index)


def values(x):
    """The elements of a small integer array as a list; looks at the device if it lives there."""
    return x.tolist()
