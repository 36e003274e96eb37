"""What the devices, the ranks and the host did during a run: readings at regular intervals, and their summary.

A reader returns gauges, such as a temperature, and counters, such as the CPU time of a process so far, which become
rates over the time between two readings. Whatever a machine cannot read is absent, with its reason. Sources: NVML and
other drivers through `devices`, and psutil for the host and for processes.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

import psutil

from accelsweep.devices import host
from accelsweep.devices.device_kind import TelemetryUnavailable, process_group
from accelsweep.devices.kinds import telemetry_of
from accelsweep.measure.energy import PackageEnergy
from accelsweep.measure.run_doubts import POWER_CAPS, held_back_share
from accelsweep.measure.timed_window import quantile
from accelsweep.metrics import SAMPLED, STATISTICS, Metric, quantity_of

TIMES = ("seconds", "since")
"""The time of a row, and that of the row before it on the same node, on the clock of the first node."""


class Reading(NamedTuple):
    """Values by quantity. `counters` only grow; `gauges` are valid at the moment of the reading."""

    gauges: Mapping[str, float]
    counters: Mapping[str, float]


class Reader(Protocol):
    """Reads one thing. `prefix` precedes its quantities in the names of columns."""

    prefix: str

    def read(self) -> Reading:
        """Return a reading. Raises TelemetryUnavailable, with the reason, if nothing can be read."""


class HostReader:
    """Reads the whole machine: CPU time, memory in use, and what disks and networks have transferred."""

    def __init__(self, node: int = 0) -> None:
        """`node` is the machine's number in a run on several of them; the first one has no number in its columns."""
        self.prefix = f"host{node or ''}"

    def read(self) -> Reading:
        """Return a reading. What the system does not report is left out."""
        transferred = {f"{name}_bytes_per_second": total for name, total in host.transferred_bytes().items()}
        return Reading(
            {"memory_bytes": float(host.memory_in_use())}, {"cpu_cores": host.processor_times().busy, **transferred}
        )


class PackageReader:
    """Reads the energy of the host's CPU packages, whose rate is their power."""

    def __init__(self, node: int = 0) -> None:
        """The counters are found once. `node` is the machine's number, as in `HostReader`."""
        self.prefix = f"package{node or ''}"
        self._energy, self._joules = PackageEnergy(), 0.0
        self._energy.start()

    def read(self) -> Reading:
        """Return a reading. Raises TelemetryUnavailable if the counters cannot be read."""
        self._energy.stop()
        if self._energy.joules is None:
            raise TelemetryUnavailable(self._energy.reason)
        self._joules += self._energy.joules
        self._energy.start()
        return Reading({}, {"power_watts": self._joules})


class RankReader:
    """Reads one rank's process: without its loader workers, or with all its descendants if it only runs a command."""

    def __init__(self, rank: int, pid: int, *, descendants: bool = False) -> None:
        """`pid` is the rank's process ID."""
        self.prefix = f"rank{rank}"
        self._pid, self._descendants = pid, descendants
        self._process: psutil.Process | None = None

    def read(self) -> Reading:
        """Return a reading. Raises TelemetryUnavailable once the process has ended."""
        try:
            self._process = self._process or psutil.Process(self._pid)
            with self._process.oneshot():
                times, memory = self._process.cpu_times(), self._process.memory_info()
            descendants = self._process.children(recursive=True) if self._descendants else []
        except psutil.Error:
            raise TelemetryUnavailable("the process has ended") from None
        cpu, resident = times.user + times.system, memory.rss
        if self._descendants:
            cpu += times.children_user + times.children_system  # of those that have ended
            for process in descendants:
                with suppress(psutil.Error), process.oneshot():
                    cpu += sum(process.cpu_times()[:4])
                    resident += process.memory_info().rss
        return Reading({"rss_bytes": float(resident)}, {"cpu_cores": cpu})


_DEVICE_GAUGES = {
    "utilisation": "utilisation",
    "memory_used_bytes": "memory_bytes",
    "watts": "power_watts",
    "watts_limit": "power_limit_watts",
    "celsius": "celsius",
    "sm_mhz": "sm_mhz",
    "memory_mhz": "memory_mhz",
}
"""Keys of a device's readings (`devices.device_kind.READING_KEYS`) -> quantities."""


class DeviceReader:
    """Reads one device through its driver. Processes of other groups that do not descend from `ranks` are foreign."""

    def __init__(self, number: int, identity: str, accelerator: str, ranks: Collection[int]) -> None:
        """`identity` is the device's name in the telemetry of its kind; `ranks` are process IDs."""
        self.prefix = f"gpu{number}"
        self._identity, self._accelerator, self._ranks = identity, accelerator, ranks
        self._held_back: Mapping[str, Sequence[float] | None] = {}

    def read(self) -> Reading:
        """Return a reading. Raises TelemetryUnavailable."""
        found = telemetry_of(self._accelerator).readings(self._identity)
        gauges = {name: float(found[key]) for key, name in _DEVICE_GAUGES.items() if found.get(key) is not None}
        gauges |= self._held_back_shares(found.get("held_back") or {}, found.get("throttles"))
        if self._ranks and (pids := found.get("processes")) is not None and all(map(host.pid_exists, pids)):
            groups = {process_group(rank) for rank in self._ranks} | {None}  # None: a process that has just ended
            others = [pid for pid in pids if process_group(pid) not in groups and not self._descends(pid)]
            gauges["foreign_processes"] = float(len(others))
        return Reading(gauges, {})

    def _descends(self, pid: int) -> bool:
        """Return whether a process descends from a rank, such as a worker of a launcher in a session of its own."""
        with suppress(psutil.Error):
            return any(parent.pid in self._ranks for parent in psutil.Process(pid).parents())
        return False

    def _held_back_shares(
        self, held_back: Mapping[str, Sequence[float] | None], throttles: Collection[str] | None
    ) -> dict[str, float]:
        """Return the shares of time at the power limit and throttled otherwise, since the last reading.

        Where the driver's counters count nothing, these are its reasons at this moment, some of which have no counter.
        """
        before, self._held_back = self._held_back, held_back
        found: dict[str, float] = {}
        for reason, end in held_back.items():
            if (share := held_back_share(before.get(reason), end)) is not None:
                name = _name_of(reason)
                found[name] = max(found.get(name, 0.0), share)
        if throttles is not None:
            now = {_name_of(reason) for reason in throttles}
            for name in ("power_capped", "throttled"):
                found[name] = found.get(name) or float(name in now)
        return found


def _name_of(reason: str) -> str:
    return "power_capped" if reason in POWER_CAPS else "throttled"


@dataclass
class Sampling:
    """Turns the readings of several readers into rows of a table. `reasons` explains what is missing, by prefix."""

    readers: list[Reader]
    reasons: dict[str, str] = field(default_factory=dict)
    _last: dict[str, tuple[float, Mapping[str, float]]] = field(default_factory=dict)

    def sample(self, now: float) -> dict[str, float]:
        """Return a row: each column's value at `now`, in seconds of the monotonic clock; a rate since the last row."""
        row = {"seconds": now}
        for reader in self.readers:
            try:
                reading = reader.read()
            except TelemetryUnavailable as error:
                self.reasons[reader.prefix] = str(error)
                self._last.pop(reader.prefix, None)
                continue
            row |= {f"{reader.prefix}_{name}": value for name, value in reading.gauges.items()}
            if (last := self._last.get(reader.prefix)) is not None and now > last[0]:
                for name, total in reading.counters.items():
                    row[f"{reader.prefix}_{name}"] = max(0.0, total - last[1].get(name, total)) / (now - last[0])
            self._last[reader.prefix] = (now, reading.counters)
        return row


def summaries(rows: Sequence[Mapping[str, float]], start: float, end: float) -> dict[str, Metric]:
    """Return the mean, 95th percentile and maximum of each quantity in the window from `start` to `end`.

    Ranks and devices are taken together: `gpu_power_watts_p95` is over the rows of all devices.
    """
    values: dict[str, list[float]] = {}
    for column, readings in _window(rows, start, end).items():
        values.setdefault(quantity_of(column), []).extend(readings)
    found = {}
    for name, readings in sorted(values.items()):
        unit = SAMPLED[name][0]
        scope = f"{len(readings)} readings in the window"
        numbers = (sum(readings) / len(readings), quantile(readings, 0.95), max(readings))
        for statistic, number in zip(STATISTICS, numbers, strict=True):
            found[f"{name}_{statistic}"] = Metric(value=number, unit=unit, scope=scope, provenance="sampled")
    return found


def device_readings(rows: Sequence[Mapping[str, float]], start: float, end: float) -> dict[int, dict[str, list[float]]]:
    """Return the readings of each device in the window, by the device's number and the quantity, in order of time."""
    found: dict[int, dict[str, list[float]]] = {}
    for column, readings in _window(rows, start, end).items():
        prefix, _, quantity = column.partition("_")
        if prefix.startswith("gpu"):
            found.setdefault(int(prefix.removeprefix("gpu")), {})[quantity] = readings
    return found


def _window(rows: Sequence[Mapping[str, float]], start: float, end: float) -> dict[str, list[float]]:
    """Return each column's values in the window. A row belongs to it if most of the time since the row before does.

    The row before is that of the same node (`since`).
    """
    values: dict[str, list[float]] = {}
    for before, row in pairwise(rows):
        if start <= (row.get("since", before["seconds"]) + row["seconds"]) / 2 <= end:
            for column, value in row.items():
                if column not in TIMES and math.isfinite(value):
                    values.setdefault(column, []).append(value)
    return values


def columns_of(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the columns of all rows except their times, in order of appearance."""
    return [column for column in dict.fromkeys(column for row in rows for column in row) if column not in TIMES]
