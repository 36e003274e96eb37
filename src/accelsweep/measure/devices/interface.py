"""One interface for every kind of device, as torch drives it. `machine.devices` has the side that needs no torch."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple, Protocol

import torch
from torch.profiler import ProfilerActivity

from accelsweep.machine.room import FreeMemory
from accelsweep.measure.clock import Clock, Marks, WaitedDevice
from accelsweep.measure.devices.bounds import Bound, DeviceBound


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
        """Return the name by which `machine.drivers` find the device; None where no driver is asked about it."""

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
    profiler_activity: ProfilerActivity | None = None

    def __init__(self, accelerator: str) -> None:
        """`accelerator` is the name of the kind in configs and in torch."""
        self.accelerator = accelerator

    @property
    def module(self) -> Any:
        """Torch's module for this kind."""
        return torch.get_device_module(self.accelerator)

    def absent(self) -> str | None:
        """Return that torch finds none, where its module says so."""
        return None if self.module.is_available() else f"finds no {self.accelerator.upper()} device here"

    def initialised(self) -> bool:
        """Return what the module says."""
        return bool(self.module.is_initialized())

    def of_rank(self, local_rank: int) -> torch.device:
        """Return the device with the rank's number."""
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
