"""The simulated device as a kind of device: it exists where an environment variable names its folder."""

from __future__ import annotations

from typing import Any

from accelsweep.devices.device_kind import DeviceKind, Gpu, TelemetryUnavailable
from accelsweep.errors import InputError
from accelsweep.testing import simulated_device as driver


class SimulatedKind(DeviceKind):
    """One device or none, leased by its identity. It cannot be hidden: the variable that names it is the user's."""

    accelerator = "simulated"
    unit, units, site_units = "simulated device", "simulated devices", "simulated devices"
    own_memory = True
    max_per_machine = 1
    telemetry = driver.SimulatedTelemetry()

    def gpus(self) -> tuple[Gpu, ...]:
        """Return the device, where there is one. Raises InputError where its file cannot be read."""
        spec = _spec()
        return () if spec is None else (Gpu("0", driver.UUID, spec.model, spec.memory_bytes),)

    def fingerprint(self) -> dict[str, str]:
        """Return the whole spec: measurements on another simulation are not comparable."""
        spec = _spec()
        return {} if spec is None else {"simulated_device": str(spec)}

    @property
    def module(self) -> Any:
        """Torch's module of it, which is registered on first use."""
        from accelsweep.testing.simulated_torch import register

        register()
        return super().module

    def unavailable_reason(self) -> str | None:
        """Return why there is none: nobody named one, or this torch cannot have one."""
        if driver.folder() is None:
            return f"finds no simulated device here: {driver.SIMULATED_VARIABLE} names none"
        from accelsweep.testing.simulated_torch import unavailable

        return unavailable()

    def is_initialised(self) -> bool:
        """Return whether this process has used it. Registers nothing."""
        from accelsweep.testing.simulator import used

        return used()


def _spec() -> driver.Spec | None:
    folder = driver.folder()
    try:
        return None if folder is None else driver.Spec.read(folder)
    except TelemetryUnavailable as error:
        raise InputError(str(error)) from None
