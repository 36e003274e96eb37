"""The device kind for the simulated device, which exists if an environment variable points to its folder."""

from __future__ import annotations

from typing import Any

from accelsweep.devices.device_kind import DeviceKind, Gpu, TelemetryUnavailable
from accelsweep.errors import InputError
from accelsweep.testing import simulated_device as driver


class SimulatedKind(DeviceKind):
    """A single device, which cannot be hidden from a process because the user sets the variable that points to it."""

    accelerator = "simulated"
    unit, units, site_units = "simulated device", "simulated devices", "simulated devices"
    own_memory = True
    max_per_machine = 1
    telemetry = driver.SimulatedTelemetry()

    def gpus(self) -> tuple[Gpu, ...]:
        """Return the device, if there is one. Raises InputError if its file is unreadable."""
        spec = _spec()
        return () if spec is None else (Gpu("0", driver.UUID, spec.model, spec.memory_bytes),)

    def fingerprint(self) -> dict[str, str]:
        """Return the full spec, because measurements on devices with different specs are not comparable."""
        spec = _spec()
        return {} if spec is None else {"simulated_device": str(spec)}

    @property
    def module(self) -> Any:
        """The device's torch module, registered on first use."""
        from accelsweep.testing.simulated_torch import register

        register()
        return super().module

    def unavailable_reason(self) -> str | None:
        """Return why there is no device: the variable is not set, or this version of torch does not support it."""
        if driver.folder() is None:
            return f"finds no simulated device here: {driver.SIMULATED_VARIABLE} is not set"
        from accelsweep.testing.simulated_torch import unavailable

        return unavailable()

    def is_initialised(self) -> bool:
        """Return whether this process has used the device, without registering it."""
        from accelsweep.testing.simulator import is_used

        return is_used()


def _spec() -> driver.Spec | None:
    folder = driver.folder()
    try:
        return None if folder is None else driver.Spec.read(folder)
    except TelemetryUnavailable as error:
        raise InputError(str(error)) from None
