"""The simulated device as a kind of device: it exists where an environment variable names it, and nowhere else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from accelsweep.base.errors import InputError
from accelsweep.core.sites.device import Device
from accelsweep.machine.drivers.simulated import UUID, SimulatedTelemetry, Spec, folder
from accelsweep.machine.drivers.telemetry import KnownDevice, NoReading, Telemetry
from accelsweep.machine.precisions import not_nvidia


@dataclass(frozen=True)
class SimulatedKind:
    """One device or none. It cannot be hidden, and it is leased by its identity."""

    accelerator: str = "simulated"
    most: int | None = 1
    telemetry: Telemetry = field(default_factory=SimulatedTelemetry)

    def inventory(self) -> tuple[Device, ...]:
        """Return the device, where there is one. Raises InputError where its file cannot be read."""
        spec = _spec()
        if spec is None:
            return ()
        return (Device(accelerator="simulated", model=spec.model, count=1, memory_bytes=spec.memory_bytes),)

    def named(self) -> dict[str, str]:
        """Return the device's name and identity."""
        return {"0": UUID} if folder() else {}

    def models(self) -> dict[str, str]:
        """Return the device's model, by the name of `named`."""
        spec = _spec()
        return {} if spec is None else {"0": spec.model}

    def variables(self, names: Sequence[str]) -> dict[str, str]:
        """Return no variable: the one that names the device is the user's."""
        del names
        return {}

    def hardware(self) -> dict[str, str]:
        """Return the whole spec: what was measured on another simulation is not the same."""
        spec = _spec()
        return {} if spec is None else {"simulated_device": str(spec)}

    def watched(self) -> tuple[KnownDevice, ...]:
        """Return the device."""
        spec = _spec()
        return () if spec is None else (KnownDevice(self.accelerator, UUID, spec.model),)

    def refuses(self, precision: str) -> str | None:
        """Return why it cannot have a precision; None where nothing speaks against it."""
        return not_nvidia(precision, self.accelerator)


def _spec() -> Spec | None:
    where = folder()
    try:
        return None if where is None else Spec.read(where)
    except NoReading as error:
        raise InputError(str(error)) from None
