"""Attention in float64 NumPy, from its definition: what the tests compare with."""
import numpy as np


def visible(sq, sk, causal, window, chunk, sink_tokens):
    i, j = np.arange(sq)[:, None] + sk - sq, np.arange(sk)[None, :]
    left, right = window[0], 0 if causal else window[1]
    see = (right < 0) | (j <= i + right)
    near = (left < 0) | (j >= i - left)
    if chunk:
        near = near & (j // chunk == np.floor_divide(i, chunk))
    return see & (near | (j < sink_tokens))


def attention(q, k, v, causal=False, window=(-1, -1), chunk=0, sink_tokens=0, scale=None, softcap=0.0, sink=None,
              widen=lambda x: x.astype(np.float32).astype(np.float64)):
    """o [B, Sq, Hq, Dv] and lse [B, Hq, Sq] of arrays as flash_mlir.attention takes them."""
    q, k, v = (widen(x) for x in (q, k, v))
    group = q.shape[2] // k.shape[2]
    k, v = np.repeat(k, group, axis=2), np.repeat(v, group, axis=2)
    s = np.einsum("bihd,bjhd->bhij", q, k) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if softcap:
        s = softcap * np.tanh(s / softcap)
    s = np.where(visible(q.shape[1], k.shape[1], causal, window, chunk, sink_tokens), s, -np.inf)
    if sink is not None:
        s = np.concatenate([s, np.broadcast_to(sink[None, :, None, None], s.shape[:3] + (1,))], axis=3)
    top = np.max(s, axis=3, keepdims=True, initial=-np.inf)
    top = np.where(np.isfinite(top), top, 0)
    p = np.exp(s - top)
    total = p.sum(axis=3, keepdims=True)
    with np.errstate(divide="ignore"):
        lse = (np.log(total) + np.where(total > 0, top, 0))[..., 0]
    p = p / np.where(total > 0, total, 1)
    return np.einsum("bhij,bjhd->bihd", p[..., : k.shape[1]], v), lse
