"""The simulated device as a kind of device: it exists where an environment variable names it, and nowhere else."""

from __future__ import annotations

from accelsweep.base.errors import InputError
from accelsweep.machine.drivers.simulated import UUID, SimulatedTelemetry, Spec, folder
from accelsweep.machine.drivers.telemetry import NoReading
from accelsweep.machine.kind import DeviceKind, Gpu


class SimulatedKind(DeviceKind):
    """One device or none, leased by its identity. It cannot be hidden: the variable that names it is the user's."""

    accelerator, most, telemetry = "simulated", 1, SimulatedTelemetry()

    def gpus(self) -> tuple[Gpu, ...]:
        """Return the device, where there is one. Raises InputError where its file cannot be read."""
        spec = _spec()
        return () if spec is None else (Gpu("0", UUID, spec.model, spec.memory_bytes),)

    def hardware(self) -> dict[str, str]:
        """Return the whole spec: what was measured on another simulation is not the same."""
        spec = _spec()
        return {} if spec is None else {"simulated_device": str(spec)}


def _spec() -> Spec | None:
    where = folder()
    try:
        return None if where is None else Spec.read(where)
    except NoReading as error:
        raise InputError(str(error)) from None
