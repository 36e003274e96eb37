"""The simulated device of this process: a worker thread is its queue, and it computes what a CPU would.

The host goes on as soon as an operation is queued. Whoever wants a result waits for the queue; `waits` lists who did.
On the real clock an operation ends when its programmed time is over, or when its result is there, if that is later.
On a simulated clock only the programmed times count, so that a busy machine changes nothing.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from pathlib import Path

from accelsweep.machine.drivers.simulated import PRESENCES, Presence, Spec, living
from accelsweep.simulated.clock import HostClock, RealClock
from accelsweep.simulated.memory import Allocator
from accelsweep.simulated.timeline import Timeline

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
