"""The GPU by its driver's counters, from a process without a CUDA context: memory in use, processes, energy.

The acceptance's own process must not compute on the device: every run would rightly be doubted because of it.
"""

from __future__ import annotations

import threading
import time
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

import pynvml
from checks import CannotApply

SLACK_BYTES = 64 * 2**20
"""Allowed above the earlier use of the device: a CUDA context of ours (some 500 MiB) does not fit into it."""


class Board:
    """The first visible device. Raises CannotApply where NVML finds none."""

    def __init__(self) -> None:
        """Open NVML for the life of this process, and note the device's use while it is idle."""
        try:
            pynvml.nvmlInit()
            self._handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        except pynvml.NVMLError as error:
            raise CannotApply(f"there is no NVIDIA device here (NVML: {error})") from None
        self.idle_bytes = self.used_bytes()
        self.idle_processes = frozenset(self.processes())

    def used_bytes(self) -> int:
        """Return the memory in use on the whole device."""
        return int(pynvml.nvmlDeviceGetMemoryInfo(self._handle).used)

    def processes(self) -> list[int]:
        """Return the ids of the processes that compute on the device."""
        return [process.pid for process in pynvml.nvmlDeviceGetComputeRunningProcesses(self._handle)]

    def ours(self) -> list[int]:
        """Return the processes on the device that were not there before the acceptance began."""
        return [pid for pid in self.processes() if pid not in self.idle_processes]

    def clean(self, within_seconds: float = 10.0) -> tuple[bool, str]:
        """Return whether the device is as before, at the latest after `within_seconds`, and what is left on it."""
        deadline = time.monotonic() + within_seconds
        while True:
            left, more = self.ours(), self.used_bytes() - self.idle_bytes
            done = not left and more <= SLACK_BYTES
            if done or time.monotonic() > deadline:
                return done, f"{len(left)} processes, {more / 2**20:+.0f} MiB against the idle device"
            time.sleep(0.1)

    def joules(self) -> float:
        """Return the energy counter."""
        return float(pynvml.nvmlDeviceGetTotalEnergyConsumption(self._handle)) / 1e3

    def watts(self) -> float:
        """Return the power draw that the driver reports; on recent boards it is the mean of the last second."""
        return float(pynvml.nvmlDeviceGetPowerUsage(self._handle)) / 1e3

    def watts_limit(self) -> float:
        """Return the enforced power limit."""
        return float(pynvml.nvmlDeviceGetEnforcedPowerLimit(self._handle)) / 1e3

    def held_back_seconds(self) -> dict[str, float | None]:
        """Return how long the driver held the device back so far, by reason; None where it keeps no such counter."""
        return {word: self._violation(policy) for word, policy in (("power cap", 0), ("heat", 1))}

    def _violation(self, policy: int) -> float | None:
        try:
            return float(pynvml.nvmlDeviceGetViolationStatus(self._handle, policy).violationTime) / 1e9
        except pynvml.NVMLError:
            return None

    def hot_after(self, seconds: float) -> AbstractContextManager[None]:
        """Make the device slower. Raises CannotApply: nobody may heat a board, or lock its clocks, to try that out."""
        raise CannotApply(
            f"no board may be heated within {seconds:g} s, or its clocks locked: its own limits are judged"
        )

    def facts(self) -> dict[str, Any]:
        """Return the facts of the device."""
        asked = {
            "name": lambda: pynvml.nvmlDeviceGetName(self._handle),
            "driver": pynvml.nvmlSystemGetDriverVersion,
            "memory_bytes": lambda: int(pynvml.nvmlDeviceGetMemoryInfo(self._handle).total),
            "watts_limit": self.watts_limit,
            "sm_mhz_max": lambda: pynvml.nvmlDeviceGetMaxClockInfo(self._handle, pynvml.NVML_CLOCK_SM),
            "memory_mhz_max": lambda: pynvml.nvmlDeviceGetMaxClockInfo(self._handle, pynvml.NVML_CLOCK_MEM),
        }
        return {word: _or_reason(question) for word, question in asked.items()}


def _or_reason(question: Any) -> Any:
    try:
        return question()
    except pynvml.NVMLError as error:
        return f"unknown (NVML: {error})"


@dataclass
class Samples:
    """Power over time, read every `PAUSE` seconds by a thread, with the energy counter at both ends."""

    PAUSE = 0.02

    board: Board
    seconds: list[float] = field(default_factory=list)
    watts: list[float] = field(default_factory=list)
    counted_joules: float = 0.0

    def __enter__(self) -> Samples:
        """Begin to read."""
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._began = self.board.joules()
        self._thread.start()
        return self

    def _read(self) -> None:
        while not self._end.is_set():
            self.seconds.append(time.monotonic())
            self.watts.append(self.board.watts())
            self._end.wait(self.PAUSE)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop, and read the counter."""
        self._end.set()
        self._thread.join()
        self.counted_joules = self.board.joules() - self._began

    def integrated_joules(self) -> float:
        """Return the power integrated over time by the trapezoid rule."""
        pairs = zip(self.seconds, self.seconds[1:], self.watts, self.watts[1:], strict=False)
        return sum((later - earlier) * (one + other) / 2 for earlier, later, one, other in pairs)
