"""A kernel of known length, for `task: kernels`: the truth that step times are compared with.

On CUDA the kernel spins for a number of the processor's cycles. The cycles of a second are counted by the host's clock
around a synchronised call. So the truth is independent of the device events that are compared with it.
"""

import os
import time
from collections.abc import Callable
from pathlib import Path

import torch


class Known:
    """Takes `seconds` per call. `mark` is a file that the first call writes its process id into."""

    flops = None
    traffic = 1

    def __init__(self, seconds: float, mark: str | None = None) -> None:
        self._seconds, self._mark = seconds, mark

    def on(self, device: torch.device, format_name: str) -> Callable[[], object]:
        """Return a function that takes the known time."""
        del format_name
        if device.type == "simulated":
            return self._marked(lambda: torch.simulated.work(self._seconds))
        return self._marked(self._on_cuda(device) if device.type == "cuda" else self._on_host)

    def _marked(self, spin: Callable[[], object]) -> Callable[[], object]:
        marks = [Path(self._mark)] if self._mark else []

        def call() -> None:
            spin()
            while marks:
                marks.pop().write_text(str(os.getpid()), "utf-8")

        return call

    def _on_host(self) -> None:
        end = time.perf_counter() + self._seconds
        while time.perf_counter() < end:
            pass

    def _on_cuda(self, device: torch.device) -> Callable[[], object]:
        cycles = int(self._seconds * cycles_per_second(device))
        return lambda: torch.cuda._sleep(cycles)


def cycles_per_second(device: torch.device, cycles: int = 400_000_000) -> float:
    """Return the rate of a warm device: the best of five calls of some 0.2 s, beside which a launch costs nothing."""
    best = 0.0
    for _ in range(5):
        torch.cuda.synchronize(device)
        begin = time.perf_counter()
        torch.cuda._sleep(cycles)
        torch.cuda.synchronize(device)
        best = max(best, cycles / (time.perf_counter() - begin))
    return best
