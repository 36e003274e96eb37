"""The state of host and devices, CPU use during the window, and fingerprints."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import contextmanager
from types import SimpleNamespace

import pynvml
import pytest
from fake_nvml import FakeGpu, FakeNvml

from accelsweep.devices import cuda, host
from accelsweep.devices.host import ProcessorTimes, processor_times
from accelsweep.measure import machine_state, run_doubts
from accelsweep.measure.machine_state import (
    CpuUse,
    DeviceWatch,
    busy_seconds,
    device_state,
    environment,
    fingerprint,
    foreign_cores,
    governor,
    host_state,
)
from accelsweep.measure.run_doubts import device_doubts
from accelsweep.plain_json import canonical_json
from accelsweep.run_environment import MachineState, RunEnvironment


def test_the_host_state_is_json_and_names_the_machine():
    seen = host_state()
    canonical_json(seen)
    assert seen["cores_usable"] >= 1
    assert seen["memory_bytes"] > 0
    assert seen["cpu_model"]


def test_available_memory_respects_the_containers_limit(monkeypatch):
    monkeypatch.setattr("accelsweep.devices.memory_limits.cgroup_free_memory", lambda: 5)
    assert host_state()["memory_available_bytes"] == 5


def test_only_relevant_variables_are_recorded(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    monkeypatch.setenv("ZE_FLAT_DEVICE_HIERARCHY", "FLAT")
    monkeypatch.setenv("MY_SECRET_TOKEN", "hush")
    variables = host_state()["variables"]
    assert variables["OMP_NUM_THREADS"] == "3"
    assert (variables["CUDA_VISIBLE_DEVICES"], variables["ZE_FLAT_DEVICE_HIERARCHY"]) == ("1", "FLAT")
    assert "MY_SECRET_TOKEN" not in variables


def test_the_governor_is_that_of_the_allowed_cores(tmp_path, monkeypatch):
    monkeypatch.setattr(machine_state, "allowed_cores", lambda: {0, 1, 5})
    assert governor(tmp_path) is None
    for core, name in enumerate(["performance", "powersave", "ondemand"]):
        folder = tmp_path / f"cpu{core}" / "cpufreq"
        folder.mkdir(parents=True)
        (folder / "scaling_governor").write_text(f"{name}\n")
    assert governor(tmp_path) == "performance, powersave"


def test_a_device_without_telemetry_has_a_reason():
    (device,) = environment(("GPU-00000000-0000-0000-0000-000000000000",), "cuda")["devices"]
    assert device["reason"].startswith("NVML")


def test_a_device_is_read_as_the_window_opens_and_as_it_closes(monkeypatch):
    """Idle before and after, throttled only while it works: the window's own two readings see it."""
    monkeypatch.setattr(machine_state, "device_state", lambda uuid, _: {"uuid": uuid, "reading": next(readings)})
    readings = iter([1, 2])
    watch = DeviceWatch("GPU-0", "cuda")
    watch.start()
    watch.stop()
    assert watch.states == {
        "opened": {"devices": [{"uuid": "GPU-0", "reading": 1}]},
        "closed": {"devices": [{"uuid": "GPU-0", "reading": 2}]},
    }


def test_variables_named_like_secrets_are_not_recorded_and_urls_are_masked(monkeypatch):
    hidden = ["TORCH_HUB_TOKEN", "NCCL_AUTH_KEY", "PYTORCH_SECRET_FILE", "OMP_PASSWORD", "TORCH_CREDENTIAL_PATH"]
    for name in hidden:
        monkeypatch.setenv(name, "hunter2")
    monkeypatch.setenv("TORCH_KEYED_CACHE", "1")
    monkeypatch.setenv("TORCH_MIRROR", "https://me:hunter2@host/hub")
    variables = host_state()["variables"]
    assert not variables.keys() & set(hidden)
    assert variables["TORCH_KEYED_CACHE"] == "1"
    assert variables["TORCH_MIRROR"] == "https://***@host/hub"


class ThrottledNvml:
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
            "nvmlDeviceGetUtilizationRates": lambda *_: SimpleNamespace(gpu=93, memory=41),
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
        library = ThrottledNvml(**options)

        @contextmanager
        def nvml():
            library.asked += 1
            yield library

        monkeypatch.setattr(cuda, "nvml", nvml)
        monkeypatch.setattr(cuda, "handle_of", lambda _, uuid: uuid)
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


def test_foreign_processes_are_named_and_those_of_the_run_are_not(device, other):
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


def test_process_ids_of_the_host_are_ignored_inside_a_container(device):
    device(pids=[os.getpid(), 2**22 + 1])
    assert device_state("GPU-0", "cuda")["foreign_processes"] is None


@pytest.fixture
def stat(tmp_path, monkeypatch):
    """Return a function that writes the kernel's table: the hundredths of a second that each core was busy."""
    if sys.platform != "linux":
        pytest.skip("/proc/stat is Linux's")

    def write(hundredths):
        rows = {"cpu": sum(hundredths.values()), **{f"cpu{core}": busy for core, busy in hundredths.items()}}
        lines = [f"{name} {busy} 0 0 1000 0 0 0 0 0 0" for name, busy in rows.items()]
        (tmp_path / "stat").write_text("\n".join([*lines, "ctxt 1", ""]))

    monkeypatch.setattr(host, "PROC", tmp_path)
    monkeypatch.setattr(host.os, "sysconf", lambda _: 100)
    return write


def test_cores_are_identified_by_number_even_if_others_are_offline(stat):
    stat({0: 100, 4: 200, 8: 4000})
    assert processor_times().by_core == {0: 1.0, 4: 2.0, 8: 40.0}
    assert busy_seconds(processor_times(), {0, 4}) == 3.0


def test_a_process_that_may_use_all_cores_sees_the_whole_machine(stat):
    stat({0: 100, 1: 200})
    assert busy_seconds(processor_times(), {0, 1}) == 3.0


def test_the_cores_shown_by_a_container_that_renumbers_them_are_ours(stat):
    stat({0: 100, 1: 200})
    assert busy_seconds(processor_times(), {6, 7}) == busy_seconds(processor_times(), {1, 2}) == 3.0


def test_load_on_other_cores_of_a_shared_machine_is_no_doubt(monkeypatch):
    """Eight cores of 128 are ours, two of them busy with us; on the rest others keep a hundred busy."""
    ours, seconds = set(range(8)), iter([0.0, 10.0])
    by_core = dict.fromkeys(range(128), 0.0)
    monkeypatch.setattr(machine_state, "allowed_cores", lambda: ours)
    monkeypatch.setattr(run_doubts, "allowed_cores", lambda: ours)
    monkeypatch.setattr(host, "processor_times", lambda: ProcessorTimes(sum(by_core.values()), dict(by_core)))
    monkeypatch.setattr(host, "processor_seconds", lambda: by_core[0] + by_core[1])
    use = CpuUse(clock=lambda: next(seconds))
    use.start()
    by_core |= dict.fromkeys((0, 1, *range(20, 120)), 10.0)
    use.stop()
    assert foreign_cores([use.reading]) == 0.0
    assert run_doubts.busy_cpu(foreign_cores([use.reading]), use.reading["ours"] / 10.0) is None


def test_foreign_load_on_our_cores_is_doubted_even_on_a_shared_machine(monkeypatch):
    monkeypatch.setattr(run_doubts, "allowed_cores", lambda: {0, 1})
    busy = busy_seconds(ProcessorTimes(20.0, {0: 10.0, 1: 10.0, 2: 0.0, 3: 0.0}), {0, 1})
    assert run_doubts.busy_cpu(foreign_cores([{"seconds": 10.0, "ours": 15.0, "busy": busy}]), 1.5).code == "busy_cpu"


def test_local_build_tags_are_split_off_the_public_version(monkeypatch):
    monkeypatch.setattr(machine_state.metadata, "version", {"torch": "2.13.0+cpu", "lightning": "2.6.6"}.__getitem__)
    made = fingerprint({"mine": "abc"})
    assert made.software == {"torch": "2.13.0", "lightning": "2.6.6"}
    assert made.builds == {"torch": "cpu"}
    assert made.sources == {"mine": "abc"}


def test_another_environment_is_named_by_its_own_packages_only():
    theirs = {"python": "3.10.4", "torch": "2.1.2+cu118", "pytorch-lightning": "2.0.9"}
    made = fingerprint({}, "cpu", theirs)
    assert made.software == {**theirs, "torch": "2.1.2"}
    assert made.builds == {"torch": "cu118"}


def test_another_build_of_the_same_version_matches_and_another_version_does_not(monkeypatch):
    versions = {"torch": "2.13.0+cpu", "lightning": "2.6.6"}
    monkeypatch.setattr(machine_state.metadata, "version", versions.__getitem__)
    old = fingerprint({})
    versions["torch"] = "2.13.0+cu130"
    assert old.matches(fingerprint({}))
    versions["torch"] = "2.13.1+cu130"
    assert not old.matches(fingerprint({}))


def test_a_granted_gpu_changes_the_hardware_of_gpu_runs_only(monkeypatch):
    without = fingerprint({}, "cpu"), fingerprint({}, "cuda")
    monkeypatch.setattr(cuda, "nvml", FakeNvml(FakeGpu("GPU-0", "NVIDIA H100 80GB HBM3")).opened)
    assert fingerprint({}, "cpu") == without[0]
    assert fingerprint({}, "cuda") != without[1]


def test_the_fingerprint_needs_no_torch():
    code = (
        "import sys; from accelsweep.measure.machine_state import fingerprint; fingerprint({});"
        "sys.exit('torch' in sys.modules or 'lightning' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("with_psutil", [True, False])
def test_a_loader_worker_that_has_ended_is_no_foreign_load(monkeypatch, with_psutil):
    if not with_psutil:
        monkeypatch.setattr(host, "_psutil", None)
    before = host.processor_seconds()
    subprocess.run(
        [sys.executable, "-c", "import time\nwhile time.process_time() < 0.5: pass"], check=True, close_fds=True
    )
    assert host.processor_seconds() - before >= 0.45
