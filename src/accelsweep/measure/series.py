"""What the devices, the ranks and the host did during a run: readings at regular intervals, and their summary.

A reader returns gauges, such as a temperature, and counters, such as the CPU time of a process so far, which become
rates over the time between two readings. Whatever a machine cannot read is absent, with its reason. Sources: NVML and
other drivers through `devices`, and psutil for the host and for processes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

import psutil

from accelsweep.devices import host
from accelsweep.devices.device_kind import TelemetryUnavailable
from accelsweep.devices.kinds import telemetry_of
from accelsweep.measure.energy import PackageEnergy
from accelsweep.measure.timed_window import quantile
from accelsweep.metrics import SAMPLED, STATISTICS, Metric, quantity_of


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

    prefix = "host"

    def read(self) -> Reading:
        """Return a reading. What the system does not report is left out."""
        transferred = {f"{name}_bytes_per_second": total for name, total in host.transferred_bytes().items()}
        return Reading(
            {"memory_bytes": float(host.memory_in_use())}, {"cpu_cores": host.processor_times().busy, **transferred}
        )


class PackageReader:
    """Reads the energy of the host's CPU packages, whose rate is their power."""

    prefix = "package"

    def __init__(self) -> None:
        """The counters are found once."""
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
    """Reads one rank's process, without its loader workers."""

    def __init__(self, rank: int, pid: int) -> None:
        """`pid` is the rank's process ID."""
        self.prefix = f"rank{rank}"
        self._pid = pid
        self._process: psutil.Process | None = None

    def read(self) -> Reading:
        """Return a reading. Raises TelemetryUnavailable once the process has ended."""
        try:
            self._process = self._process or psutil.Process(self._pid)
            with self._process.oneshot():
                times, memory = self._process.cpu_times(), self._process.memory_info()
        except psutil.Error:
            raise TelemetryUnavailable("the process has ended") from None
        return Reading({"rss_bytes": float(memory.rss)}, {"cpu_cores": times.user + times.system})


_DEVICE_GAUGES = {
    "utilisation": "utilisation",
    "memory_used_bytes": "memory_bytes",
    "watts": "power_watts",
    "celsius": "celsius",
    "sm_mhz": "sm_mhz",
    "memory_mhz": "memory_mhz",
}
"""Keys of a device's state (`devices.device_kind.STATE_KEYS`) -> quantities."""


class DeviceReader:
    """Reads one device through its driver."""

    def __init__(self, number: int, identity: str, accelerator: str) -> None:
        """`identity` is the device's name in the telemetry of its kind."""
        self.prefix = f"gpu{number}"
        self._identity, self._accelerator = identity, accelerator

    def read(self) -> Reading:
        """Return a reading. Raises TelemetryUnavailable."""
        state = telemetry_of(self._accelerator).state(self._identity)
        gauges = {name: float(state[key]) for key, name in _DEVICE_GAUGES.items() if state.get(key) is not None}
        if state.get("throttles") is not None:
            gauges["throttled"] = float(bool(state["throttles"]))
        return Reading(gauges, {})


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

    A row belongs to the window if most of the time since the row before lies in it. Ranks and devices are taken
    together: `gpu_power_watts_p95` is over the rows of all devices.
    """
    values: dict[str, list[float]] = {}
    for before, row in pairwise(rows):
        if start <= (before["seconds"] + row["seconds"]) / 2 <= end:
            for column, value in row.items():
                if column != "seconds" and math.isfinite(value):
                    values.setdefault(quantity_of(column), []).append(value)
    found = {}
    for name, readings in sorted(values.items()):
        unit = SAMPLED[name][0]
        scope = f"{len(readings)} readings in the window"
        numbers = (sum(readings) / len(readings), quantile(readings, 0.95), max(readings))
        for statistic, number in zip(STATISTICS, numbers, strict=True):
            found[f"{name}_{statistic}"] = Metric(value=number, unit=unit, scope=scope, provenance="sampled")
    return found


def columns_of(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the columns of all rows, in order of appearance."""
    return list(dict.fromkeys(column for row in rows for column in row))
