"""The kinds of device that a config can name, and questions that concern several of them.

Every module of this package with a `KIND` adds a kind, and features may bring others. `KIND` is
None where the installed torch is a build for another maker's devices of the same name: both NVIDIA's and AMD's GPUs
are `cuda`.
"""

from __future__ import annotations

from collections.abc import Sequence
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
"""All kinds by accelerator, the processor first."""

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
"""What `accelerator: auto` looks for, in this order, before the CPU."""

_UNKNOWN_KIND = DeviceKind()


def kind_of(accelerator: str) -> DeviceKind:
    """Return the kind that configs and torch call `accelerator`. Raises ValueError with the known ones."""
    if accelerator not in KINDS:
        raise ValueError(f"no kind of device is called {accelerator!r}; known are {', '.join(KINDS)}")
    return KINDS[accelerator]


def kind_or_unknown(accelerator: object) -> DeviceKind:
    """Return the kind, or one with neutral nouns for any other value, as in a table whose kinds differ."""
    return KINDS.get(str(accelerator), _UNKNOWN_KIND)


def accelerator_with_alias(alias: str) -> str | None:
    """Return the accelerator that other tools call `alias`, or None: `gpu` is Lightning's name for `cuda`."""
    return next((kind.accelerator for kind in KINDS.values() if alias in kind.aliases), None)


def inventory() -> tuple[Device, ...]:
    """Return all devices of this machine that this process may use, the processor first.

    Used for `site.probe: true` (the site `local`) only; every other site declares its inventory.
    """
    return tuple(device for kind in KINDS.values() for device in kind.inventory())


def visibility_variables(accelerator: str, names: Sequence[str]) -> dict[str, str]:
    """Return the environment variables that show a run the devices `names` of its kind and none of any other kind."""
    variables: dict[str, str] = {}
    for kind in KINDS.values():
        variables |= kind.visibility_variables(names if kind.accelerator == accelerator else ())
    return variables


def environment_prefixes() -> tuple[str, ...]:
    """Return the prefixes of the environment variables that the drivers of all kinds read."""
    return tuple(prefix for kind in KINDS.values() for prefix in kind.environment_prefixes)


def hardware_fingerprint(accelerator: str | None) -> dict[str, str]:
    """Return the devices of this kind as a fingerprint states them; of all kinds for None."""
    kinds = KINDS.values() if accelerator is None else (kind_of(accelerator),)
    return {name: value for kind in kinds for name, value in kind.fingerprint().items()}


def monitored_devices() -> tuple[MonitoredDevice, ...]:
    """Return every device of this machine whose driver reports its state and that this process may use."""
    return tuple(device for kind in KINDS.values() for device in kind.monitored())


def telemetry_of(accelerator: str) -> Telemetry:
    """Return the telemetry of this kind. Raises TelemetryUnavailable where there is none."""
    telemetry = kind_of(accelerator).telemetry
    if telemetry is None:
        raise TelemetryUnavailable(f"no state is read of a {accelerator} device")
    return telemetry


def timed_device(device: torch.device) -> TimedDevice:
    """Return `device` as the measurement window uses it. Raises ValueError for a type that is no known kind."""
    return kind_of(device.type).timed_device(device)


def device_name(device: torch.device) -> str:
    """Return the model of `device` as its driver names it; the processor's name for a CPU."""
    return kind_of(device.type).model_name(device)
