"""flash-mlir: attention, compiled. NumPy arrays run on the CPU, PyTorch CUDA tensors on Ampere, Ada and Hopper GPUs.

attention(q, k, v, causal=True)                        o = softmax(q k^T / sqrt(D), mask) v
attention(q, k, v).sum().backward()                    of PyTorch tensors that require gradients
explain((4, 4096, 16, 128), ..., target="sm_90a")      how that is planned, and why
"""
from ._api import attention, attention_backward, attention_with_kvcache, compile, explain, merge, prepare, version

__version__ = version()
__all__ = ["attention", "attention_backward", "attention_with_kvcache", "compile", "explain", "merge", "prepare"]
