"""Typed views of the environment in a run's record: machine, devices, checkout and hardware kind.

A record stores the values read on its machine as plain data, and is written back unchanged. In these views a missing or
null value is replaced by the default that means "unknown", and unexpected keys are ignored.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from accelsweep.plain_json import canonical_json

_EMPTY: Mapping[str, Any] = {}


class DeviceState(NamedTuple):
    """A device's state at one moment, with the keys in `devices.device_kind.STATE_KEYS`.

    `throttles` are the driver's reasons for throttling at that moment. `held_back` maps each reason to the number of
    seconds it has lasted so far and the reading of the counter's own clock in seconds. `foreign_processes` are process
    IDs.
    """

    name: str | None = None
    celsius: float | None = None
    throttles: Sequence[str] = ()
    held_back: Mapping[str, Sequence[float] | None] = _EMPTY
    foreign_processes: Sequence[int] = ()

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> DeviceState:
        """Return the view of a state from a record or a driver."""
        return cls(**_known(state, cls._fields))


class MachineState(NamedTuple):
    """The machine's state at one moment.

    `machine` is its identity and `host` its name. `cores_usable` and `memory_bytes` are the resources the run may use.
    `variables` are the environment variables that can change a measurement. `cpu_flags` are the processor's flags that
    decide how number formats are computed, None if unknown.
    """

    machine: str | None = None
    host: str | None = None
    system: str | None = None
    python: str | None = None
    cores_usable: int | None = None
    memory_bytes: int | None = None
    governor: str | None = None
    cpu_celsius: float | None = None
    cpu_flags: Sequence[str] | None = None
    variables: Mapping[str, str] = _EMPTY
    devices: Sequence[DeviceState] = ()

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> MachineState:
        """Return the view of a state in a record."""
        known = _known(state, cls._fields)
        if "devices" in known:
            known["devices"] = tuple(map(DeviceState.of, known["devices"]))
        return cls(**known)


class Checkout(NamedTuple):
    """The git checkout from which a run was started: its `commit`, and whether it had local changes (`dirty`)."""

    commit: str | None = None
    dirty: bool | None = None

    @classmethod
    def of(cls, git: Mapping[str, Any]) -> Checkout:
        """Return the view of a record's `git`."""
        return cls(**_known(git, cls._fields))

    @property
    def short(self) -> str | None:
        """The commit's first ten digits."""
        return self.commit[:10] if self.commit else None


def _known(values: Mapping[str, Any], fields: Sequence[str]) -> dict[str, Any]:
    return {field: value for field in fields if (value := values.get(field)) is not None}


@dataclass(frozen=True)
class RunEnvironment:
    """A record's `environment`: the state `before` and `after` the run, and when the window `opened` and `closed`.

    When the window opens and closes, only devices with telemetry are read.
    """

    environment: Mapping[str, Mapping[str, Any]]

    @cached_property
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
        """The devices when the window opened and closed; if not recorded, before and after the run."""
        opened = self._at("opened") if "opened" in self.environment else self.before
        return opened, self.closed if "closed" in self.environment else self.after

    def with_machine(self, machine: str) -> dict[str, Mapping[str, Any]]:
        """Return the environment with a different machine identity."""
        return {**self.environment, "before": {**self.environment.get("before", {}), "machine": machine}}

    def _at(self, moment: str) -> MachineState:
        return MachineState.of(self.environment.get(moment, {}))


@dataclass(frozen=True)
class HardwareKind:
    """A hardware kind: machines that share all facts in a fingerprint (`host`, `device`, `driver`).

    A kind without facts is unknown. Kinds are hashable, compare by their facts, and sort by `key`.
    """

    facts: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, facts: Mapping[str, str]) -> HardwareKind:
        """Return the kind with these facts, given in any order."""
        return cls(tuple(sorted(facts.items())))

    def __bool__(self) -> bool:
        return bool(self.facts)

    @property
    def details(self) -> dict[str, str]:
        """The facts by name."""
        return dict(self.facts)

    @property
    def host(self) -> str | None:
        """The model of the host's processor."""
        return self.details.get("host")

    @property
    def device(self) -> str | None:
        """The model names of the machine's devices."""
        return self.details.get("device")

    @property
    def driver(self) -> str | None:
        """The version of the devices' driver."""
        return self.details.get("driver")

    @property
    def key(self) -> str:
        """The facts as canonical JSON."""
        return canonical_json(self.details)

    @property
    def name(self) -> str:
        """Device and host as text, without other facts."""
        if self.host and self.device:
            return f"{self.device} in {self.host}"
        return self.device or self.host or "unknown hardware"

    @property
    def full_name(self) -> str:
        """The name, followed by all other facts."""
        rest = [f"{key} {value}" for key, value in self.facts if key not in ("host", "device")]
        return ", ".join([self.name, *rest])


def hardware_names(kinds: Iterable[HardwareKind]) -> dict[HardwareKind, str]:
    """Return a name for each known kind: the full name if several kinds share the short name."""
    known = sorted({kind for kind in kinds if kind}, key=lambda kind: kind.key)
    short = [kind.name for kind in known]
    return {kind: kind.name if short.count(kind.name) == 1 else kind.full_name for kind in known}
