"""A module that answers single samples in batches, and MLPerf's LoadGen that asks it.

Where a run has several ranks, LoadGen and the only queue are those of rank 0. The others answer what it hands them.
"""

from __future__ import annotations

import statistics
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count, pairwise
from pathlib import Path
from types import TracebackType
from typing import Self

import torch

from accelsweep.config.schema import Serving
from accelsweep.devices.clock import monotonic
from accelsweep.devices.kinds import timed_device
from accelsweep.measure import run_doubts
from accelsweep.measure.energy import Meter
from accelsweep.measure.load.loadgen import SAMPLES, Load, LoadTest, ask
from accelsweep.measure.load.remote import RemoteWorkers, work_for
from accelsweep.measure.load.server import AnswerSamples, QueryServer
from accelsweep.measure.stalls import OurWork, Stall, find_stalls
from accelsweep.measure.window import group_of
from accelsweep.records.run_record import Doubt
from accelsweep.worker.loops.raw_parts import autocast_of, endless
from accelsweep.worker.measurement import identities
from accelsweep.worker.rank_setup import RankPlace
from accelsweep.worker.run_spec import RunSpec
from accelsweep.worker.tasks.inference import Answering, answer_of, samples_of, together

ALONE = 11
"""Queries that are answered one by one before any load."""


class Bench:
    """A module that answers single samples, and LoadGen's tests of it. In its context it has one worker's threads."""

    def __init__(self, spec: RunSpec, place: RankPlace, rules: Serving) -> None:
        """Build the module anew."""
        self._spec, self._place, self._rules, self._most = spec, place, rules, spec.config.batch_size
        answering = Answering(spec, place)
        module, loader, self._move = answering.prepared()
        self._pulse, self._call = answering.pulse, answer_of(module)
        self._autocast = autocast_of(answering.precision, answering.device)
        self._synchronise = timed_device(answering.device).synchronise
        self._samples = samples_of(endless(loader, lambda _: None, self._pulse), self._most, SAMPLES)
        self._tests, self._lock = count(), threading.Lock()
        self._threads = torch.get_num_threads()
        self._threads_each = max(1, self._threads // rules.workers)
        self._answers: list[AnswerSamples] = [self.answer] * rules.workers
        self._work, self._answered_at = OurWork(), list[float]()
        self.doubts: list[Doubt] = []
        self._others: RemoteWorkers | None = None
        self._device, self._boards = answering.device, identities(answering.device)

    def __enter__(self) -> Self:
        """Take the threads of one worker: a query alone has no more of them than under load."""
        self._begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Send the other ranks home, give this rank its threads back, and say that no answer is to come."""
        if self._others is not None:
            self._others.close()
        torch.set_num_threads(self._threads)
        self._pulse.rest()

    def join(self) -> None:
        """Bring all ranks behind the queue of rank 0. On any other rank this answers until rank 0 is done."""
        first, alone = self._place.rank == 0, self._place.size == 1
        self._others = RemoteWorkers() if first and not alone else None
        invitation = None if self._others is None else self._others.invitation
        told = group_of(self._place.size).gather((invitation, self._boards))
        self._boards = tuple(board for _, boards in told for board in boards)
        if not first:
            work_for(told[0][0], self.answer, self._rules.workers, self._begin)
        elif self._others is not None:
            self._answers += self._others.answers(self._rules.workers * (self._place.size - 1))

    def answer(self, samples: Sequence[int]) -> None:
        """Answer the samples of these numbers together, and wait for the device."""
        batch = self._move(together([self._samples[number] for number in samples]))
        with torch.inference_mode(), self._autocast():
            self._call(batch, 0)
        self._synchronise()
        with self._lock:
            self._pulse.beat()
            self._answered_at.append(monotonic())
            self._work.step_done(len(self._answered_at))

    def alone_seconds(self) -> float:
        """Return what a query takes that no other one disturbs, its wait for others included.

        Batches of several sizes are answered first, so that nothing is compiled or tuned under load.
        """
        size = self._most
        while size > 1:
            self.answer(range(size))
            size //= 2
        seconds = [self._seconds(number) for number in range(ALONE)]
        return statistics.median(seconds) + (self._rules.max_wait_ms / 1000 if self._most > 1 else 0.0)

    def _seconds(self, number: int) -> float:
        began = monotonic()
        self.answer([number])
        return monotonic() - began

    def ask(self, load: Load) -> LoadTest:
        """Put a load on a fresh server and return what LoadGen says, and the energy of all devices meanwhile."""
        folder = Path(self._spec.attempt_folder) / "loadgen"
        with Meter(self._device.type, self._boards) as meter:
            self._work.start()
            self._answered_at = []
            found = ask(load, self._serving, folder, f"{next(self._tests):02d}")
            self._work.stop()
        self._look_for_stalls()
        return replace(found, energy=meter.found)

    def _look_for_stalls(self) -> None:
        """Doubt a test in which no answer came for long. Only this rank is looked at: others may have worked on."""
        gaps = [later - earlier for earlier, later in pairwise(self._answered_at)]
        found = [Stall(one.begin + 1, one.end + 1, one.seconds) for one in find_stalls(gaps, sum(gaps))]
        stalls = self._work.during(found)
        stalls = stalls if self._place.size == 1 else replace(stalls, still=False)
        doubt = run_doubts.stalled([stalls], sum(gaps), "its latencies are shorter", "a test of LoadGen's")
        if doubt is not None and doubt.code not in {one.code for one in self.doubts}:
            self.doubts.append(doubt)

    def _serving(self, reply: Callable[[Sequence[int]], None]) -> QueryServer:
        patience = self._rules.max_wait_ms / 1000
        return QueryServer(self._answers, reply, most=self._most, patience_seconds=patience, begin=self._begin)

    def _begin(self) -> None:
        torch.set_num_threads(self._threads_each)
