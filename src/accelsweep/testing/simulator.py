"""The simulated device of this process: a queue whose worker thread computes the results on the CPU.

Launches are asynchronous, and reading a result waits for the queue; the reason for each wait is added to `waits`. On
the real clock, an operation ends after its device time or when its result has been computed, whichever is later. On a
simulated clock, only device times count, so the load on the machine has no effect.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from accelsweep.errors import MissingDevice
from accelsweep.testing import simulated_device as driver
from accelsweep.testing.simulated_device import PROCESS_USAGES, ProcessUsage, Spec, Usage, active_processes


class HostClock(Protocol):
    """A clock for host time, in seconds."""

    simulated: bool

    def now(self) -> float:
        """Return the time."""

    def spend(self, seconds: float) -> None:
        """Account for host work that takes `seconds`."""

    def wait_until(self, moment: float) -> None:
        """Block the host until the given time."""


class RealClock:
    """The monotonic clock, on which host work takes as long as it really does."""

    simulated = False

    def now(self) -> float:
        """Return the time."""
        return time.perf_counter()

    def spend(self, seconds: float) -> None:
        """Do nothing, because the work has already taken real time."""

    def wait_until(self, moment: float) -> None:
        """Sleep."""
        while (left := moment - time.perf_counter()) > 0:
            time.sleep(left)


ALIGNMENT_BYTES = 512
"""Allocation sizes are rounded up to multiples of this, as in the CUDA allocator."""

SEGMENT_BYTES = 2 * 2**20
"""Reserved memory grows in segments of this size."""


class Allocator:
    """Counts bytes as torch's allocators do; the data itself is in host memory."""

    def __init__(self, total: int, use: Usage, others: Callable[[], int] = lambda: 0) -> None:
        """`total` is the device's memory in bytes; `others()` returns how much of it other processes use.

        The allocator updates `use`.

        The attribute `most` limits how much this process may reserve.
        """
        self.total, self._use, self._others = total, use, others
        self.most = total
        self.allocated = self.reserved = self.peak_allocated = self.peak_reserved = 0

    def take(self, size: int) -> Allocation:
        """Return an allocation of `size` bytes. Raises torch.OutOfMemoryError if it does not fit."""
        size = -(-size // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
        if self.allocated + size > self.reserved:
            self._reserve_for(self.allocated + size)
        self.allocated += size
        self.peak_allocated = max(self.peak_allocated, self.allocated)
        return Allocation(self, size)

    def free(self, size: int) -> None:
        """Free `size` allocated bytes, which stay reserved."""
        self.allocated -= size

    def empty_cache(self) -> None:
        """Release segments that contain no allocated memory."""
        self._reserve(-(-self.allocated // SEGMENT_BYTES) * SEGMENT_BYTES)

    def reset_peaks(self) -> None:
        """Reset the peaks."""
        self.peak_allocated, self.peak_reserved = self.allocated, self.reserved

    def _reserve_for(self, wanted: int) -> None:
        room = min(self.total - self._others(), self.most)
        if wanted > room:
            raise torch.OutOfMemoryError(
                f"the simulated device is out of memory: {wanted} bytes needed, {room} available to this process"
            )
        self._reserve(min(-(-wanted // SEGMENT_BYTES) * SEGMENT_BYTES, room))

    def _reserve(self, size: int) -> None:
        self.reserved = self._use.bytes = size
        self.peak_reserved = max(self.peak_reserved, size)


class Allocation:
    """Allocated bytes, which are freed when this object is deleted."""

    def __init__(self, allocator: Allocator, size: int) -> None:
        """`size` is in bytes and already aligned."""
        self._allocator, self._size = allocator, size

    def __del__(self) -> None:
        """Free the bytes."""
        self._allocator.free(self._size)


class Timeline:
    """Tracks the device time at which the queue becomes empty, and the busy time until then."""

    def __init__(self, spec: Spec, use: Usage) -> None:
        """The timeline updates `use` with each operation."""
        self._spec, self._use = spec, use
        self._stalls = sorted(spec.stalls)
        self.free_at = 0.0

    def work(self, launched: float, seconds: float, finished: float = 0.0) -> None:
        """Append an operation that is launched at `launched` and takes `seconds`, plus stalls and throttling.

        The operation starts when the device is free and does not end before `finished`, the time at which its result
        was computed.
        """
        begin, stall = max(self.free_at, launched), self._stall()
        seconds *= self._spec.wear
        if self._throttled():
            seconds *= self._spec.throttle
            self._use.held_back += seconds
        self.free_at = max(begin + stall + seconds, finished)
        self._use.busy += self.free_at - begin - stall
        self._use.free_at = self.free_at

    def _throttled(self) -> bool:
        after = self._spec.throttled_after
        return after is not None and self._use.busy >= after

    def _stall(self) -> float:
        seconds = 0.0
        while self._stalls and self._use.busy >= self._stalls[0][0]:
            seconds += self._stalls.pop(0)[1]
        return seconds


WRITE_INTERVAL_SECONDS = 0.05
"""The interval at which usage is written to the file that other processes read."""

Work = Callable[[], None]


class Simulator:
    """A device and its queue. `launched` counts operations, and `copies` counts copies between host and device."""

    def __init__(self, spec: Spec, folder: Path, clock: HostClock | None = None) -> None:
        """`folder` is the driver's folder. The worker thread starts with the first operation."""
        self.spec, self.clock = spec, clock or RealClock()
        self.usage = PROCESS_USAGES[folder] = ProcessUsage(folder)
        self.timeline = Timeline(spec, self.usage.use)
        self.allocator = Allocator(spec.memory_bytes, self.usage.use, self._bytes_of_others)
        self.waits: list[str] = []
        self.launched = self.copies = 0
        self._queue: queue.SimpleQueue[Work] = queue.SimpleQueue()
        self._error: BaseException | None = None
        self._thread: threading.Thread | None = None
        self._written_at = -WRITE_INTERVAL_SECONDS

    @property
    def started(self) -> bool:
        """Whether this process has used the device."""
        return self._thread is not None

    def launch(self, seconds: float, work: Work) -> None:
        """Queue an operation that takes `seconds` of device time."""
        self._start()
        self.launched += 1
        self.clock.spend(self.spec.launch_seconds)
        launched = self.clock.now()
        if self.clock.simulated:
            self.timeline.work(launched, seconds)
            self._queue.put(work)
        else:
            self._queue.put(lambda: self._timed(work, launched, seconds))
        if launched - self._written_at >= WRITE_INTERVAL_SECONDS:
            self._written_at = launched
            self.usage.write()

    def append(self, work: Work) -> None:
        """Queue work that takes no time, such as initialising a new tensor."""
        self._start()
        self._queue.put(work)

    def mark(self, note: Callable[[float], None]) -> None:
        """Queue a mark; `note` is called with the device time at which the mark is passed."""
        self._start()
        launched = self.clock.now()
        if self.clock.simulated:
            note(max(self.timeline.free_at, launched))
        else:
            self._queue.put(lambda: note(max(self.timeline.free_at, launched)))

    def wait(self, why: str) -> None:
        """Wait until the queue is empty and its device time has passed. Raises the first error from an operation."""
        self.waits.append(why)
        if self._thread is not None:
            done = threading.Event()
            self._queue.put(done.set)
            done.wait()
        if self.timeline.free_at - self.clock.now() > WRITE_INTERVAL_SECONDS:
            self.usage.write()
        self.clock.wait_until(self.timeline.free_at)
        self.usage.write()
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def _start(self) -> None:
        if self._thread is None:
            self.usage.write()
            self._thread = threading.Thread(target=self._run, name="simulated device", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while True:
            work = self._queue.get()
            try:
                work()
            except BaseException as error:  # noqa: BLE001 - raised by the next wait
                self._error = self._error or error
            del work  # it would keep the operation's arguments alive

    def _timed(self, work: Work, launched: float, seconds: float) -> None:
        work()
        self.timeline.work(launched, seconds, finished=self.clock.now())

    def _bytes_of_others(self) -> int:
        active = active_processes(self.usage.folder)
        return sum(use.bytes for use in active.values()) - self.usage.use.bytes


_CURRENT: list[Simulator] = []


def current() -> Simulator:
    """Return this process's device, created on the first call. Raises MissingDevice if there is none."""
    if not _CURRENT:
        where = driver.folder()
        if where is None:
            raise MissingDevice(f"there is no simulated device here: {driver.SIMULATED_VARIABLE} is not set")
        set_current(Simulator(driver.Spec.read(where), where))
    return _CURRENT[0]


def set_current(simulator: Simulator) -> Simulator:
    """Replace the process's device, for tests."""
    _CURRENT[:] = [simulator]
    return simulator


def is_used() -> bool:
    """Return whether this process has used its device."""
    return bool(_CURRENT) and _CURRENT[0].started


class Slot:
    """The data of a tensor as a CPU tensor, available once the worker thread has computed it."""

    __slots__ = ("numbers",)
    numbers: Tensor


@dataclass(eq=False)
class Buffer:
    """The device-side state of a tensor; views share its allocation."""

    slot: Slot
    meta: Tensor
    allocation: Allocation


def on_device(value: Any) -> bool:
    """Return whether `value` is a tensor on the simulated device."""
    return isinstance(value, Tensor) and value.device.type == "simulated"


def buffer(tensor: Tensor) -> Buffer:
    """Return the device-side state of a tensor."""
    result: Buffer = tensor.untyped_storage().simulated  # type: ignore[attr-defined]
    return result


def handle(slot: Slot, meta: Tensor, allocation: Allocation) -> Tensor:
    """Return a new tensor on the device, which torch considers contiguous regardless of the data's strides.

    The tensor is never an inference tensor, because a view of a weight must not be one, even in inference mode.
    """
    with torch.inference_mode(mode=False):
        tensor: Tensor = torch._C._acc.create_empty_tensor(tuple(meta.shape), meta.dtype)
    tensor.untyped_storage().simulated = Buffer(slot, meta, allocation)  # type: ignore[attr-defined]
    return tensor
