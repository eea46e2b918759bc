"""flash-mlir: attention, compiled. NumPy arrays run on the CPU, PyTorch CUDA tensors on Ampere, Ada and Hopper GPUs.

attention(q, k, v, causal=True)                        o = softmax(q k^T / sqrt(D), mask) v
attention(q, k, v).sum().backward()                    of PyTorch tensors that require gradients
explain(q, k, v, causal=True)                          how that is planned, and why; shapes do in place of arrays

help(flash_mlir.attention) has every argument; python/README.md of the sources serving (packed, paged, appended, shared keys).
"""
from ._api import attention, attention_backward, attention_with_kvcache, compile, explain, merge, prepare, version

__version__ = version()
__all__ = ["attention", "attention_backward", "attention_with_kvcache", "compile", "explain", "merge", "prepare"]
