"""Kinds of hardware: machines that are equal in all facts of a fingerprint."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from accelsweep.base.documents import canonical_json


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
