"""The simulated device of this process: a worker thread is its queue, and it computes what a CPU would.

The host goes on as soon as an operation is queued. Whoever wants a result waits for the queue; `waits` lists who did.
On the real clock an operation ends when its programmed time is over, or when its result is there, if that is later.
On a simulated clock only the programmed times count, so that a busy machine changes nothing.
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
from accelsweep.testing.simulated_device import PRESENCES, Presence, Spec, Use, living

# The host's clock, and its interface: a test has one that only goes on by what the simulation makes it do.


class HostClock(Protocol):
    """The host's time in seconds."""

    simulated: bool

    def now(self) -> float:
        """Return the time."""

    def spend(self, seconds: float) -> None:
        """Let the host work for so long."""

    def wait_until(self, moment: float) -> None:
        """Let the host wait until then."""


class RealClock:
    """The monotonic clock. The host's work takes its real time."""

    simulated = False

    def now(self) -> float:
        """Return the clock's reading."""
        return time.perf_counter()

    def spend(self, seconds: float) -> None:
        """Do nothing: the host has spent its time already."""

    def wait_until(self, moment: float) -> None:
        """Sleep."""
        while (left := moment - time.perf_counter()) > 0:
            time.sleep(left)


# The device's allocator: a budget of bytes, and the counters that torch's own allocators keep.

GRAIN = 512
"""Sizes are rounded up to this, as CUDA's allocator does it."""

SEGMENT = 2 * 2**20
"""Reserved memory grows by whole segments of this size."""


class Allocator:
    """Counts bytes and gives none: the numbers themselves lie in the host's memory."""

    def __init__(self, total: int, use: Use, others: Callable[[], int] = lambda: 0) -> None:
        """`total` is the device's memory, of which `others` hold a part. `use` shows what is reserved.

        This process may reserve `most` of it: at first, all.
        """
        self.total, self._use, self._others = total, use, others
        self.most = total
        self.allocated = self.reserved = self.peak_allocated = self.peak_reserved = 0

    def take(self, size: int) -> Allocation:
        """Return an allocation of `size` bytes. Raises torch.OutOfMemoryError where the budget has no more room."""
        size = -(-size // GRAIN) * GRAIN
        if self.allocated + size > self.reserved:
            self._reserve_for(self.allocated + size)
        self.allocated += size
        self.peak_allocated = max(self.peak_allocated, self.allocated)
        return Allocation(self, size)

    def give_back(self, size: int) -> None:
        """Take an allocation back; it stays reserved."""
        self.allocated -= size

    def empty_cache(self) -> None:
        """Reserve no more than is allocated."""
        self._reserve(-(-self.allocated // SEGMENT) * SEGMENT)

    def reset_peaks(self) -> None:
        """Begin the peaks anew."""
        self.peak_allocated, self.peak_reserved = self.allocated, self.reserved

    def _reserve_for(self, wanted: int) -> None:
        room = min(self.total - self._others(), self.most)
        if wanted > room:
            raise torch.OutOfMemoryError(
                f"the simulated device is out of memory: {wanted} bytes were to be in use, and it has {room} for us"
            )
        self._reserve(min(-(-wanted // SEGMENT) * SEGMENT, room))

    def _reserve(self, size: int) -> None:
        self.reserved = self._use.bytes = size
        self.peak_reserved = max(self.peak_reserved, size)


class Allocation:
    """Some bytes, until nothing refers to this object any more."""

    def __init__(self, allocator: Allocator, size: int) -> None:
        """`size` is in bytes, rounded already."""
        self._allocator, self._size = allocator, size

    def __del__(self) -> None:
        """Give the bytes back."""
        self._allocator.give_back(self._size)


# The device's own time: one queue, in which operations follow one another and take what they are told to.


class Timeline:
    """The moment at which the device is free again, and its work until then."""

    def __init__(self, spec: Spec, use: Use) -> None:
        """`use` is kept up to date as the device works."""
        self._spec, self._use = spec, use
        self._stalls = sorted(spec.stalls)
        self.free_at = 0.0

    def work(self, launched: float, seconds: float, finished: float = 0.0) -> None:
        """Append an operation that was launched at that moment.

        It begins once the device is free. It takes `seconds`, longer where the device stalls or is throttled, and it
        ends no sooner than `finished`, when its result was really there.
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


TELL_SECONDS = 0.05
"""The interval at which other processes are told of this one's work."""

Work = Callable[[], None]


class Simulator:
    """A device and its queue. `launched` counts operations, `copies` those between host and device."""

    def __init__(self, spec: Spec, folder: Path, clock: HostClock | None = None) -> None:
        """`folder` is the driver's. No thread is started before the first operation."""
        self.spec, self.clock = spec, clock or RealClock()
        self.presence = PRESENCES[folder] = Presence(folder)
        self.timeline = Timeline(spec, self.presence.use)
        self.allocator = Allocator(spec.memory_bytes, self.presence.use, self._held_by_others)
        self.waits: list[str] = []
        self.launched = self.copies = 0
        self._queue: queue.SimpleQueue[Work] = queue.SimpleQueue()
        self._error: BaseException | None = None
        self._thread: threading.Thread | None = None
        self._told = -TELL_SECONDS

    @property
    def started(self) -> bool:
        """Whether this process has used the device."""
        return self._thread is not None

    def launch(self, seconds: float, work: Work) -> None:
        """Queue an operation that takes `seconds` of the device's time."""
        self._start()
        self.launched += 1
        self.clock.spend(self.spec.launch_seconds)
        launched = self.clock.now()
        if self.clock.simulated:
            self.timeline.work(launched, seconds)
            self._queue.put(work)
        else:
            self._queue.put(lambda: self._timed(work, launched, seconds))
        if launched - self._told >= TELL_SECONDS:
            self._told = launched
            self.presence.tell()

    def append(self, work: Work) -> None:
        """Queue something that takes no time of the device or of the host: the numbers of a new tensor."""
        self._start()
        self._queue.put(work)

    def mark(self, note: Callable[[float], None]) -> None:
        """Queue a mark: `note` is told the moment at which the device passes it."""
        self._start()
        launched = self.clock.now()
        if self.clock.simulated:
            note(max(self.timeline.free_at, launched))
        else:
            self._queue.put(lambda: note(max(self.timeline.free_at, launched)))

    def wait(self, why: str) -> None:
        """Wait until the queue is empty and its time is over. Raises the first error of an operation."""
        self.waits.append(why)
        if self._thread is not None:
            done = threading.Event()
            self._queue.put(done.set)
            done.wait()
        if self.timeline.free_at - self.clock.now() > TELL_SECONDS:
            self.presence.tell()
        self.clock.wait_until(self.timeline.free_at)
        self.presence.tell()
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def _start(self) -> None:
        if self._thread is None:
            self.presence.tell()
            self._thread = threading.Thread(target=self._run, name="simulated device", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while True:
            work = self._queue.get()
            try:
                work()
            except BaseException as error:  # noqa: BLE001 - it belongs to whoever waits next
                self._error = self._error or error
            del work  # it holds the operation's arguments

    def _timed(self, work: Work, launched: float, seconds: float) -> None:
        work()
        self.timeline.work(launched, seconds, finished=self.clock.now())

    def _held_by_others(self) -> int:
        here = living(self.presence.folder)
        return sum(use.bytes for use in here.values()) - self.presence.use.bytes


# The simulated device that this process has now. A test puts one of its own in its place.

_CURRENT: list[Simulator] = []


def current() -> Simulator:
    """Return the device, made from the driver's folder at the first call. Raises MissingDevice where there is none."""
    if not _CURRENT:
        where = driver.folder()
        if where is None:
            raise MissingDevice(f"there is no simulated device here: {driver.SIMULATED_VARIABLE} names none")
        put(Simulator(driver.Spec.read(where), where))
    return _CURRENT[0]


def put(simulator: Simulator) -> Simulator:
    """Make this the device of the process."""
    _CURRENT[:] = [simulator]
    return simulator


def used() -> bool:
    """Return whether this process has used its device."""
    return bool(_CURRENT) and _CURRENT[0].started


# Tensors on the simulated device: a handle that torch sees, and beside it what the device holds.


class Slot:
    """The numbers of a tensor, a CPU tensor, once the worker has computed them."""

    __slots__ = ("numbers",)
    numbers: Tensor


@dataclass(eq=False)
class Buffer:
    """The device's side of a tensor. Views share the allocation."""

    slot: Slot
    meta: Tensor
    allocation: Allocation


def on_device(value: Any) -> bool:
    """Return whether `value` is a tensor on the simulated device."""
    return isinstance(value, Tensor) and value.device.type == "simulated"


def buffer(tensor: Tensor) -> Buffer:
    """Return what the device holds of a tensor there."""
    found: Buffer = tensor.untyped_storage().simulated  # type: ignore[attr-defined]
    return found


def handle(slot: Slot, meta: Tensor, allocation: Allocation) -> Tensor:
    """Return a new tensor on the device. For torch it is contiguous, whatever the strides of the numbers are.

    A view of a weight is no inference tensor, not even in inference mode. No tensor here is one, which costs little.
    """
    with torch.inference_mode(mode=False):
        made: Tensor = torch._C._acc.create_empty_tensor(tuple(meta.shape), meta.dtype)
    made.untyped_storage().simulated = Buffer(slot, meta, allocation)  # type: ignore[attr-defined]
    return made
