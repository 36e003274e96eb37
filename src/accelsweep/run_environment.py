"""The surroundings of a run as its record holds them, read by attribute.

A record keeps the plain data that was read on its machine, and is written back as it was. So these are views of it.
A value that is missing, or null, is the one that stands for "not known". Keys that no view names are passed over.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from accelsweep.plain_json import canonical_json

_NONE_TOLD: Mapping[str, Any] = {}


class DeviceState(NamedTuple):
    """A device at one moment, in the words of `devices.device_kind.STATE_KEYS`.

    `throttles` are the driver's words for what slowed the device down then. `held_back` has for each such reason the
    seconds that it lasted so far, and the counter's own clock in seconds. `foreign_processes` are the ids of processes
    of others.
    """

    name: str | None = None
    celsius: float | None = None
    throttles: Sequence[str] = ()
    held_back: Mapping[str, Sequence[float] | None] = _NONE_TOLD
    foreign_processes: Sequence[int] = ()

    @classmethod
    def of(cls, written: Mapping[str, Any]) -> DeviceState:
        """Return the view of a state as a record or a driver gives it."""
        return cls(**_known(written, cls._fields))


class MachineState(NamedTuple):
    """The machine at one moment: what stays the same while a run lasts, and what may change.

    `machine` is its identity and `host` its name. `cores_usable` are threads that we may use, and `memory_bytes` is the
    memory that we may use. Early records have the whole machine's. `variables` are those of the process' environment
    that can change a measurement.
    """

    machine: str | None = None
    host: str | None = None
    system: str | None = None
    python: str | None = None
    cores_usable: int | None = None
    memory_bytes: int | None = None
    governor: str | None = None
    cpu_celsius: float | None = None
    variables: Mapping[str, str] = _NONE_TOLD
    devices: Sequence[DeviceState] = ()

    @classmethod
    def of(cls, written: Mapping[str, Any]) -> MachineState:
        """Return the view of a moment as a record holds it."""
        known: dict[str, Any] = {
            key: tuple(map(DeviceState.of, told)) if key == "devices" else told
            for key, told in _known(written, cls._fields).items()
        }
        return cls(**known)


class Checkout(NamedTuple):
    """The repository around a run: its `commit`, and whether files were changed since (`dirty`)."""

    commit: str | None = None
    dirty: bool | None = None

    @classmethod
    def of(cls, written: Mapping[str, Any]) -> Checkout:
        """Return the view of a record's `git`."""
        return cls(**_known(written, cls._fields))

    @property
    def short(self) -> str | None:
        """The commit's first ten digits, as people know it."""
        return self.commit[:10] if self.commit else None


def _known(written: Mapping[str, Any], fields: Sequence[str]) -> dict[str, Any]:
    return {field: told for field in fields if (told := written.get(field)) is not None}


@dataclass(frozen=True)
class RunEnvironment:
    """The `environment` of a record: `before` and `after` the run, and as its window `opened` and `closed`.

    A device of its own is asked at the last two moments only, at work. A moment that was not recorded tells nothing.
    """

    environment: Mapping[str, Mapping[str, Any]]

    @property
    def before(self) -> MachineState:
        """The machine and its devices right before the run."""
        return self._at("before")

    @property
    def after(self) -> MachineState:
        """The machine and its devices right after the run."""
        return self._at("after")

    @property
    def closed(self) -> MachineState:
        """The devices at the end of the window."""
        return self._at("closed")

    @property
    def around_the_window(self) -> tuple[MachineState, MachineState]:
        """The devices as the window opened and closed; before and after the run where none was asked then."""
        opened = self._at("opened") if "opened" in self.environment else self.before
        return opened, self.closed if "closed" in self.environment else self.after

    def with_machine(self, machine: str) -> dict[str, Mapping[str, Any]]:
        """Return what was written, with another identity of the machine."""
        return {**self.environment, "before": {**self.environment.get("before", {}), "machine": machine}}

    def _at(self, moment: str) -> MachineState:
        return MachineState.of(self.environment.get(moment, {}))


# Kinds of hardware: machines that are equal in all facts of a fingerprint.


@dataclass(frozen=True)
class HardwareKind:
    """One kind of hardware, by the facts of its fingerprint (`host`, `device`, `driver`); it has no facts if unknown.

    Kinds are hashable, compare by their facts, and sort by `key`.
    """

    facts: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, facts: Mapping[str, str]) -> HardwareKind:
        """Return the kind with these facts, in any order."""
        return cls(tuple(sorted(facts.items())))

    def __bool__(self) -> bool:
        return bool(self.facts)

    @property
    def details(self) -> dict[str, str]:
        """The facts by their names."""
        return dict(self.facts)

    @property
    def host(self) -> str | None:
        """The model of the host's processor."""
        return self.details.get("host")

    @property
    def device(self) -> str | None:
        """The models of the machine's devices."""
        return self.details.get("device")

    @property
    def driver(self) -> str | None:
        """The version of the devices' driver."""
        return self.details.get("driver")

    @property
    def key(self) -> str:
        """The facts as canonical JSON, by which kinds are sorted."""
        return canonical_json(self.details)

    @property
    def name(self) -> str:
        """Device and host in words; the other facts are left out."""
        if self.host and self.device:
            return f"{self.device} in {self.host}"
        return self.device or self.host or "unknown hardware"

    @property
    def full_name(self) -> str:
        """The name with every other fact, where the name alone stands for several kinds."""
        rest = [f"{key} {value}" for key, value in self.facts if key not in ("host", "device")]
        return ", ".join([self.name, *rest])


def names_of(kinds: Iterable[HardwareKind]) -> dict[HardwareKind, str]:
    """Return a name for each known kind: device and host, with the driver if need be."""
    known = sorted({kind for kind in kinds if kind}, key=lambda kind: kind.key)
    short = [kind.name for kind in known]
    return {kind: kind.name if short.count(kind.name) == 1 else kind.full_name for kind in known}
