"""The state of the machine right before and right after a run, and the differences that are reasons to doubt it.

Each reading is a dictionary that JSON can hold. A value that cannot be read is null, and the GPU's part says why.
"""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from accelsweep import registry
from accelsweep.devices import host
from accelsweep.devices.clock import Clock, all_clocks, clock_gap, monotonic
from accelsweep.devices.cpu import cpu_model, host_facts
from accelsweep.devices.device_kind import TelemetryUnavailable
from accelsweep.devices.host import ProcessorTimes
from accelsweep.devices.kinds import environment_prefixes, hardware_fingerprint, telemetry_of
from accelsweep.devices.linux import allowed_cores
from accelsweep.devices.memory_limits import free_memory
from accelsweep.redaction import is_secret_name, masked
from accelsweep.results import Fingerprint

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
    swap = host.swap()
    return {
        **host_facts(),
        "load_average_1min": os.getloadavg()[0],
        "memory_available_bytes": free_memory().bytes,
        "swap_used_bytes": swap.used,
        "swapped_in_bytes": swap.swapped_in,
        "swapped_out_bytes": swap.swapped_out,
        "governor": governor(),
        "cpu_mhz": host.cpu_mhz(),
        "cpu_celsius": host.cpu_celsius(),
        "variables": {
            name: masked(os.environ[name])
            for name in sorted(os.environ)
            if name.startswith(_PREFIXES) and not is_secret_name(name)
        },
    }


_PREFIXES = (
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
    "SLURM_JOB_ID",
    "SLURM_JOB_PARTITION",
    "SLURMD_NODENAME",
    *(name for scheduler in registry.schedulers() for name in scheduler.variables),
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
        swap = host.swap()
        return {
            "seconds": self._clock(),
            **all_clocks(),
            "ours": host.processor_seconds(),
            "busy": busy_seconds(host.processor_times(), self._cores),
            "major_faults": float(usage.ru_majflt),
            "involuntary_switches": float(usage.ru_nivcsw),
            "swapped_bytes": float(swap.swapped_in + swap.swapped_out),
        }


def busy_seconds(times: ProcessorTimes, allowed: set[int]) -> float:
    """Return the busy seconds of the `allowed` cores, or of the whole machine where `times` lacks some of them.

    Containers may give new numbers to the cores that they show. Those are ours, and their sum is the answer.
    """
    if allowed < times.by_core.keys():
        return sum(times.by_core[core] for core in allowed)
    return times.busy


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
