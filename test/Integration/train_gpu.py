#!/usr/bin/env python3
"""A two-layer transformer learns with our forward and backward as it does with PyTorch's attention.

    python3 test/Integration/train_gpu.py [--steps 200] [--only TEXT] [--target sm_90a] [--plan PLAN]

Needs torch and a GPU. Weights in f32, products in bf16 (autocast), AdamW, synthetic text: tokens of a random chain, whose second half
repeats the first. Every run starts from the same weights and sees the same text. PyTorch's own kernels (FlashAttention-2, cuDNN, memory
efficient, plain products) say how far rounding alone moves a run. Two things must hold:

gradients   of the first step: all weights' together are no further from those of f32 attention than 1.5 times PyTorch's worst.
losses      in windows of 10 steps: the means are no further from those of each of PyTorch's runs than twice the furthest that two of
            PyTorch's are apart (or than twice LEAST_NOISE); and the last window's loss is under 0.8 of the first's, so that something was learned.

Ends with `N passed, M failed`. --plan is of gradients alone.
"""
import argparse
import functools
import itertools
import math
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))

import by_hand
import flash_mlir
import problems
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

VOCABULARY, BATCH, LENGTH, LAYERS = 256, 8, 1024, 2
WINDOW = 10  # steps
FURTHER = {"gradients": 1.5, "losses": 2.0}  # than PyTorch's own kernels are from each other
LEAST_NOISE = 1e-3  # of a loss
LEARNED = 0.8  # of the first loss
CASES = {  # head size, query heads, KV heads, mask
    "head size 64": (64, 8, 8, {}),
    "head size 128, grouped": (128, 4, 2, {}),
    "head size 64, a window": (64, 8, 2, dict(window=(200, -1))),
}
BACKENDS = {"fa2": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION, "efficient": SDPBackend.EFFICIENT_ATTENTION, "plain": SDPBackend.MATH}


def pytorchs(backend, window, q, k, v):
    """Causal attention of [B, S, H, D] by a backend of sdpa; with a window only those that take a mask can."""
    group = q.shape[2] // k.shape[2]
    q, k, v = (x.transpose(1, 2) for x in (q, k.repeat_interleave(group, 2), v.repeat_interleave(group, 2)))
    mask = None
    if window is not None:
        at = torch.arange(LENGTH, device="cuda")
        mask = (at[:, None] >= at) & (at[:, None] - at <= window[0])
    with sdpa_kernel(backend):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None).transpose(1, 2)


def exact(window, q, k, v):
    with torch.autocast("cuda", enabled=False):
        return pytorchs(SDPBackend.MATH, window, *(x.float() for x in (q, k, v))).to(q.dtype)


class Layer(torch.nn.Module):
    def __init__(self, d, heads, kv_heads):
        super().__init__()
        self.sizes, width = (heads, kv_heads, d), heads * d
        self.norms = torch.nn.ModuleList(torch.nn.LayerNorm(width) for _ in range(2))
        self.qkv, self.out = torch.nn.Linear(width, (heads + 2 * kv_heads) * d), torch.nn.Linear(width, width)
        self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

    def forward(self, x, attend):
        heads, kv_heads, d = self.sizes
        qkv = self.qkv(self.norms[0](x)).unflatten(-1, (-1, d))  # views into one tensor, with its strides
        x = x + self.out(attend(*qkv.split((heads, kv_heads, kv_heads), dim=2)).flatten(2))
        return x + self.down(F.gelu(self.up(self.norms[1](x))))


class Transformer(torch.nn.Module):
    def __init__(self, d, heads, kv_heads):
        super().__init__()
        width = heads * d
        self.tokens, self.places = torch.nn.Embedding(VOCABULARY, width), torch.nn.Embedding(LENGTH, width)
        self.layers = torch.nn.ModuleList(Layer(d, heads, kv_heads) for _ in range(LAYERS))
        self.norm, self.head = torch.nn.LayerNorm(width), torch.nn.Linear(width, VOCABULARY)

    def forward(self, text, attend):
        x = self.tokens(text) + self.places.weight
        for layer in self.layers:
            x = layer(x, attend)
        return self.head(self.norm(x))


def text(generator):
    """[B, LENGTH + 1] tokens: each is one of four that may follow the one before; the second half repeats the first."""
    half = LENGTH // 2 + 1
    follows = torch.randint(VOCABULARY, (VOCABULARY, 4), generator=torch.Generator().manual_seed(7))
    tokens, choices = [torch.randint(VOCABULARY, (BATCH,), generator=generator)], torch.randint(4, (half, BATCH), generator=generator)
    for i in range(1, half):
        tokens.append(follows[tokens[-1], choices[i]])
    first = torch.stack(tokens, 1)
    return torch.cat((first, first), 1)[:, : LENGTH + 1].to("cuda")


def train(case, attend, steps):
    """The loss of each step, and the gradients of the first."""
    d, heads, kv_heads, _ = case
    torch.manual_seed(3)
    model, generator = Transformer(d, heads, kv_heads).to("cuda"), torch.Generator().manual_seed(11)
    optimizer, losses, first = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01), [], None
    for step in range(steps):
        tokens = text(generator)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            logits = model(tokens[:, :-1], attend)
        loss = F.cross_entropy(logits.float().flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        if first is None:
            first = torch.cat([x.grad.flatten() for x in model.parameters()])
        for group in optimizer.param_groups:
            group["lr"] = 1e-3 * min(1.0, (step + 1) / 20)
        optimizer.step()
        losses.append(loss.detach())
    means = torch.stack(losses).unflatten(0, (-1, WINDOW)).mean(1)
    return means.tolist(), first


def check(steps, target, plan, case):
    """What is wrong, or None."""
    by_hand.force(plan, backward=True)
    *_, mask = case
    window, runs = mask.get("window"), {}
    for name, backend in BACKENDS.items():
        try:
            runs[name] = train(case, functools.partial(pytorchs, backend, window), steps)
        except RuntimeError as e:  # no such kernel here, or none that takes a mask
            print(f"    {name}: {str(e).splitlines()[0][:100]}", flush=True)
    if len(runs) < 2:
        return "expected two of PyTorch's kernels to compare, fewer run here"
    ours = train(case, lambda q, k, v: flash_mlir.attention(q, k, v, causal=True, target=target, **mask), steps)
    _, want = train(case, functools.partial(exact, window), WINDOW)
    away = {name: float((got - want).norm() / want.norm()) for name, (_, got) in (*runs.items(), ("ours", ours))}
    apart = lambda a, b: max(abs(x - y) for x, y in zip(a[0], b[0]))
    noise = max(LEAST_NOISE, *(apart(a, b) for a, b in itertools.combinations(runs.values(), 2)))
    furthest = max(apart(ours, other) for other in runs.values())
    (first, *_, last), worst = ours[0], max(error for name, error in away.items() if name != "ours")
    print("    gradients from f32's: " + ", ".join(f"{name} {error:.2e}" for name, error in away.items()), flush=True)
    print("    last loss: " + ", ".join(f"{name} {means[-1]:.4f}" for name, (means, _) in (*runs.items(), ("ours", ours)))
          + f"; first {first:.4f}; apart: PyTorch's {noise:.4f}, ours {furthest:.4f}", flush=True)
    if not away["ours"] <= FURTHER["gradients"] * worst:
        return f"the first gradients are {away['ours']:.2e} from those of f32 attention, PyTorch's worst {worst:.2e}"
    if not furthest <= FURTHER["losses"] * noise:
        return f"losses are {furthest:.4f} from PyTorch's, whose runs are {noise:.4f} apart"
    if not (math.isfinite(last) and last < LEARNED * first):
        return f"nothing was learned: the loss went from {first:.4f} to {last:.4f}"
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--only", default="", help="models whose name holds this")
    parser.add_argument("--target", help="(default: the device's)")
    by_hand.add_option(parser)
    a = parser.parse_args()
    if a.steps < 2 * WINDOW or a.steps % WINDOW:
        parser.error(f"expected --steps to be a multiple of {WINDOW} of at least {2 * WINDOW}, got {a.steps}")
    return problems.check_each([(name, case) for name, case in CASES.items() if a.only in name], functools.partial(check, a.steps, a.target, a.plan))


if __name__ == "__main__":
    sys.exit(main())
