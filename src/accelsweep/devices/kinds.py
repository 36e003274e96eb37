"""The device kinds that a config can select, and queries across several kinds.

Every module in this package that defines `KIND` adds a kind, and features may add others. `KIND` is None if the
installed torch was built for another vendor's devices of the same name: NVIDIA and AMD GPUs are both called `cuda`.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Literal

from accelsweep import registry
from accelsweep.devices.clock import TimedDevice
from accelsweep.devices.device_kind import Device, DeviceKind, MonitoredDevice, Telemetry, TelemetryUnavailable

if TYPE_CHECKING:
    import torch


def _discover() -> dict[str, DeviceKind]:
    names = (name for _, name, _ in iter_modules([str(Path(__file__).parent)]) if name != "kinds")
    modules = [import_module(f"accelsweep.devices.{name}") for name in names]
    kinds: list[DeviceKind] = [kind for module in modules if (kind := getattr(module, "KIND", None)) is not None]
    kinds.sort(key=lambda kind: (kind.accelerator != "cpu", kind.accelerator))
    kinds += [make() for make in registry.loaded("device_kind")]
    return {kind.accelerator: kind for kind in kinds}


KINDS = _discover()
"""All kinds keyed by accelerator, the processor first."""

if TYPE_CHECKING:
    Accelerator = str
else:
    Accelerator = Literal[tuple(KINDS)]
"""The values of the config key `accelerator`."""

AUTO_ACCELERATORS: tuple[str, ...] = tuple(
    kind.accelerator
    for kind in sorted(KINDS.values(), key=lambda kind: kind.auto_priority or 0)
    if kind.auto_priority is not None
)
"""The accelerators that `accelerator: auto` tries, in this order, before the CPU."""

_UNKNOWN_KIND = DeviceKind()


def kind_of(accelerator: str) -> DeviceKind:
    """Return the kind that configs and torch call `accelerator`. Raises ValueError listing the known kinds."""
    if accelerator not in KINDS:
        raise ValueError(f"no kind of device is called {accelerator!r}; known are {', '.join(KINDS)}")
    return KINDS[accelerator]


def kind_or_unknown(accelerator: object) -> DeviceKind:
    """Return the kind; for any other value, such as in a table that covers several kinds, return a generic kind."""
    return KINDS.get(str(accelerator), _UNKNOWN_KIND)


def accelerator_with_alias(alias: str) -> str | None:
    """Return the accelerator that other tools call `alias`, or None. For example, Lightning uses `gpu` for `cuda`."""
    return next((kind.accelerator for kind in KINDS.values() if alias in kind.aliases), None)


def inventory(torch: str | None = None) -> tuple[Device, ...]:
    """Return all devices of this machine that runs may use, the processor first.

    `torch` is the version of the torch that runs use; None means the one installed here. Sites other than `local`
    declare their inventory instead.
    """
    return tuple(device for kind in KINDS.values() for device in kind.inventory(torch))


def visibility_variables(accelerator: str, names: Sequence[str]) -> dict[str, str]:
    """Return the environment variables that restrict a run to the devices in `names` and hide all other kinds."""
    variables: dict[str, str] = {}
    for kind in KINDS.values():
        variables |= kind.visibility_variables(names if kind.accelerator == accelerator else ())
    return variables


def environment_prefixes() -> tuple[str, ...]:
    """Return the prefixes of the environment variables that the drivers of all kinds read."""
    return tuple(prefix for kind in KINDS.values() for prefix in kind.environment_prefixes)


def hardware_fingerprint(accelerator: str | None) -> dict[str, str]:
    """Return the fingerprint of this kind's devices, or of all devices if `accelerator` is None."""
    kinds = KINDS.values() if accelerator is None else (kind_of(accelerator),)
    return {name: value for kind in kinds for name, value in kind.fingerprint().items()}


def monitored_devices() -> tuple[MonitoredDevice, ...]:
    """Return every device of this machine whose driver reports its state and that this process may use."""
    return tuple(device for kind in KINDS.values() for device in kind.monitored())


def telemetry_of(accelerator: str) -> Telemetry:
    """Return the telemetry of this kind. Raises TelemetryUnavailable if the kind has no telemetry."""
    telemetry = kind_of(accelerator).telemetry
    if telemetry is None:
        raise TelemetryUnavailable(f"no telemetry is available for {accelerator} devices")
    return telemetry


def telemetry_session(accelerator: str) -> AbstractContextManager[None]:
    """Return a context in which this kind's telemetry need not connect to the driver for each reading."""
    return kind_of(accelerator).telemetry_session()


def timed_device(device: torch.device) -> TimedDevice:
    """Wrap `device` for use by the measurement window. Raises ValueError if its type is not a known kind."""
    return kind_of(device.type).timed_device(device)


def device_name(device: torch.device) -> str:
    """Return the model name of `device` as reported by its driver; for a CPU, the processor's name."""
    return kind_of(device.type).model_name(device)
