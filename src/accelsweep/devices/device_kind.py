"""A device kind: its names, this machine's devices of that kind, and how torch uses them.

Each kind is a subclass of `DeviceKind` in its own file. The defaults suit a kind that is declared by a site rather than
detected, and whose torch module has the interface of `torch.cuda`: streams, events and a caching allocator.
`torch.accelerator` provides the same for one kind per process, but requires an allocator, which devices written in
Python lack, so all calls go through the module that torch has under the kind's name.

Torch is only imported inside functions, because planning and leasing use this module without torch.
"""

from __future__ import annotations

import importlib.util
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

from accelsweep.devices.clock import Clock, Marks, TimedDevice
from accelsweep.devices.host import pid_exists
from accelsweep.devices.memory_limits import FreeMemory, MemoryLimit

if TYPE_CHECKING:
    import torch
    from torch.profiler import ProfilerActivity


@dataclass(frozen=True)
class Device:
    """Devices of one model that a site offers on one node.

    `count` is in cores for `cpu`, otherwise in devices. `emulates` are the number formats (`bf16`, `fp16`) for which a
    processor is known to have no instructions.
    """

    accelerator: str
    model: str
    count: int
    memory_bytes: int | None = None
    emulates: tuple[str, ...] = ()

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid", "coerce_numbers_to_str": True}
    """Lets pydantic models declare fields of this type without importing pydantic in this module."""


@dataclass(frozen=True)
class Gpu:
    """One device that can be leased individually.

    `name` is its name in the kind's visibility variable; `identity` is the same in every process on this machine.
    `memory_bytes` is None if unknown.
    """

    name: str
    identity: str
    model: str
    memory_bytes: int | None


class MonitoredDevice(NamedTuple):
    """A device whose driver reports its state."""

    accelerator: str
    identity: str
    model: str


class TelemetryUnavailable(Exception):
    """A driver cannot answer a query; the exception's message is the reason to report."""


class Telemetry(Protocol):
    """Reads a device's state and energy from its driver, without torch. `identity` is `Gpu.identity`."""

    def state(self, identity: str) -> dict[str, Any]:
        """Return the values of `STATE_KEYS`, each None if unknown. Raises TelemetryUnavailable."""

    def readings(self, identity: str) -> dict[str, Any]:
        """Return the values of `READING_KEYS`, each None if unknown, as cheaply as the driver allows.

        Raises TelemetryUnavailable.
        """

    def joules(self, identity: str) -> float:
        """Return the device's energy counter; only differences are meaningful. Raises TelemetryUnavailable."""


READING_KEYS = (
    "sm_mhz",
    "memory_mhz",
    "utilisation",
    "celsius",
    "watts",
    "watts_limit",
    "memory_used_bytes",
    "throttles",
    "held_back",
    "processes",
)
"""What is read several times per second during a run; `processes` are the IDs of processes that use the device."""

STATE_KEYS = (
    "name",
    "sm_mhz_max",
    "memory_total_bytes",
    *READING_KEYS[:-1],
    "foreign_processes",
)
"""The keys of a device state.

`throttles` are the driver's reasons for throttling the device at this moment, and `utilisation` is the share of the
last moments in which a kernel was running. `held_back` maps each reason to the total time for which it has throttled
the device and to the counter's own clock, both in seconds. `foreign_processes` are the IDs of processes outside our
process group that compute on the device.
"""


def foreign_processes(pids: Iterable[int] | None) -> list[int] | None:
    """Return those processes in `pids` that are outside our process group; None if unknown.

    In a container, a driver reports the host's process IDs, which do not exist inside the container.
    """
    pids = None if pids is None else list(pids)
    if pids is None or not all(map(pid_exists, pids)):
        return None
    return [pid for pid in pids if process_group(pid) != os.getpgid(0)]


def process_group(pid: int) -> int | None:
    """Return a process's group; None if the process has ended."""
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return None


class DeviceMemory(NamedTuple):
    """The peak allocator usage of this process and the memory usage of the whole device, in bytes.

    `reasons` explains missing values.
    """

    allocated: int | None
    reserved: int | None
    device: int | None
    reasons: dict[str, str]


@dataclass(frozen=True)
class MemoryCap:
    """A cap on this process's memory in bytes, the limit it is derived from, and the peak since it was set.

    `peak` returns bytes, or None if no peak is recorded.
    """

    bytes: int
    limit: MemoryLimit
    peak: Callable[[], int | None]


class EventMarks:
    """Marks recorded as events in the device's current stream."""

    def __init__(self, event: Any) -> None:
        """`event` is the event class of the device's module, such as `torch.cuda.Event`."""
        self._event = event
        self._events: list[Any] = []
        self._reached = 0
        self.add()

    def add(self) -> None:
        """Record an event in the current stream."""
        event = self._event(enable_timing=True)
        event.record()
        self._events.append(event)

    def reached(self) -> int:
        """Return how many events the device has passed so far."""
        while self._reached < len(self._events) and self._events[self._reached].query():
            self._reached += 1
        return self._reached

    def seconds(self) -> list[float]:
        """Return the seconds between consecutive events, converted from the milliseconds that torch reports."""
        return [earlier.elapsed_time(later) / 1000.0 for earlier, later in pairwise(self._events)]


class StreamDevice:
    """One device of a torch module with streams and events, such as `torch.cuda`."""

    asynchronous = True

    def __init__(self, module: Any, device: torch.device) -> None:
        """`module` is the torch module for the kind."""
        self._module, self._device = module, device

    def synchronise(self) -> None:
        """Wait for all streams of the device."""
        self._module.synchronize(self._device)

    def marks(self, clock: Clock) -> Marks:
        """Start a series of device events; `clock` is not read."""
        del clock
        return EventMarks(self._module.Event)


class DeviceKind:
    """Base class for a device kind. Nothing is cached; devices that this process may not use are omitted."""

    accelerator: str
    """The value of the config key `accelerator`, which is torch's device type."""
    aliases: tuple[str, ...] = ()
    """Its names in other tools, used in suggestions."""
    unit: str = "device"
    """The noun for one rank's device, used in labels."""
    units: str = "devices"
    """The plural of that noun."""
    site_units: str = "devices"
    """The noun for the units that a site's inventory counts."""

    own_memory: bool = False
    """Whether its memory is separate from the host's."""
    scheduled_as_gpu: bool = False
    """Whether clusters allocate it as a GPU."""
    auto_priority: int | None = None
    """The position at which `accelerator: auto` tries this kind, lowest first; None to never try it."""
    max_per_machine: int | None = None
    """The maximum number of these devices in a machine; None for no maximum."""
    environment_prefixes: tuple[str, ...] = ()
    """Prefixes of the environment variables that its driver reads. Their values are recorded."""
    telemetry: Telemetry | None = None
    """The reader of state and energy; None if the kind has no telemetry."""

    distributed_backend: str = "gloo"
    """The torch.distributed backend for its ranks."""
    uses_pinned_memory: bool = True
    """Whether copies from pinned host memory behave differently from other copies."""
    supports_tf32: bool = False
    """Whether float32 matrix products can be computed in TF32."""
    known_to_lightning: bool = False
    """Whether Lightning provides an accelerator with this name."""
    profiler_activity_name: str | None = None
    """The member of torch's ProfilerActivity that records its kernels; None if there is no such member."""

    # This machine's devices. None of these methods imports torch or touches a device.

    def gpus(self) -> tuple[Gpu, ...] | None:
        """Return the visible devices; None for a kind whose devices are not leased individually."""
        return None

    def inventory(self, torch: str | None = None) -> tuple[Device, ...]:
        """Return the devices of this kind that runs may use, one entry per model and memory size.

        `torch` is the version of the torch that runs use; None means the one installed here.
        """
        del torch
        counts = Counter((gpu.model, gpu.memory_bytes) for gpu in self.gpus() or ())
        return tuple(Device(self.accelerator, model, count, memory) for (model, memory), count in counts.items())

    def monitored(self) -> tuple[MonitoredDevice, ...]:
        """Return the visible devices whose state `telemetry` can read."""
        gpus = () if self.telemetry is None else self.gpus() or ()
        return tuple(MonitoredDevice(self.accelerator, gpu.identity, gpu.model) for gpu in gpus)

    def visibility_variables(self, names: Sequence[str]) -> Mapping[str, str]:
        """Return the environment variables that restrict a process to the devices with these names."""
        del names
        return {}

    def fingerprint(self) -> Mapping[str, str]:
        """Return this kind's part of the hardware fingerprint, to which the host's processor is always added."""
        return {}

    def unsupported_precision(self, precision: str) -> str | None:
        """Return why no device of this kind supports `precision`; None if no reason is known."""
        if precision.startswith("transformer-engine"):
            return f"{precision} needs cuda: NVIDIA's Transformer Engine has no {self.accelerator} backend"
        return None

    # How torch uses devices of this kind. All members except `is_initialised` may create a context on a device, so they
    # are only used by ranks.

    @property
    def module(self) -> Any:
        """The torch module for this kind."""
        import torch

        return getattr(torch, self.accelerator)

    @property
    def profiler_activity(self) -> ProfilerActivity | None:
        """The activity with which torch's profiler records its kernels; None if the profiler cannot record them."""
        from torch.profiler import ProfilerActivity

        name = self.profiler_activity_name
        return None if name is None else getattr(ProfilerActivity, name)

    def unavailable_reason(self) -> str | None:
        """Return why torch detects no device of this kind on this machine; None if it detects one."""
        return None if self.module.is_available() else f"finds no {self.accelerator.upper()} device here"

    def is_initialised(self) -> bool:
        """Return whether this process has used a device of this kind and must not be forked. Touches no device."""
        return bool(self.module.is_initialized())

    def select_device(self, local_rank: int) -> torch.device:
        """Make the device for rank `local_rank` of this node the current device, and return it."""
        import torch

        self.module.set_device(local_rank)
        return torch.device(self.accelerator, local_rank)

    def timed_device(self, device: torch.device) -> TimedDevice:
        """Wrap `device` for use by the measurement window."""
        return StreamDevice(self.module, device)

    def model_name(self, device: torch.device) -> str:
        """Return the model name reported by its driver."""
        return str(self.module.get_device_name(device))

    def telemetry_session(self) -> AbstractContextManager[None]:
        """Return a context in which `telemetry` need not connect to its driver for each reading."""
        return nullcontext()

    def telemetry_identity(self, device: torch.device) -> str | None:
        """Return the identity by which `telemetry` finds the device; None if no driver is queried for it."""
        return str(self.module.get_device_properties(device).uuid)

    def allocated_bytes(self, device: torch.device) -> int | None:
        """Return the bytes that the allocator has allocated, without synchronising; None if there is no allocator."""
        return int(self.module.memory_allocated(device))

    def memory(self, device: torch.device) -> DeviceMemory:
        """Return the device's memory usage; peaks are those since `reset_peak_memory`, or since the process started."""
        free, total = self.module.mem_get_info(device)
        peaks = self.module.max_memory_allocated(device), self.module.max_memory_reserved(device)
        return DeviceMemory(*peaks, total - free, {})

    def empty_cache(self, device: torch.device) -> None:
        """Release the allocator's cached blocks to the device."""
        del device
        self.module.empty_cache()

    def reset_peak_memory(self, device: torch.device) -> None:
        """Restart the recording of peaks; no effect if the allocator records none."""
        self.module.reset_peak_memory_stats(device)

    def cap_memory(
        self, device: torch.device, headroom: float, configured: int | None, host_memory: FreeMemory
    ) -> MemoryCap:
        """Cap this process's memory at what is currently free, minus the share `headroom`.

        `configured` is `measure.rank_memory_bytes`; `host_memory` is the amount of host memory that a rank may use.
        """
        del host_memory
        free, total = self.module.mem_get_info(device)
        available = FreeMemory(free + self.module.memory_reserved(device), "device memory").capped(configured)
        cap = available.without_headroom(headroom)
        self.module.set_per_process_memory_fraction(cap / total, device)
        self.module.reset_peak_memory_stats(device)
        return MemoryCap(cap, available.limit, lambda: int(self.module.max_memory_allocated(device)))


def torch_is_built_for_rocm() -> bool:
    """Return whether the installed torch was built for AMD GPUs, by reading its `version.py` without importing it.

    The version itself may lack the tag `+rocm`, as in AMD's container images.
    """
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return False
    try:
        version = Path(spec.origin).with_name("version.py").read_text("utf-8")
    except OSError:
        return False
    return re.search(r"^hip\b[^=\n]*= *['\"]", version, re.MULTILINE) is not None
