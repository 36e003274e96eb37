"""`measure.scenario=server`: single queries arrive at random, and the highest load is sought that keeps their latency.

The window comes first, with full batches one after another. It gives memory, energy and doubts, and the rate from which
the search starts. Then MLPerf's LoadGen asks a server inside of this rank, and judges each test (`measure.load`).
"""

from __future__ import annotations

import statistics
import threading
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from itertools import count
from pathlib import Path

import torch

from accelsweep.base.errors import Unsupported
from accelsweep.base.extras import loadgen_missing
from accelsweep.core.config import Serving
from accelsweep.core.record import Metric
from accelsweep.measure.clock import monotonic
from accelsweep.measure.devices.kinds import measured_device
from accelsweep.measure.load.loadgen import SAMPLES, Load, LoadTest, ask
from accelsweep.measure.load.peak import Peak, find_peak
from accelsweep.measure.load.server import QueryServer
from accelsweep.measure.metrics.rates import BEYOND
from accelsweep.rank.account import Account
from accelsweep.rank.loops.raw_data import endless
from accelsweep.rank.loops.raw_device import autocast_of
from accelsweep.rank.process import RankPlace
from accelsweep.rank.spec import RunSpec
from accelsweep.rank.tasks.inference import PERCENTILES, Answering, Inference, answer_of
from accelsweep.rank.tasks.samples import samples_of, together

AT_HALF = {
    "half_load_query_seconds_p50": 0.5,
    "half_load_query_seconds_p90": 0.9,
    "half_load_query_seconds_p99": 0.99,
}

ALONE = 11
"""Queries that are answered one by one before any load."""

LONGER = 20
"""A test lasts so many times the latency bound at least, so that a queue that only grows is seen to break it."""


class UnderLoad(Inference):
    """Answers full batches through the window, and then single queries under load."""

    def __init__(self, spec: RunSpec, place: RankPlace) -> None:
        """Raises Unsupported where there is no load generator, or more than one rank."""
        super().__init__(spec, place)
        self._rules = spec.config.serving or Serving()
        if remedy := loadgen_missing():
            raise Unsupported(f"measure.scenario=server needs MLPerf's LoadGen: {remedy}")
        if place.size > 1:
            raise Unsupported(f"measure.scenario=server serves from one rank, not from {place.size}")

    def after(self, account: Account) -> None:
        """Count the operations; then find the highest load, and look at half of it."""
        super().after(account)
        whole = account.metrics["samples_per_second"]
        assert whole.value is not None, "a closed window has a rate"
        account.metrics["batch_samples_per_second"] = whole
        reason = "server is compared by queries_per_second; full batches have batch_samples_per_second"
        account.metrics["samples_per_second"] = Metric(value=None, unit=whole.unit, reason=reason)
        account.metrics |= self._served(whole.value)

    def _served(self, capacity: float) -> dict[str, Metric]:
        bench = _Bench(self._spec, self._place, self._rules)
        try:
            least = bench.alone_seconds()
            if least > self._rules.latency_ms / 1000:
                bound = f"serving.latency_ms={self._rules.latency_ms:g}"
                reason = f"one query alone takes {1000 * least:.3g} ms, more than {bound}"
                return load_metrics(self._rules, None, None, reason)
            peak = find_peak(bench.test, capacity)
            half = None if peak.best is None else bench.test(peak.best.answered_per_second / 2)
        finally:
            bench.rest()
        return load_metrics(self._rules, peak, half, nothing_valid(peak))


def nothing_valid(peak: Peak) -> str | None:
    """Return LoadGen's reason where it let no test of a search pass; None where it did."""
    if peak.best is not None or peak.refused is None:
        return None
    refused = peak.refused
    return (
        f"LoadGen: INVALID at {refused.load.per_second:.3g} queries/s, the least load that was tried: {refused.invalid}"
    )


class _Bench:
    """A module that answers single samples, and LoadGen's tests of it."""

    def __init__(self, spec: RunSpec, place: RankPlace, rules: Serving) -> None:
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

    def test(self, per_second: float) -> LoadTest:
        """Put a load of queries per second on a fresh server and return what LoadGen says."""
        measure, rules = self._spec.config.measure, self._rules
        load = Load(
            per_second=per_second,
            latency_seconds=rules.latency_ms / 1000,
            percentile=rules.latency_percentile,
            min_seconds=max(measure.min_seconds, LONGER * rules.latency_ms / 1000),
            min_queries=round(BEYOND / (1.0 - rules.latency_percentile)),
            seed=self._spec.run.seed,
        )
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


def load_metrics(rules: Serving, peak: Peak | None, half: LoadTest | None, reason: str | None) -> dict[str, Metric]:
    """Return the metrics of a search and of a test at `half` of its result, or why there are none."""
    best = peak.best if peak else None
    kept = f"{100 * rules.latency_percentile:g} % of the answers within {rules.latency_ms:g} ms"
    at_half = None if half is None else f"at {half.load.per_second:.4g} queries/s"
    return {
        "queries_per_second": _metric(best.answered_per_second if best else None, "queries/s", kept, reason),
        "answered_together": _metric(best.mean_batch if best else None, "queries", "at the highest load", reason),
        "load_tests": _metric(float(peak.tests) if peak else None, "tests", "until the highest load was found", reason),
        **_latencies(PERCENTILES, best, "at the highest load", reason),
        **_latencies(AT_HALF, half, at_half, reason),
        "half_load_query_seconds_mean": _metric(half.mean_seconds if half else None, "s", at_half, reason),
    }


def _latencies(
    names: Mapping[str, float], told: LoadTest | None, scope: str | None, reason: str | None
) -> dict[str, Metric]:
    found = {}
    for name, share in names.items():
        few = told is not None and told.queries < round(BEYOND / (1.0 - share))
        why = f"withheld: {told.queries} queries are too few for it" if told is not None and few else reason
        value = None if told is None or few else told.percentiles[share]
        found[name] = _metric(value, "s", scope, why)
    return found


def _metric(value: float | None, unit: str, scope: str | None, reason: str | None) -> Metric:
    why = None if value is not None else reason
    return Metric(value=value, unit=unit, reason=why, scope=scope, provenance=f"LoadGen {version('mlcommons-loadgen')}")
