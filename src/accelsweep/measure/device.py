"""The devices of torch as the window uses them: how to wait for them and how to mark steps on them.

CUDA and MPS run asynchronously, so the clock means nothing before `synchronise`. Per-step times come from device
events that are read once at the end.
https://docs.pytorch.org/docs/stable/notes/cuda.html#asynchronous-execution
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch

from accelsweep.machine.cpu import cpu_model
from accelsweep.machine.mps import mps_model
from accelsweep.measure.clock import Clock, ClockMarks, Marks, WaitedDevice


class CpuDevice:
    """The host. Nothing to wait for."""

    asynchronous = False

    def synchronise(self) -> None:
        """Return at once: an operation on a CPU is done when its call returns."""

    def marks(self, clock: Clock) -> Marks:
        """Begin marks on the host's clock."""
        return ClockMarks(clock)


class EventMarks:
    """Marks as events in the device's own queue; they are not waited for until `seconds` is called."""

    def __init__(self, event: Any) -> None:
        """`event` is `torch.cuda.Event` or `torch.mps.Event`."""
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


class CudaDevice:
    """One CUDA device."""

    asynchronous = True

    def __init__(self, device: torch.device) -> None:
        """`device` names the device with its index."""
        self._device = device

    def synchronise(self) -> None:
        """Wait for all streams of the device."""
        torch.cuda.synchronize(self._device)

    def marks(self, clock: Clock) -> Marks:
        """Begin marks as CUDA events; `clock` is not read."""
        del clock
        return EventMarks(torch.cuda.Event)


class MpsDevice:
    """Apple's GPU."""

    asynchronous = True

    def synchronise(self) -> None:
        """Wait for all work on the GPU."""
        torch.mps.synchronize()

    def marks(self, clock: Clock) -> Marks:
        """Begin marks as MPS events; `clock` is not read."""
        del clock
        return EventMarks(torch.mps.Event)


def measured_device(device: torch.device) -> WaitedDevice:
    """Return `device` as the window uses it. Raises ValueError for a type that this module cannot wait for."""
    if device.type == "cpu":
        return CpuDevice()
    if device.type == "cuda":
        return CudaDevice(device)
    if device.type == "mps":
        return MpsDevice()
    raise ValueError(f"no way to wait for a device of type {device.type!r}; known are cpu, cuda and mps")


def device_name(device: torch.device) -> str:
    """Return the model of `device` as its maker calls it; the processor's name for a CPU."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return cpu_model() if device.type == "cpu" else mps_model()
