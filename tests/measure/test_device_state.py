"""A CUDA device's state through NVML. No GPU is needed: a fake library answers at NVML's boundary as nvml.h says."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import contextmanager
from types import SimpleNamespace

import pynvml
import pytest

from accelsweep.devices import cuda as room
from accelsweep.measure.machine_state import DeviceWatch, device_state
from accelsweep.measure.run_doubts import device_doubts
from accelsweep.plain_json import canonical_json
from accelsweep.run_environment import MachineState, RunEnvironment


class FakeNvml:
    """A device that is held back by heat for `hot` of each second; `silent` are the functions that it lacks."""

    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0

    def __init__(self, hot=0.0, silent=(), pids=()):
        self.seconds, self.hot, self.silent, self.asked = 1000.0, hot, silent, 0
        self.pids = pids

    def __getattr__(self, name):
        answers = {
            "nvmlDeviceGetMemoryInfo": lambda _: SimpleNamespace(used=1, total=2),
            "nvmlDeviceGetCurrentClocksThrottleReasons": lambda _: 0,
            "nvmlDeviceGetPowerUsage": lambda _: 250_000,
            "nvmlDeviceGetEnforcedPowerLimit": lambda _: 700_000,
            "nvmlDeviceGetName": lambda _: b"Fake H100",
            "nvmlDeviceGetClockInfo": lambda *_: 1980,
            "nvmlDeviceGetMaxClockInfo": lambda *_: 1980,
            "nvmlDeviceGetTemperature": lambda *_: 60,
            "nvmlDeviceGetComputeRunningProcesses": lambda _: [SimpleNamespace(pid=pid) for pid in self.pids],
            "nvmlDeviceGetViolationStatus": self._violation,
        }
        if name in self.silent:
            return self._refuse
        return answers[name]

    def _violation(self, _, policy):
        held_back = self.hot * self.seconds if policy == 1 else 0.0
        return SimpleNamespace(referenceTime=int(self.seconds * 1e6), violationTime=int(held_back * 1e9))

    def _refuse(self, *_):
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)


@pytest.fixture
def device(monkeypatch):
    """A function that puts a fake device in the place of the driver's library."""

    def put(**options):
        library = FakeNvml(**options)

        @contextmanager
        def nvml():
            library.asked += 1
            yield library

        monkeypatch.setattr(room, "nvml", nvml)
        monkeypatch.setattr(room, "handle_of", lambda _, uuid: uuid)
        return library

    return put


def test_a_state_is_json_in_the_units_of_its_names(device):
    device(hot=0.5)
    state = device_state("GPU-0", "cuda")
    canonical_json(state)
    assert (state["name"], state["watts"], state["watts_limit"]) == ("Fake H100", 250.0, 700.0)
    assert state["held_back"] == {
        "power cap": [0.0, 1000.0],
        "heat": [500.0, 1000.0],
        "board limit": [0.0, 1000.0],
        "reliability": [0.0, 1000.0],
    }


def test_throttling_between_the_two_readings_of_a_window_is_doubted_although_neither_sees_it(device):
    for hot, codes in ((0.2, ["throttled"]), (0.0, [])):
        library, watch = device(hot=hot), DeviceWatch("GPU-0", "cuda")
        watch.start()
        library.seconds += 5.0
        watch.stop()
        assert watch.states["opened"]["devices"][0]["throttles"] == []
        found = device_doubts(*RunEnvironment(watch.states).around_the_window)
        assert [doubt.code for doubt in found] == codes
    assert library.asked == 2, "once as the window opens, once as it closes"


def test_a_driver_without_these_counters_is_no_doubt(device):
    library, watch = device(hot=0.9, silent=("nvmlDeviceGetViolationStatus",)), DeviceWatch("GPU-0", "cuda")
    watch.start()
    library.seconds += 5.0
    watch.stop()
    assert set(watch.states["closed"]["devices"][0]["held_back"].values()) == {None}
    assert device_doubts(*RunEnvironment(watch.states).around_the_window) == []


@pytest.fixture
def other():
    """A function that starts a process, in this process's group or in one of its own; all are ended with the test."""
    started = []

    def start(*, apart):
        command = [sys.executable, "-c", "input()"]
        started.append(subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=apart))
        return started[-1].pid

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_two_processes_of_others_are_named_and_those_of_the_run_are_not(device, other):
    theirs, ours = [other(apart=True), other(apart=True)], [os.getpid(), other(apart=False)]
    device(pids=[*theirs, *ours])
    state = device_state("GPU-0", "cuda")
    assert state["foreign_processes"] == theirs
    (doubt,) = device_doubts(*[MachineState.of({"devices": [state]})] * 2)
    assert (doubt.code, str(theirs[0]) in doubt.message, str(theirs[1]) in doubt.message) == (
        "foreign_process",
        True,
        True,
    )


def test_ids_of_the_host_inside_a_container_name_nobody(device):
    device(pids=[os.getpid(), 2**22 + 1])
    assert device_state("GPU-0", "cuda")["foreign_processes"] is None
