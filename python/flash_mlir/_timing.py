"""Timing kernels on a GPU, with PyTorch.

The card is power-limited and remembers the kernel before, so what is compared is timed in turn, launch by launch, after a
warm-up of each, with the L2 cache flushed before every launch.
"""
import math
import statistics

FLUSH_BYTES = 256 << 20


def flush_buffer():
    import torch

    return torch.empty(FLUSH_BYTES, dtype=torch.uint8, device="cuda")


def _queue(torch, call, flush):
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    flush.zero_()
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
    own time would count."""
    import torch

    once = []
    for call in calls:
        call()
        once.append(max(min(_times(torch, [_queue(torch, call, flush) for _ in range(3)])), 1e-3))
    for at in range(math.ceil(warm_up_ms / min(once))):
        for call, ms in zip(calls, once):
            if at * ms < warm_up_ms:
                _queue(torch, call, flush)
    torch.cuda.synchronize()
    count = min(max(round(rounds_ms / sum(once)), rounds[0]), rounds[1])
    events = [_queue(torch, call, flush) for _ in range(count) for call in calls]
    times = _times(torch, events)
    return [statistics.median(times[at :: len(calls)]) for at in range(len(calls))]
