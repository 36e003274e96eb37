"""The simulated device that this process has now. A test puts one of its own in its place."""

from __future__ import annotations

from accelsweep.base.errors import AbsentDevice
from accelsweep.machine.drivers import simulated as driver
from accelsweep.simulated.simulator import Simulator

_CURRENT: list[Simulator] = []


def current() -> Simulator:
    """Return the device, made from the driver's folder at the first call. Raises AbsentDevice where there is none."""
    if not _CURRENT:
        where = driver.folder()
        if where is None:
            raise AbsentDevice(f"there is no simulated device here: {driver.SIMULATED_VARIABLE} names none")
        put(Simulator(driver.Spec.read(where), where))
    return _CURRENT[0]


def put(simulator: Simulator) -> Simulator:
    """Make this the device of the process."""
    _CURRENT[:] = [simulator]
    return simulator


def used() -> bool:
    """Return whether this process has used its device."""
    return bool(_CURRENT) and _CURRENT[0].started
