"""Reads the machine's state: devices and host before and after a run, CPU usage during the window, and the fingerprint.

States are JSON dictionaries. A value that cannot be read is null; a device without telemetry has a `reason`.
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
from accelsweep.devices.cpu import ISA_LIMITS, cpu_model, host_facts
from accelsweep.devices.device_kind import TelemetryUnavailable
from accelsweep.devices.host import ProcessorTimes
from accelsweep.devices.kinds import environment_prefixes, hardware_fingerprint, telemetry_of
from accelsweep.devices.linux import allowed_cores
from accelsweep.devices.memory_limits import free_memory
from accelsweep.redaction import is_secret_name, masked
from accelsweep.results import Fingerprint


def device_state(identity: str, accelerator: str) -> dict[str, Any]:
    """Return the device's clocks, temperature, power, throttle reasons and processes, or the `reason` if unavailable.

    `identity` is the device's name in its driver's telemetry.
    """
    try:
        return {"uuid": identity, **telemetry_of(accelerator).state(identity)}
    except TelemetryUnavailable as error:
        return {"uuid": identity, "reason": str(error)}


class DeviceWatch:
    """A device's state when the window opens and closes: under load, unlike the states before and after the run.

    The driver is only queried outside the timed steps, because a polling thread would compete with the loop for the
    interpreter. The driver's own counters (`held_back`) cover the time in between.
    """

    def __init__(self, identity: str, accelerator: str) -> None:
        """`identity` is the device's name in its driver's telemetry."""
        self._identity, self._accelerator = identity, accelerator
        self.states: dict[str, dict[str, Any]] = {}

    def start(self) -> None:
        """Read the state when the window opens."""
        self.states["opened"] = {"devices": [device_state(self._identity, self._accelerator)]}

    def stop(self) -> None:
        """Read the state when the window closes."""
        self.states["closed"] = {"devices": [device_state(self._identity, self._accelerator)]}


def environment(identities: tuple[str, ...], accelerator: str) -> dict[str, Any]:
    """Return the current state of the host and of the devices with these `identities`."""
    return {**host_state(), "devices": [device_state(identity, accelerator) for identity in identities]}


def host_state() -> dict[str, Any]:
    """Return the current state of the host only."""
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
    "ATEN_CPU_CAPABILITY",
    *ISA_LIMITS,
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
"""Prefixes of environment variables that can affect a measurement. Others may contain secrets and are not recorded.

Matching variables whose name suggests a secret, such as TORCH_HUB_TOKEN, are not recorded either.
"""


def governor(cpus: Path = Path("/sys/devices/system/cpu")) -> str | None:
    """Return the frequency governor of the cores available to us (`performance`, ...), or None.

    If cores use different governors, all names are returned, separated by commas. `cpus` is the kernel's directory of
    cores.
    """
    names = set()
    for core in allowed_cores():
        with contextlib.suppress(OSError):
            names.add((cpus / f"cpu{core}" / "cpufreq" / "scaling_governor").read_text().strip())
    return ", ".join(sorted(names)) or None


class CpuUse:
    """CPU seconds between `start` and `stop` for this rank (with its loader workers) and all processes on its cores.

    Only the cores available to the rank are included, because load on a shared machine's other cores takes no CPU time
    from it. Swap, page faults and the time for which the machine slept are also recorded.
    """

    def __init__(self, clock: Clock = monotonic) -> None:
        """`clock` measures the length of the interval."""
        self._clock = clock
        self._before: dict[str, float] = {}
        self._cores: set[int] = set()
        self.reading: dict[str, float] = {}

    def start(self) -> None:
        """Read all counters before the window."""
        self._cores = allowed_cores()
        self._before = self._read()

    def stop(self) -> None:
        """Read all counters after the window, and set `reading` to the differences. A new window begins here."""
        before, self._before = self._before, self._read()
        self.reading = {name: self._before[name] - value for name, value in before.items()}
        self.reading["clock_gap"] = clock_gap(self.reading)
        self.reading["first_core"] = float(min(self._cores))

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
    """Return the busy seconds of the `allowed` cores, or of all cores if `times` lacks some of them.

    Containers may renumber the cores that they list; in that case all listed cores are ours.
    """
    if allowed < times.by_core.keys():
        return sum(times.by_core[core] for core in allowed)
    return times.busy


def foreign_cores(readings: list[dict[str, Any]]) -> float | None:
    """Return the average number of cores that other processes kept busy during the window; None if unknown.

    `readings` are those of all ranks on one host. The number is unknown if our cores' counters report less than our own
    usage, as in some containers.
    """
    if not readings or any(not reading for reading in readings):
        return None
    seconds = max(float(reading["seconds"]) for reading in readings)
    ours = sum(float(reading["ours"]) for reading in readings)
    by_cores: dict[float, float] = {}  # ranks that are bound to different NUMA nodes have different cores
    for reading in readings:
        cores = reading.get("first_core", 0.0)
        by_cores[cores] = max(by_cores.get(cores, 0.0), float(reading["busy"]))
    busy = sum(by_cores.values())
    if seconds <= 0 or busy < 0.9 * ours:
        return None
    return max(0.0, (busy - ours) / seconds)


PACKAGES = ("torch", "lightning")
"""Packages whose version, without its local part, is included in the fingerprint."""


def fingerprint(
    sources: Mapping[str, str], accelerator: str | None = None, software: Mapping[str, str] | None = None
) -> Fingerprint:
    """Return this machine's fingerprint for runs on `accelerator`; requires neither torch nor CUDA.

    For `cpu`, the machine's GPUs are omitted, so that a node counts as the same hardware with and without an allocated
    GPU; None includes all devices. `sources` are the digests of the user's packages. `software` contains the versions
    of the environment used by runs, if it is not this one.
    """
    if software is None:
        software = {package: metadata.version(package) for package in PACKAGES}
    split = {package: version.partition("+") for package, version in software.items()}
    return Fingerprint(
        hardware={"host": cpu_model(), **hardware_fingerprint(accelerator)},
        software={package: public for package, (public, _, _) in split.items()},
        builds={package: tag for package, (_, _, tag) in split.items() if tag},
        sources=dict(sources),
    )
