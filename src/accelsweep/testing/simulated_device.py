"""The driver of the simulated device: a folder of files shared by all processes on a machine.

`device.json` contains the device's properties. Each process that uses the device writes its allocated memory and busy
time to a file under `processes`, from which memory in use, energy, heat and foreign processes are derived. As with a
real driver, telemetry does not require torch. The memory of a killed process is freed, but the energy it used is still
counted.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from accelsweep.devices.device_kind import TelemetryUnavailable, foreign_processes
from accelsweep.devices.host import pid_exists

SIMULATED_VARIABLE = "ACCELSWEEP_SIMULATED"
"""The environment variable that contains the path of the folder. If it is not set, there is no simulated device."""

UUID = "SIM-00000000"


@dataclass(frozen=True)
class Spec:
    """The device's properties and the device time of its operations.

    An operation takes `kernel_seconds`, or the time that `seconds` specifies for its name, such as `aten.mm`. Matrix
    products and convolutions take an additional FLOPs / `flops_per_second`; copies to or from the host take an
    additional bytes / `copy_bytes_per_second`. `stalls` are pairs (busy seconds before the stall, duration of the
    stall). After `throttled_after` busy seconds, all operations take `throttle` times as long. `launch_seconds` is the
    host time per operation, which only a simulated clock takes into account. `wear` is a factor that slows down all
    operations without showing up in telemetry or the fingerprint.
    """

    model: str = "Simulated device"
    memory_bytes: int = 2**30
    kernel_seconds: float = 5e-6
    launch_seconds: float = 2e-6
    seconds: dict[str, float] = field(default_factory=dict)
    flops_per_second: float = 1e9
    copy_bytes_per_second: float = 20e9
    watts_idle: float = 50.0
    watts_busy: float = 300.0
    watts_limit: float = 400.0
    stalls: tuple[tuple[float, float], ...] = ()
    throttled_after: float | None = None
    throttle: float = 2.0
    mhz: int = 1000
    celsius: int = 40
    wear: float = field(default=1.0, repr=False)

    @classmethod
    def read(cls, folder: Path) -> Spec:
        """Read `device.json`. Raises TelemetryUnavailable if it is unreadable or contains an unknown key."""
        try:
            values = json.loads((folder / "device.json").read_text("utf-8"))
            return cls(**{**values, "stalls": tuple(map(tuple, values.get("stalls", ())))})
        except (OSError, ValueError, TypeError) as error:
            known = ", ".join(key.name for key in fields(cls))
            raise TelemetryUnavailable(
                f"the simulated device in {folder} cannot be read ({error}); the valid keys are {known}"
            ) from None

    def write(self, folder: Path) -> None:
        """Create the device in `folder`."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "device.json").write_text(json.dumps(self.__dict__), "utf-8")


@dataclass
class Usage:
    """The allocated bytes and busy seconds of a process; `held_back` is the throttled part of the busy seconds.

    The queue becomes empty at `free_at` on the device's clock; until then, `busy` includes time that has not yet
    passed.
    """

    bytes: int = 0
    busy: float = 0.0
    held_back: float = 0.0
    free_at: float = 0.0

    def busy_until(self, now: float) -> float:
        """Return the busy seconds up to `now`."""
        return max(0.0, self.busy - max(0.0, self.free_at - now))


class ProcessUsage:
    """The usage of this process. Telemetry in the same process reads `use` directly instead of the file."""

    def __init__(self, folder: Path) -> None:
        """`folder` is the device's folder, in which `write` creates the file."""
        self.use, self.folder = Usage(), folder
        self._file = folder / "processes" / f"{os.getpid()}.json"

    def write(self) -> None:
        """Write the usage to the file, for other processes to read."""
        self._file.parent.mkdir(parents=True, exist_ok=True)
        draft = self._file.with_suffix(".draft")
        draft.write_text(json.dumps(self.use.__dict__), "utf-8")
        draft.replace(self._file)


PROCESS_USAGES: dict[Path, ProcessUsage] = {}
"""This process's usage, keyed by the device's folder."""


def folder() -> Path | None:
    """Return the folder of this machine's simulated device, or None if there is no device."""
    path = os.environ.get(SIMULATED_VARIABLE)
    return Path(path) if path else None


def usage_by_process(where: Path) -> dict[int, Usage]:
    """Return the usage of all processes, including those that have ended, keyed by process ID."""
    usage = dict(_read_usage(where))
    if where in PROCESS_USAGES:
        usage[os.getpid()] = PROCESS_USAGES[where].use
    return usage


def _read_usage(where: Path) -> Iterator[tuple[int, Usage]]:
    for file in (where / "processes").glob("*.json"):
        try:
            yield int(file.stem), Usage(**json.loads(file.read_text("utf-8")))
        except (OSError, ValueError, TypeError):  # the file was removed or replaced in the meantime
            continue


def active_processes(where: Path) -> dict[int, Usage]:
    """Return the usage of live processes, keyed by process ID."""
    return {pid: use for pid, use in usage_by_process(where).items() if pid_exists(pid)}


class SimulatedTelemetry:
    """Telemetry of the device on this machine, based on `time.perf_counter`."""

    def state(self, identity: str) -> dict[str, Any]:
        """Return the device's state. Raises TelemetryUnavailable if the device does not exist."""
        readings, (_, spec) = self.readings(identity), _device(identity)
        processes = readings.pop("processes")
        return {
            "name": spec.model,
            "sm_mhz_max": spec.mhz,
            "memory_total_bytes": spec.memory_bytes,
            **readings,
            "foreign_processes": foreign_processes(processes),
        }

    def readings(self, identity: str) -> dict[str, Any]:
        """Return what changes while the device runs. Raises TelemetryUnavailable if the device does not exist."""
        where, spec = _device(identity)
        all_usage, active, now = usage_by_process(where), active_processes(where), time.perf_counter()
        is_busy = any(use.free_at > now for use in active.values())
        hot = spec.throttled_after is not None and any(use.held_back for use in active.values())
        return {
            "sm_mhz": round(spec.mhz / spec.throttle) if hot else spec.mhz,
            "memory_mhz": spec.mhz,
            "utilisation": float(is_busy),
            "celsius": spec.celsius,
            "watts": spec.watts_busy if is_busy else spec.watts_idle,
            "watts_limit": spec.watts_limit,
            "memory_used_bytes": sum(use.bytes for use in active.values()),
            "throttles": ["SwPowerCap"] if is_busy and spec.watts_busy >= spec.watts_limit else [],
            "held_back": {"heat": [sum(use.held_back for use in all_usage.values()), now]},
            "processes": list(active),
        }

    def joules(self, identity: str) -> float:
        """Return the energy used since time 0, at busy power while the device is in use and at idle power otherwise."""
        where, spec = _device(identity)
        now = time.perf_counter()
        busy = sum(use.busy_until(now) for use in usage_by_process(where).values())
        return spec.watts_idle * now + (spec.watts_busy - spec.watts_idle) * busy


def _device(identity: str) -> tuple[Path, Spec]:
    where = folder()
    if where is None or identity != UUID:
        raise TelemetryUnavailable(f"there is no simulated device {identity} here: {SIMULATED_VARIABLE} is not set")
    return where, Spec.read(where)
