"""A board is clean if no process and no memory of ours is left, with a fake driver."""

from __future__ import annotations

from types import SimpleNamespace

import board
import pytest
from board import Board, Samples
from checks import CannotApply

CONTEXT = 500 * 2**20


class Driver:
    """The functions of pynvml that the board asks, with a device whose users and power are told to it."""

    NVMLError = RuntimeError

    def __init__(self, *, there: bool = True) -> None:
        self.pids, self.used, self.milliwatts, self.millijoules, self._there = [7], 10 * 2**20, 100_000, 0, there

    def nvmlInit(self) -> None:  # noqa: N802  pynvml's own name
        if not self._there:
            raise RuntimeError("Driver Not Loaded")

    def __getattr__(self, name: str):  # type: ignore[no-untyped-def]
        answers = {
            "nvmlDeviceGetHandleByIndex": "device 0",
            "nvmlDeviceGetMemoryInfo": SimpleNamespace(used=self.used, total=2**37),
            "nvmlDeviceGetComputeRunningProcesses": [SimpleNamespace(pid=pid) for pid in self.pids],
            "nvmlDeviceGetPowerUsage": self.milliwatts,
            "nvmlDeviceGetTotalEnergyConsumption": self.millijoules,
        }
        return lambda *_arguments: answers[name]


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    played = Driver()
    monkeypatch.setattr(board, "pynvml", played)
    return played


def test_a_device_as_it_was_found_is_clean(driver):
    assert Board().clean(within_seconds=0)[0]


def test_a_process_left_on_the_device_is_seen(driver):
    found = Board()
    driver.pids.append(8)
    assert found.clean(within_seconds=0) == (False, "1 processes, +0 MiB against the idle device")


def test_memory_left_without_a_process_is_seen(driver):
    found = Board()
    driver.used += CONTEXT
    assert found.clean(within_seconds=0) == (False, "0 processes, +500 MiB against the idle device")


def test_energy_is_integrated_by_trapezoids(driver):
    samples = Samples(Board(), seconds=[0.0, 1.0, 3.0], watts=[100.0, 300.0, 300.0])
    assert samples.integrated_joules() == pytest.approx(800.0)


def test_a_machine_without_a_driver_cannot_be_judged(monkeypatch):
    monkeypatch.setattr(board, "pynvml", Driver(there=False))
    with pytest.raises(CannotApply, match="Driver Not Loaded"):
        Board()
