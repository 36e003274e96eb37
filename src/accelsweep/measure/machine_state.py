"""The state of the machine right before and right after a run, and the differences that are reasons to doubt it.

Each reading is a dictionary that JSON can hold. A value that cannot be read is null, and the GPU's part says why.
"""

from __future__ import annotations

import contextlib
import os
import resource
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil

from accelsweep.devices.clock import Clock, all_clocks, clock_gap, monotonic
from accelsweep.devices.cpu import cpu_model, host_facts
from accelsweep.devices.device_kind import TelemetryUnavailable
from accelsweep.devices.kinds import environment_prefixes, hardware_fingerprint, monitored_devices, telemetry_of
from accelsweep.devices.linux import allowed_cores
from accelsweep.devices.memory_limits import free_memory
from accelsweep.measure.run_doubts import FOREIGN
from accelsweep.records.run_environment import DeviceState
from accelsweep.records.run_record import Fingerprint
from accelsweep.redaction import is_secret_name, masked
from accelsweep.schedulers.select import RECORDED_VARIABLES

# The state of a device, read through its driver: clocks, temperature, power, throttle reasons, other processes.


def device_state(identity: str, accelerator: str) -> dict[str, Any]:
    """Return the state of the device called `identity` by its kind, or a `reason` beside its `uuid`."""
    try:
        return {"uuid": identity, **telemetry_of(accelerator).state(identity)}
    except TelemetryUnavailable as error:
        return {"uuid": identity, "reason": str(error)}


class DeviceWatch:
    """The state of a device as the window opens and as it closes: at work, unlike before and after the run.

    The driver is asked at these two moments only, outside of the timed steps. A thread that polled it would compete
    with the loop for the interpreter. The driver's own counters (`held_back`) cover the time between.
    """

    def __init__(self, identity: str, accelerator: str) -> None:
        """`identity` names the device as its kind does."""
        self._identity, self._accelerator = identity, accelerator
        self.states: dict[str, dict[str, Any]] = {}

    def start(self) -> None:
        """Read the state after warm-up."""
        self.states["opened"] = {"devices": [device_state(self._identity, self._accelerator)]}

    def stop(self) -> None:
        """Read the state at the end of the work."""
        self.states["closed"] = {"devices": [device_state(self._identity, self._accelerator)]}


def environment(identities: tuple[str, ...], accelerator: str) -> dict[str, Any]:
    """Return the present state of the host and of the devices that their kind calls `identities`."""
    return {**host_state(), "devices": [device_state(identity, accelerator) for identity in identities]}


def host_state() -> dict[str, Any]:
    """Return the present state of the host alone."""
    swap = psutil.swap_memory()
    return {
        **host_facts(),
        "load_average_1min": psutil.getloadavg()[0],
        "memory_available_bytes": free_memory().bytes,
        "swap_used_bytes": swap.used,
        "swapped_in_bytes": swap.sin,
        "swapped_out_bytes": swap.sout,
        "governor": governor(),
        "cpu_mhz": _mhz(),
        "cpu_celsius": _celsius(),
        "variables": {
            name: masked(os.environ[name])
            for name in sorted(os.environ)
            if name.startswith(_TELLING) and not is_secret_name(name)
        },
    }


_TELLING = (
    "OMP_",
    "MKL_",
    "KMP_",
    "OPENBLAS_",
    "NVIDIA_TF32_OVERRIDE",
    "CUBLAS_",
    "CUDNN_",
    "NCCL_",
    "GLOO_",
    "PYTORCH_",
    "TORCH_",
    "LD_PRELOAD",
    "PYTHONDEVMODE",
    "PYTHONMALLOC",
    "PYTHONTRACEMALLOC",
    *RECORDED_VARIABLES,
    *environment_prefixes(),
)
"""Beginnings of the environment variables that can change a measurement; others may hold secrets and are not kept.

Nor is one of these whose name tells of a secret, such as TORCH_HUB_TOKEN."""


def governor(cpus: Path = Path("/sys/devices/system/cpu")) -> str | None:
    """Return the frequency governor of the cores that we may use (`performance`, ...), or None where there is none.

    Several are joined by commas. `cpus` is the folder of cores.
    """
    names = set()
    for core in allowed_cores():
        with contextlib.suppress(OSError):
            names.add((cpus / f"cpu{core}" / "cpufreq" / "scaling_governor").read_text().strip())
    return ", ".join(sorted(names)) or None


def _mhz() -> float | None:
    try:
        frequency = psutil.cpu_freq()
    except (AttributeError, OSError, NotImplementedError):
        return None
    return round(frequency.current, 1) if frequency is not None else None


def _celsius() -> float | None:
    try:
        sensors = psutil.sensors_temperatures()
    except (AttributeError, OSError):
        return None
    values = [reading.current for name in ("coretemp", "k10temp", "cpu_thermal") for reading in sensors.get(name, [])]
    return max(values) if values else None


# The processor time of the window, ours and that of others; whether the machine had to swap, or slept, meanwhile.


class CpuUse:
    """Processor seconds between `start` and `stop`: this rank's (with its loader processes) and all on its cores.

    Its cores are those that it may run on. Other processes on the rest of a shared machine take no processor time from
    it.
    """

    def __init__(self, clock: Clock = monotonic) -> None:
        """`clock` gives the length of the interval."""
        self._clock = clock
        self._before: dict[str, float] = {}
        self._cores: set[int] = set()
        self.reading: dict[str, float] = {}

    def start(self) -> None:
        """Read all counters before the window."""
        self._cores = allowed_cores()
        self._before = self._read()

    def stop(self) -> None:
        """Read all counters after the window; `reading` then holds the differences."""
        after = self._read()
        self.reading = {name: after[name] - before for name, before in self._before.items()}
        self.reading["clock_gap"] = clock_gap(self.reading)

    def _read(self) -> dict[str, float]:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        swap = psutil.swap_memory()
        return {
            "seconds": self._clock(),
            **all_clocks(),
            "ours": _process_seconds(),
            "busy": busy_seconds(busy_by_core(), self._cores),
            "major_faults": float(usage.ru_majflt),
            "involuntary_switches": float(usage.ru_nivcsw),
            "swapped_bytes": float(swap.sin + swap.sout),
        }


def _process_seconds() -> float:
    process = psutil.Process()
    total = 0.0
    for member in (process, *process.children(recursive=True)):
        try:
            times = member.cpu_times()
        except psutil.Error:
            continue
        total += times.user + times.system
    return total


def busy_by_core() -> dict[int, float]:
    """Return the busy seconds of each logical core since the machine began, by the core's number.

    Linux leaves switched-off cores out of its list, and psutil leaves out the numbers. Both have the same cores in the
    same order.
    """
    times = psutil.cpu_times(percpu=True)
    try:
        lines = Path(getattr(psutil, "PROCFS_PATH", "/proc"), "stat").read_text().splitlines()
    except OSError:
        lines = []
    numbers = [int(line.split()[0][3:]) for line in lines if line.startswith("cpu") and line[3].isdigit()]
    return dict(zip(numbers or range(len(times)), map(_busy, times), strict=False))


def busy_seconds(by_core: Mapping[int, float], allowed: set[int]) -> float:
    """Return the busy seconds of the `allowed` cores, or of the whole machine where `by_core` lacks some of them.

    Containers may give new numbers to the cores that they show. Those are ours, and their sum is the answer.
    """
    if allowed < by_core.keys():
        return sum(by_core[core] for core in allowed)
    return _busy(psutil.cpu_times())


def _busy(times: Any) -> float:
    idle = times.idle + getattr(times, "iowait", 0.0)
    guests = getattr(times, "guest", 0.0) + getattr(times, "guest_nice", 0.0)
    return float(sum(times) - idle - guests)


def foreign_cores(readings: list[dict[str, Any]]) -> float | None:
    """Return how many cores other processes kept busy during the window, on average; None where it is unknown.

    `readings` are those of all ranks of one host. Where the counter of our cores shows less than we used ourselves
    (some containers show none), there is nothing to conclude.
    """
    if not readings or any(not reading for reading in readings):
        return None
    seconds = max(float(reading["seconds"]) for reading in readings)
    ours = sum(float(reading["ours"]) for reading in readings)
    busy = max(float(reading["busy"]) for reading in readings)
    if seconds <= 0 or busy < 0.9 * ours:
        return None
    return max(0.0, (busy - ours) / seconds)


# Others that use this machine now. The look comes before anything is measured; a run looks again by itself.

LOOK_SECONDS = 0.5

_MOST_NAMES = 3

_LEAST_CORES = 0.05
"""Processes that use less than this share of one core are not named."""


def busy_now(seconds: float = LOOK_SECONDS) -> list[str]:
    """Look for `seconds`; return a sentence for the processor and for each GPU that others keep busy."""
    return [*_processor(seconds), *_gpus()]


@dataclass(frozen=True)
class _Look:
    """The counters of one moment, in seconds: the clock, the busy time of our cores, and each process' own."""

    at: float
    busy: float
    used: dict[psutil.Process, float]

    @classmethod
    def now(cls, cores: set[int]) -> _Look:
        return cls(time.monotonic(), busy_seconds(busy_by_core(), cores), _seconds_by_process())


def _processor(seconds: float) -> Iterator[str]:
    cores = allowed_cores()
    before = _Look.now(cores)
    time.sleep(seconds)
    after = _Look.now(cores)
    elapsed = after.at - before.at
    shares = {process: (now - before.used.get(process, now)) / elapsed for process, now in after.used.items()}
    own = _ours()
    others = (after.busy - before.busy) / elapsed - sum(shares.get(process, 0.0) for process in own)
    if others >= FOREIGN * len(cores):
        named = _names({process: share for process, share in shares.items() if process not in own})
        yield f"other processes keep {others:.1f} of {len(cores)} cores busy now ({named})"


def _seconds_by_process() -> dict[psutil.Process, float]:
    found = {}
    for process in psutil.process_iter():
        try:
            times = process.cpu_times()
        except psutil.Error:
            continue
        found[process] = times.user + times.system
    return found


def _ours() -> set[psutil.Process]:
    process = psutil.Process()
    return {process, *process.children(recursive=True)}


def _names(shares: dict[psutil.Process, float]) -> str:
    busiest = sorted((process for process in shares if shares[process] >= _LEAST_CORES), key=lambda each: -shares[each])
    return ", ".join(map(_name, busiest[:_MOST_NAMES])) or "none of those that can be seen from here"


def _gpus() -> Iterator[str]:
    for gpu in monitored_devices():
        state = DeviceState.of(device_state(gpu.identity, gpu.accelerator))
        if others := state.foreign_processes:
            names = ", ".join(_name_of(pid) for pid in others[:_MOST_NAMES])
            yield f"other processes compute on {state.name or gpu.model} now ({names})"


def _name_of(pid: int) -> str:
    try:
        return _name(psutil.Process(pid))
    except psutil.NoSuchProcess:
        return f"id {pid}"


def _name(process: psutil.Process) -> str:
    try:
        return f"{process.name()} with id {process.pid}"
    except psutil.Error:
        return f"id {process.pid}"


# The facts that must be equal for an old record to stand for a new run. Made without torch or CUDA.

PACKAGES = ("torch", "lightning")
"""Packages whose public version is part of the fingerprint."""


def fingerprint(
    sources: Mapping[str, str], accelerator: str | None = None, software: Mapping[str, str] | None = None
) -> Fingerprint:
    """Return this machine's fingerprint for runs on `accelerator`; `sources` are the digests of the user's packages.

    For `cpu` the GPUs of the machine are left out. So the same nodes with and without a granted GPU are one hardware.
    None takes the devices of every kind. `software` are the versions of an environment that runs are started with;
    None or none takes those of this one.
    """
    versions = {package: (software or {}).get(package) or metadata.version(package) for package in PACKAGES}
    split = {package: version.partition("+") for package, version in versions.items()}
    return Fingerprint(
        hardware={"host": cpu_model(), **hardware_fingerprint(accelerator)},
        software={package: public for package, (public, _, _) in split.items()},
        builds={package: tag for package, (_, _, tag) in split.items() if tag},
        sources=dict(sources),
    )
