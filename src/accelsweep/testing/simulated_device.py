"""The driver of the simulated device: a folder of files, which every process of a machine reads and writes.

`device.json` says what the device is. Each process that uses it keeps a file below `processes`, with the memory that it
holds and the time for which it worked. The rest follows: memory in use, energy, heat, who else computes. As with a real
driver, nobody needs torch to ask, and a process that is killed leaves its energy behind and none of its memory.
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
"""The environment variable that names the folder. Without it there is no simulated device."""

UUID = "SIM-00000000"


@dataclass(frozen=True)
class Spec:
    """The device and the costs of its operations, in its own time.

    Each operation takes `kernel_seconds`, or what `seconds` says of it (`aten.mm`). Products and convolutions take
    their operations over `flops_per_second` on top. A copy from or to the host takes its bytes over
    `copy_bytes_per_second`.
    Each of `stalls` is (busy seconds after which it comes, seconds). From `throttled_after` busy seconds on everything
    takes `throttle` times as long. `launch_seconds` is the host's own time per operation, on a simulated clock only.
    With `wear` everything takes so many times as long, and nobody is told: the device seems to be as all others of its
    model.
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
    stalls: tuple[tuple[float, float], ...] = ()
    throttled_after: float | None = None
    throttle: float = 2.0
    mhz: int = 1000
    celsius: int = 40
    wear: float = field(default=1.0, repr=False)

    @classmethod
    def read(cls, folder: Path) -> Spec:
        """Read `device.json`. Raises TelemetryUnavailable where it cannot be read or holds an unknown key."""
        try:
            found = json.loads((folder / "device.json").read_text("utf-8"))
            return cls(**{**found, "stalls": tuple(map(tuple, found.get("stalls", ())))})
        except (OSError, ValueError, TypeError) as error:
            known = ", ".join(one.name for one in fields(cls))
            raise TelemetryUnavailable(
                f"the simulated device in {folder} cannot be read ({error}); its keys are {known}"
            ) from None

    def write(self, folder: Path) -> None:
        """Make the device in `folder`."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "device.json").write_text(json.dumps(self.__dict__), "utf-8")


@dataclass
class Use:
    """The work of one process on the device: bytes that it holds, seconds of its work, seconds of these held back.

    The work is queued until the moment `free_at`, so a part of `busy` may lie ahead.
    """

    bytes: int = 0
    busy: float = 0.0
    held_back: float = 0.0
    free_at: float = 0.0

    def done(self, now: float) -> float:
        """Return the seconds of work until now."""
        return max(0.0, self.busy - max(0.0, self.free_at - now))


class Presence:
    """The device as this process uses it. The telemetry of the same process sees `use` at once."""

    def __init__(self, folder: Path) -> None:
        """Nothing is written before `tell`."""
        self.use, self.folder = Use(), folder
        self._file = folder / "processes" / f"{os.getpid()}.json"

    def tell(self) -> None:
        """Write the use for other processes to read."""
        self._file.parent.mkdir(parents=True, exist_ok=True)
        draft = self._file.with_suffix(".draft")
        draft.write_text(json.dumps(self.use.__dict__), "utf-8")
        draft.replace(self._file)


PRESENCES: dict[Path, Presence] = {}
"""The work of this process on devices, by the device's folder."""


def folder() -> Path | None:
    """Return the folder of this machine's simulated device; None where there is none."""
    named = os.environ.get(SIMULATED_VARIABLE)
    return Path(named) if named else None


def uses(where: Path) -> dict[int, Use]:
    """Return what each process did on the device, those that have ended included."""
    found = dict(_written(where))
    if where in PRESENCES:
        found[os.getpid()] = PRESENCES[where].use
    return found


def _written(where: Path) -> Iterator[tuple[int, Use]]:
    for file in (where / "processes").glob("*.json"):
        try:
            yield int(file.stem), Use(**json.loads(file.read_text("utf-8")))
        except (OSError, ValueError, TypeError):  # it goes away or is written just now
            continue


def living(where: Path) -> dict[int, Use]:
    """Return the processes that are on the device now."""
    return {pid: use for pid, use in uses(where).items() if pid_exists(pid)}


class SimulatedTelemetry:
    """The driver's answers about the device of this machine. The clock is `time.perf_counter`, like the device's."""

    def state(self, identity: str) -> dict[str, Any]:
        """Return the device's state. Raises TelemetryUnavailable where there is no such device."""
        where, spec = _device(identity)
        everyone, here, now = uses(where), living(where), time.perf_counter()
        held_back = sum(use.held_back for use in everyone.values())
        hot = spec.throttled_after is not None and any(use.held_back for use in here.values())
        return {
            "name": spec.model,
            "sm_mhz": round(spec.mhz / spec.throttle) if hot else spec.mhz,
            "sm_mhz_max": spec.mhz,
            "memory_mhz": spec.mhz,
            "celsius": spec.celsius,
            "watts": spec.watts_busy if any(use.free_at > now for use in here.values()) else spec.watts_idle,
            "watts_limit": spec.watts_busy,
            "memory_used_bytes": sum(use.bytes for use in here.values()),
            "memory_total_bytes": spec.memory_bytes,
            "throttles": [],
            "held_back": {"heat": [held_back, now]},
            "foreign_processes": foreign_processes(here),
        }

    def joules(self, identity: str) -> float:
        """Return the energy so far: idle power all the time, and the rest while a process works."""
        where, spec = _device(identity)
        now = time.perf_counter()
        busy = sum(use.done(now) for use in uses(where).values())
        return spec.watts_idle * now + (spec.watts_busy - spec.watts_idle) * busy


def _device(identity: str) -> tuple[Path, Spec]:
    where = folder()
    if where is None or identity != UUID:
        raise TelemetryUnavailable(f"there is no simulated device {identity} here: {SIMULATED_VARIABLE} names none")
    return where, Spec.read(where)
