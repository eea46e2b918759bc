"""How kernels are timed, on a GPU and a host that are played."""
import sys
import types

import pytest

from flash_mlir import _timing


class Played:
    """Milliseconds of a host that queues, and of a GPU that begins what it has been given."""

    def __init__(self):
        self.host = self.gpu = self.slept = 0.0

    def queue(self, gpu, host):
        self.host += host
        self.gpu = max(self.gpu, self.host) + gpu

    def torch(self):
        played = self

        class Event:
            def __init__(self, enable_timing):
                assert enable_timing

            def record(self):
                played.queue(0, 0.001)
                self.at = played.gpu

            def elapsed_time(self, end):
                return end.at - self.at

        def sleep(cycles):
            self.slept += cycles / _timing.CYCLES_A_MS
            self.queue(cycles / _timing.CYCLES_A_MS, 0.001)

        def synchronize():
            self.host = max(self.host, self.gpu)

        return types.SimpleNamespace(cuda=types.SimpleNamespace(Event=Event, synchronize=synchronize, _sleep=sleep))


@pytest.mark.parametrize("host, kernels, sleeps", [(0.07, (0.02, 0.03, 0.01), True), (0.02, (0.02, 0.03, 0.01), True), (0.05, (2.0, 1.0), False)])
def test_the_hosts_time_does_not_count(monkeypatch, host, kernels, sleeps):
    played = Played()
    monkeypatch.setitem(sys.modules, "torch", played.torch())
    monkeypatch.setattr(_timing.time, "perf_counter", lambda: played.host / 1e3)
    flush = lambda: played.queue(0.005, 0.005)
    assert _timing.measure([lambda ms=ms: played.queue(ms, host) for ms in kernels], flush, 1, 10) == pytest.approx(list(kernels))
    assert bool(played.slept) == sleeps
