"""Timing kernels on a GPU, with PyTorch: how long they take, how much they do, how far apart results are.

The card is power-limited and remembers the kernel before, so what is compared is timed in turn, launch by launch, after a
warm-up of each, with the L2 cache flushed before every launch.
"""
import math
import statistics
import sys
import time

FLUSH_BYTES = 256 << 20
CYCLES_A_MS = 2_000_000  # at the fastest clock of today's cards
BACKWARD_WORK = 2.5  # of the forward's: five products for two
ALLOWED = 1.2e-2  # relative L2 distance of two 16-bit results


def pytorch(tool):
    """The module; without it or a GPU the tool ends with a sentence."""
    try:
        import torch
    except ImportError:
        raise SystemExit(f"{tool}: expected PyTorch to time kernels with, it is not installed here; {sys.executable} -m pip install torch") from None
    if not torch.cuda.device_count():  # asks the driver's monitor: CUDA stays untouched, processes may fork
        raise SystemExit(f"{tool}: expected a GPU, there is none here")
    return torch


def l2_flush(clean=False):
    """A function that leaves nothing in the L2 cache that a kernel could use. It writes, as everyone's timers do: the next kernel
    then waits while up to the whole cache is written back, some 10 us that are not its own. clean: it reads another buffer besides,
    so that no such lines are left."""
    import torch

    written, *read = (torch.zeros(FLUSH_BYTES // 4, dtype=torch.int32, device="cuda") for _ in range(1 + clean))

    def flush():
        written.zero_()
        for buffer in read:
            buffer.sum()

    return flush


def apart(got, want):
    """Relative L2 distance of two tensors; NaN where got holds one."""
    got, want = got.float(), want.float()
    return float((got - want).norm() / want.norm())


def flops(batch, heads, queries, keys, head_size, head_size_v, causal=False, left=-1):
    """Of the visible pairs; left: reach of a causal window; under plain causal half of all, as everyone counts."""
    pairs = queries * (left + 1) - left * (left + 1) // 2 if left >= 0 else queries * keys * (0.5 if causal else 1.0)
    return 2.0 * batch * heads * pairs * (head_size + head_size_v)


def _queue(torch, call, flush):
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    flush()
    start.record()
    call()
    end.record()
    return start, end


def _times(torch, events):
    torch.cuda.synchronize()
    return [start.elapsed_time(end) for start, end in events]


def measure(calls, flush, warm_up_ms=200, rounds_ms=600, rounds=(15, 40)):
    """Median milliseconds of each call (functions without arguments).

    As many rounds as take rounds_ms, within `rounds`. Nothing waits between launches: the host must stay ahead of the GPU, or its
    own time would count. Where calls are so short that it might not, the GPU sleeps before each round until the host has queued it."""
    import torch

    once, host = [], 0.0
    for call in calls:
        call()
        torch.cuda.synchronize()
        events, at = [], [time.perf_counter()]
        for _ in range(3):
            events.append(_queue(torch, call, flush))
            at.append(time.perf_counter())
        host += min(b - a for a, b in zip(at, at[1:])) * 1e3
        once.append(max(min(_times(torch, events)), 1e-3))
    asleep_ms = 2 * host if 2 * host > sum(once) else 0  # twice: the host's time varies
    for at in range(math.ceil(warm_up_ms / min(once))):
        for call, ms in zip(calls, once):
            if at * ms < warm_up_ms:
                _queue(torch, call, flush)
    torch.cuda.synchronize()
    count = min(max(round(rounds_ms / sum(once)), rounds[0]), rounds[1])
    events = []
    for _ in range(count):
        if asleep_ms:
            torch.cuda._sleep(round(asleep_ms * CYCLES_A_MS))
        events += [_queue(torch, call, flush) for call in calls]
    times = _times(torch, events)
    return [statistics.median(times[at :: len(calls)]) for at in range(len(calls))]
