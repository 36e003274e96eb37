"""One interface for every kind of device, as torch drives it. `devices.inventory` has the side that needs no torch."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import psutil

from accelsweep.devices.clock import Clock, Marks, WaitedDevice
from accelsweep.devices.kinds import Accelerator, Device, Limit
from accelsweep.devices.memory_limits import FreeMemory

if TYPE_CHECKING:
    import torch
    from torch.profiler import ProfilerActivity


# A bound on the memory that this process may take, and the peak that it then reaches, for each kind of device.


class Bound(Protocol):
    """A bound in force. `bytes` is what this process may take from now on, by which `limit`."""

    bytes: int
    limit: Limit

    def peak(self) -> int | None:
        """Return the most that it took since, in bytes; None where nothing keeps a peak."""


class DeviceBound:
    """A bound on torch's allocator for a device; `module` is like `torch.cuda`. The peak is the allocator's."""

    def __init__(self, module: Any, device: torch.device, headroom: float, stated: int | None) -> None:
        """`headroom` is the share of what is free that stays free; `stated` is a bound of the config's, in bytes."""
        free, total = module.mem_get_info(device)
        reserved = module.memory_reserved(device)
        room = FreeMemory(free + reserved, "device memory")
        if stated is not None:
            room = min(room, FreeMemory(stated, "measure.rank_memory_bytes"))
        self.bytes, self.limit = int(room.bytes * (1 - headroom)), room.limit
        self._module, self._device = module, device
        module.set_per_process_memory_fraction(self.bytes / total, device)
        module.reset_peak_memory_stats(device)

    def peak(self) -> int:
        """Return the most that tensors held."""
        return int(self._module.max_memory_allocated(self._device))


class DeviceMemory(NamedTuple):
    """Bytes of a device: two peaks of this process's allocator, and the use of the whole device. None has a reason."""

    allocated: int | None
    reserved: int | None
    device: int | None
    reasons: dict[str, str]


class TorchKind(Protocol):
    """One kind of device. Its answers touch the device, so only a rank asks for them; `initialised` touches nothing."""

    collectives: str
    """The backend of torch.distributed between its ranks."""
    pins: bool
    """Whether copies from pinned memory of the host differ from others."""
    tf32: bool
    """Whether products of float32 matrices may be taken in tf32."""
    known_to_lightning: bool
    """Whether Lightning has an accelerator of this name."""

    @property
    def profiler_activity(self) -> ProfilerActivity | None:
        """The name by which torch's profiler records its kernels; None where it sees none."""

    def absent(self) -> str | None:
        """Return why torch finds no such device here; None where it finds one."""

    def initialised(self) -> bool:
        """Return whether this process has used such a device: then it must not be forked."""

    def of_rank(self, local_rank: int) -> torch.device:
        """Return the device of a node's n-th rank, and make it the current one."""

    def waited(self, device: torch.device) -> WaitedDevice:
        """Return `device` as the window uses it."""

    def model(self, device: torch.device) -> str:
        """Return the device's model as its maker calls it."""

    def identity(self, device: torch.device) -> str | None:
        """Return the name by which its `Telemetry` knows the device; None where no driver is asked about it."""

    def allocated_bytes(self, device: torch.device) -> int | None:
        """Return what the allocator has handed out now, without waiting; None where there is no such allocator."""

    def memory(self, device: torch.device) -> DeviceMemory:
        """Return the device's memory. Peaks are since the process began."""

    def release(self, device: torch.device) -> None:
        """Give back what the allocator keeps for later."""

    def bound(self, device: torch.device, headroom: float, stated: int | None, host: FreeMemory) -> Bound:
        """Let this process take no more than what is free now, less a share of `headroom`; return the bound.

        `stated` is a bound of the config's own, in bytes; `host` is the room of a rank on the host.
        """


class EventMarks:
    """Marks as events in the device's own queue; they are not waited for until `seconds` is called."""

    def __init__(self, event: Any) -> None:
        """`event` is the event class of the device's module, such as `torch.cuda.Event`."""
        self._event = event
        self._events: list[Any] = []
        self._reached = 0
        self.add()

    def add(self) -> None:
        """Put an event into the device's current queue."""
        event = self._event(enable_timing=True)
        event.record()
        self._events.append(event)

    def reached(self) -> int:
        """Return how many events the device has passed by now."""
        while self._reached < len(self._events) and self._events[self._reached].query():
            self._reached += 1
        return self._reached

    def seconds(self) -> list[float]:
        """Return the seconds between neighbouring events (the devices report milliseconds)."""
        return [earlier.elapsed_time(later) / 1000.0 for earlier, later in pairwise(self._events)]


class QueueDevice:
    """One device with a queue of its own. CUDA's, Intel's and the simulated one differ in their module only."""

    asynchronous = True

    def __init__(self, device: torch.device) -> None:
        """`device` names the device with its index."""
        import torch

        self._device, self._module = device, torch.get_device_module(device)

    def synchronise(self) -> None:
        """Wait for all streams of the device."""
        self._module.synchronize(self._device)

    def marks(self, clock: Clock) -> Marks:
        """Begin marks as device events; `clock` is not read."""
        del clock
        return EventMarks(self._module.Event)


class QueueKind:
    """The kinds whose modules are like `torch.cuda`: streams, events, an allocator that counts, memory of their own.

    `torch.accelerator` has the same functions for one kind a process, but a device that is written in Python has no
    allocator that it could ask. `torch.get_device_module` serves both.
    """

    collectives, pins, tf32, known_to_lightning = "gloo", True, False, False

    @property
    def profiler_activity(self) -> ProfilerActivity | None:
        """What the profiler records of it; None where it sees none of its kernels."""
        return None

    def __init__(self, accelerator: str) -> None:
        """`accelerator` is the name of the kind in configs and in torch."""
        self.accelerator = accelerator

    @property
    def module(self) -> Any:
        """Torch's module for this kind."""
        import torch

        return torch.get_device_module(self.accelerator)

    def absent(self) -> str | None:
        """Return that torch finds none, where its module says so."""
        return None if self.module.is_available() else f"finds no {self.accelerator.upper()} device here"

    def initialised(self) -> bool:
        """Return what the module says."""
        return bool(self.module.is_initialized())

    def of_rank(self, local_rank: int) -> torch.device:
        """Return the device with the rank's number."""
        import torch

        self.module.set_device(local_rank)
        return torch.device(self.accelerator, local_rank)

    def waited(self, device: torch.device) -> WaitedDevice:
        """Return the device with its queue."""
        return QueueDevice(device)

    def model(self, device: torch.device) -> str:
        """Return the driver's name for it."""
        return str(self.module.get_device_name(device))

    def identity(self, device: torch.device) -> str | None:
        """Return its UUID."""
        return str(self.module.get_device_properties(device).uuid)

    def allocated_bytes(self, device: torch.device) -> int | None:
        """Return what torch's allocator has handed out."""
        return int(self.module.memory_allocated(device))

    def memory(self, device: torch.device) -> DeviceMemory:
        """Return the allocator's peaks and the whole device's use."""
        free, total = self.module.mem_get_info(device)
        peaks = self.module.max_memory_allocated(device), self.module.max_memory_reserved(device)
        return DeviceMemory(*peaks, total - free, {})

    def release(self, device: torch.device) -> None:
        """Empty the allocator's cache."""
        del device
        self.module.empty_cache()

    def bound(self, device: torch.device, headroom: float, stated: int | None, host: FreeMemory) -> Bound:
        """Bound the allocator."""
        del host
        return DeviceBound(self.module, device, headroom, stated)


# The owners of the processes on a device: a process is ours, if it belongs to the process group of this run.


def foreign(processes: Iterable[int] | None) -> list[int] | None:
    """Return the processes of other groups; None where `processes` are unknown or are ids that do not exist here.

    Inside a container a driver shows the ids of the host, which do not exist there.
    """
    found = None if processes is None else list(processes)
    if found is None or any(not psutil.pid_exists(pid) for pid in found):
        return None
    return [pid for pid in found if _group_of(pid) != os.getpgid(0)]


def _group_of(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return None


# Telemetry: the state and the energy of a device, asked of its driver from outside of torch.


class NoReading(Exception):
    """A driver has no answer; the message is the reason to show."""


class Telemetry(Protocol):
    """A driver's words on one device. An `identity` is the name that it has in every process of the machine."""

    def state(self, identity: str) -> dict[str, Any]:
        """Return the device's state: the keys of `STATE`, any value None where it is unknown. Raises NoReading."""

    def joules(self, identity: str) -> float:
        """Return the device's energy counter. Only differences mean something. Raises NoReading."""


class KnownDevice(NamedTuple):
    """A device that can be asked: its kind, its identity and its model."""

    accelerator: str
    identity: str
    model: str


STATE = (
    "name",
    "sm_mhz",
    "sm_mhz_max",
    "memory_mhz",
    "celsius",
    "watts",
    "watts_limit",
    "memory_used_bytes",
    "memory_total_bytes",
    "throttles",
    "held_back",
    "foreign_processes",
)
"""The keys of a state. `throttles` are the driver's words for what slows the device down at this moment.

`held_back` has for each such reason the seconds that it lasted so far, and the counter's own clock in seconds.
`foreign_processes` are the ids of processes of others that compute on the device.
"""


# Precisions that only one maker's devices have.


def not_nvidia(precision: str, accelerator: str) -> str | None:
    """Return why a kind that is not NVIDIA's cannot have this precision; None for any that needs no such device."""
    if precision.startswith("transformer-engine"):
        return f"{precision} needs cuda: NVIDIA's Transformer Engine has no {accelerator} backend"
    return None


# One kind of device, as this machine tells it without torch. Each kind overrides the answers that it has.


@dataclass(frozen=True)
class Gpu:
    """A device that is handed out by itself: `name` is one that the kind's variable takes.

    `identity` is the same in every process of this machine. `memory_bytes` is None where it is not told.
    """

    name: str
    identity: str
    model: str
    memory_bytes: int | None


class DeviceKind:
    """One kind of device. Every answer is found anew; devices that the process may not use are left out.

    By itself a kind has no devices on this machine, no variables and no state: a site may declare its devices.
    """

    accelerator: Accelerator
    """The word that configs have for this kind."""
    most: int | None = None
    """The most of them that a machine can have; None for any number."""
    telemetry: Telemetry | None = None
    """The source of their state; None where there is none."""
    heeds: tuple[str, ...] = ()
    """Beginnings of the environment variables that its driver heeds. Records keep their values."""

    def gpus(self) -> tuple[Gpu, ...] | None:
        """Return the devices, one by one; None for a kind whose devices are not handed out so."""
        return None

    def inventory(self) -> tuple[Device, ...]:
        """Return the devices of this kind that this process may use, one entry a model; empty where there is none."""
        alike = Counter((gpu.model, gpu.memory_bytes) for gpu in self.gpus() or ())
        return tuple(
            Device(accelerator=self.accelerator, model=model, count=count, memory_bytes=memory)
            for (model, memory), count in alike.items()
        )

    def named(self) -> Mapping[str, str] | None:
        """Return the devices as name -> identity; None for a kind whose devices are not handed out one by one."""
        gpus = self.gpus()
        return None if gpus is None else {gpu.name: gpu.identity for gpu in gpus}

    def models(self) -> Mapping[str, str]:
        """Return the models of the devices that `named` names."""
        return {gpu.name: gpu.model for gpu in self.gpus() or ()}

    def variables(self, names: Sequence[str]) -> Mapping[str, str]:
        """Return the environment variables that show a process the devices with these names, and no other."""
        del names
        return {}

    def hardware(self) -> Mapping[str, str]:
        """Return this kind's part of a fingerprint, beside the host's processor."""
        return {}

    def watched(self) -> tuple[KnownDevice, ...]:
        """Return the devices whose state `telemetry` tells and that this process may use."""
        gpus = () if self.telemetry is None else self.gpus() or ()
        return tuple(KnownDevice(self.accelerator, gpu.identity, gpu.model) for gpu in gpus)

    def refuses(self, precision: str) -> str | None:
        """Return why no device of this kind can have `precision`; None where nothing is known to speak against it."""
        return not_nvidia(precision, self.accelerator)
