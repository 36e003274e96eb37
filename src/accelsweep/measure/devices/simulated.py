"""The simulated device as torch drives it. It is no part of torch before somebody asks for it here."""

from __future__ import annotations

from typing import Any

from accelsweep.machine.drivers import simulated as driver
from accelsweep.measure.devices.interface import QueueKind
from accelsweep.simulated.current import used
from accelsweep.simulated.register import register, unavailable


class TorchSimulated(QueueKind):
    """The simulated device."""

    def __init__(self) -> None:
        """Take `torch.simulated`."""
        super().__init__("simulated")

    @property
    def module(self) -> Any:
        """The module that torch has for it, which is registered now."""
        register()
        return super().module

    def absent(self) -> str | None:
        """Return why there is none: this torch, or nobody named one."""
        if driver.folder() is None:
            return f"finds no simulated device here: {driver.SIMULATED_VARIABLE} names none"
        return unavailable()

    def initialised(self) -> bool:
        """Return whether this process has used it. Registers nothing."""
        return used()
