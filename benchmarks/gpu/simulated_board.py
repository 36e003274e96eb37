"""The simulated device by its driver's files: what `Board` is for NVIDIA's, for the same checks."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from board import Board

from accelsweep.testing.simulated_device import SIMULATED_VARIABLE, UUID, SimulatedTelemetry, Spec, active_processes

SPEC = Spec(
    model="Simulated device of the acceptance",
    memory_bytes=64 * 2**20,
    kernel_seconds=1e-6,
    flops_per_second=5e8,
    watts_idle=60.0,
    watts_busy=260.0,
)
"""Slower than two cores at products, so that its own time is what counts; little memory, which soon ends."""


class SimulatedBoard(Board):
    """The simulated device. It is the only one, and every process of the machine sees it."""

    def __init__(self) -> None:
        """Note the device's use while it is idle."""
        self._folder, self._driver = Path(os.environ[SIMULATED_VARIABLE]), SimulatedTelemetry()
        self.idle_bytes = self.used_bytes()
        self.idle_processes = frozenset(self.processes())

    def used_bytes(self) -> int:
        """Return the memory in use on the whole device."""
        return int(self._driver.state(UUID)["memory_used_bytes"])

    def processes(self) -> list[int]:
        """Return the ids of the processes that compute on the device."""
        return list(active_processes(self._folder))

    def joules(self) -> float:
        """Return the energy counter."""
        return self._driver.joules(UUID)

    def watts(self) -> float:
        """Return the power draw."""
        return float(self._driver.state(UUID)["watts"])

    def watts_limit(self) -> float:
        """Return the power at full work."""
        return float(self._driver.state(UUID)["watts_limit"])

    def held_back_seconds(self) -> dict[str, float | None]:
        """Return for how long heat held the device back so far."""
        return {"heat": self._driver.state(UUID)["held_back"]["heat"][0]}

    @contextmanager
    def hot_after(self, seconds: float) -> Iterator[None]:
        """Let the device take twice as long for everything once a process has used it for so long."""
        replace(SPEC, throttled_after=seconds).write(self._folder)
        try:
            yield
        finally:
            SPEC.write(self._folder)

    def facts(self) -> dict[str, Any]:
        """Return what the device was told to be."""
        return {"name": SPEC.model, "simulated": True, **{key: str(value) for key, value in SPEC.__dict__.items()}}


def make(folder: Path) -> None:
    """Make the device, and let every command to come find it."""
    SPEC.write(folder)
    os.environ[SIMULATED_VARIABLE] = str(folder)
