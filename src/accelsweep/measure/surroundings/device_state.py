"""The state of a device, read through its driver: clocks, temperature, power, throttle reasons, other processes."""

from __future__ import annotations

from typing import Any

from accelsweep.machine.devices import telemetry_of
from accelsweep.machine.drivers.telemetry import NoReading


def device_state(identity: str, accelerator: str) -> dict[str, Any]:
    """Return the state of the device called `identity` by its kind, or a `reason` beside its `uuid`."""
    try:
        return {"uuid": identity, **telemetry_of(accelerator).state(identity)}
    except NoReading as error:
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
