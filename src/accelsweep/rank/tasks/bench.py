"""A module that answers single samples in batches, and MLPerf's LoadGen that asks it."""

from __future__ import annotations

import statistics
import threading
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path

import torch

from accelsweep.core.config import Serving
from accelsweep.measure.clock import monotonic
from accelsweep.measure.devices.kinds import measured_device
from accelsweep.measure.load.loadgen import SAMPLES, Load, LoadTest, ask
from accelsweep.measure.load.server import QueryServer
from accelsweep.rank.loops.raw_data import endless
from accelsweep.rank.loops.raw_device import autocast_of
from accelsweep.rank.process import RankPlace
from accelsweep.rank.spec import RunSpec
from accelsweep.rank.tasks.inference import Answering, answer_of
from accelsweep.rank.tasks.samples import samples_of, together

ALONE = 11
"""Queries that are answered one by one before any load."""


class Bench:
    """A module that answers single samples, and LoadGen's tests of it."""

    def __init__(self, spec: RunSpec, place: RankPlace, rules: Serving) -> None:
        """Build the module anew. Until `rest`, this process has the threads of one worker."""
        self._spec, self._rules, self._most = spec, rules, spec.config.batch_size
        answering = Answering(spec, place)
        module, loader, self._move = answering.prepared()
        self._pulse, self._call = answering.pulse, answer_of(module)
        self._autocast = autocast_of(answering.precision, answering.device)
        self._synchronise = measured_device(answering.device).synchronise
        self._samples = samples_of(endless(loader, [], self._pulse), self._most, SAMPLES)
        self._tests, self._lock = count(), threading.Lock()
        self._threads = torch.get_num_threads()
        self._threads_each = max(1, self._threads // rules.workers)
        torch.set_num_threads(self._threads_each)  # a query alone has no more of them than under load

    def answer(self, samples: Sequence[int]) -> None:
        """Answer the samples of these numbers together, and wait for the device."""
        batch = self._move(together([self._samples[number] for number in samples]))
        with torch.inference_mode(), self._autocast():
            self._call(batch, 0)
        self._synchronise()
        with self._lock:
            self._pulse.beat()

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
        """Put a load on a fresh server and return what LoadGen says."""
        folder = Path(self._spec.attempt_folder) / "loadgen"
        return ask(load, self._serving, folder, f"{next(self._tests):02d}")

    def _serving(self, reply: Callable[[Sequence[int]], None]) -> QueryServer:
        rules = self._rules
        return QueryServer(
            self.answer,
            reply,
            most=self._most,
            patience_seconds=rules.max_wait_ms / 1000,
            workers=rules.workers,
            begin=lambda: torch.set_num_threads(self._threads_each),
        )

    def rest(self) -> None:
        """Give this rank its threads back, and say that no answer is to come."""
        torch.set_num_threads(self._threads)
        self._pulse.rest()
