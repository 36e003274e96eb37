"""Telemetry: the state and the energy of a device, asked of its driver from outside of torch.

One file reads each driver's library. Each gives the same words in the same units, so that records of different makers'
devices read alike. A value that a driver does not tell is None.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol


class NoReading(Exception):
    """A driver has no answer; the message is the reason to show."""


class Telemetry(Protocol):
    """A driver's words on one device. An `identity` is the name that it has in every process of the machine."""

    def state(self, identity: str) -> dict[str, Any]:
        """Return the device's state: the keys of `STATE`, any value None where it is unknown. Raises NoReading."""

    def joules(self, identity: str) -> float:
        """Return the device's energy counter. Only differences mean something. Raises NoReading."""


class KnownDevice(NamedTuple):
    """A device that can be asked: its kind, its identity and its model."""

    accelerator: str
    identity: str
    model: str


STATE = (
    "name",
    "sm_mhz",
    "sm_mhz_max",
    "memory_mhz",
    "celsius",
    "watts",
    "watts_limit",
    "memory_used_bytes",
    "memory_total_bytes",
    "throttles",
    "held_back",
    "foreign_processes",
)
"""The keys of a state. `throttles` are the driver's words for what slows the device down at this moment.

`held_back` has for each such reason the seconds that it lasted so far, and the counter's own clock in seconds.
`foreign_processes` are the ids of processes of others that compute on the device.
"""
