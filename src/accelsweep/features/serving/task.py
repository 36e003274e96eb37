"""Inference tasks with MLPerf's LoadGen. With several ranks, LoadGen and the queue run on rank 0."""

from __future__ import annotations

import statistics
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version
from itertools import count, pairwise
from pathlib import Path
from types import TracebackType
from typing import Self

import torch

from accelsweep.devices.clock import monotonic
from accelsweep.devices.kinds import timed_device
from accelsweep.errors import Unsupported
from accelsweep.features.serving.loadgen import SAMPLES, Load, LoadTest, Peak, ask, find_peak
from accelsweep.features.serving.options import Serving, loadgen_install_command, serving_of
from accelsweep.features.serving.server import AnswerSamples, QueryServer, RemoteWorkers, work_for
from accelsweep.measure import run_doubts
from accelsweep.measure.energy import EnergyMeter
from accelsweep.measure.stalls import CpuTimer, find_stalls
from accelsweep.measure.timed_window import VALUES_BEYOND, group_of
from accelsweep.metrics import Metric
from accelsweep.results import Doubt, ErrorKind
from accelsweep.worker.loops.trainer_replacement import autocast_factory, endless_batches
from accelsweep.worker.rank_measurement import RankReport, telemetry_identities
from accelsweep.worker.rank_setup import RankPlace
from accelsweep.worker.run_spec import RunSpec
from accelsweep.worker.tasks.inference import (
    QUERY_PERCENTILES,
    Inference,
    InferenceDriver,
    collate,
    first_samples,
    predict_step_of,
)

SINGLE_QUERIES = 11
"""Number of queries to answer one by one before any load test."""


class Bench:
    """A module that LoadGen tests. Within the context, this process is limited to one worker's share of threads."""

    def __init__(self, spec: RunSpec, place: RankPlace, rules: Serving) -> None:
        """Build a new instance of the module."""
        self._spec, self._place, self._rules, self._most = spec, place, rules, spec.config.batch_size
        answering = InferenceDriver(spec, place)
        module, loader, self._move = answering.prepared()
        self._heartbeat, self._call = answering.heartbeat, predict_step_of(module)
        self._autocast = autocast_factory(answering.precision, answering.device)
        self._synchronise = timed_device(answering.device).synchronise
        self._samples = first_samples(endless_batches(loader, lambda _: None, self._heartbeat), self._most, SAMPLES)
        self._tests, self._lock = count(), threading.Lock()
        self._threads = torch.get_num_threads()
        self._threads_each = max(1, self._threads // rules.workers)
        self._answers: list[AnswerSamples] = [self.answer] * rules.workers
        self._work, self._times = CpuTimer(), list[float]()
        self.doubts: list[Doubt] = []
        self._others: RemoteWorkers | None = None
        self._device, self._boards = answering.device, telemetry_identities(answering.device)
        with answering.execution, torch.inference_mode(), self._autocast():
            self._call(self._move(collate(self._samples[:1])), 0)
        answering.execution.check()

    def __enter__(self) -> Self:
        """Limit the threads to one worker's share, so that a single query uses no more threads than under load."""
        self._begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Release the other ranks, restore the thread count, and pause the heartbeat."""
        if self._others is not None:
            self._others.close()
        torch.set_num_threads(self._threads)
        self._heartbeat.pause()

    def join(self) -> None:
        """Connect all ranks to the queue on rank 0. On other ranks, answer queries until rank 0 is done."""
        first, alone = self._place.rank == 0, self._place.size == 1
        self._others = RemoteWorkers() if first and not alone else None
        invitation = None if self._others is None else self._others.invitation
        gathered = group_of(self._place.size).gather((invitation, self._boards))
        self._boards = tuple(board for _, boards in gathered for board in boards)
        if not first:
            work_for(gathered[0][0], self.answer, self._rules.workers, self._begin)
        elif self._others is not None:
            self._answers += self._others.answers(self._rules.workers * (self._place.size - 1))

    def answer(self, samples: Sequence[int]) -> None:
        """Answer these samples as one batch, and synchronise the device."""
        with self._lock:
            if not self._times:
                self._times.append(monotonic())  # the first batch began
        batch = self._move(collate([self._samples[number] for number in samples]))
        with torch.inference_mode(), self._autocast():
            self._call(batch, 0)
        self._synchronise()
        with self._lock:
            self._heartbeat.step()
            self._times.append(monotonic())
            self._work.step_done(len(self._times) - 1)

    def alone_seconds(self) -> float:
        """Return the median time in seconds for a single query without load, including the wait for a batch.

        Batches of several sizes are answered first, so that no compilation or tuning happens under load.
        """
        size = self._most
        while size > 1:
            self.answer(range(size))
            size //= 2
        seconds = []
        for number in range(SINGLE_QUERIES):
            began = monotonic()
            self.answer([number])
            seconds.append(monotonic() - began)
        return statistics.median(seconds) + (self._rules.max_wait_ms / 1000 if self._most > 1 else 0.0)

    def ask(self, load: Load) -> LoadTest:
        """Run a load test on a new server, and measure the energy of all devices."""
        folder = Path(self._spec.attempt_folder) / "loadgen"
        with EnergyMeter(self._device.type, self._boards) as meter:
            self._work.start()
            self._times = []
            result = ask(load, self._serving, folder, f"{next(self._tests):02d}")
            self._work.stop()
        self._look_for_stalls()
        return replace(result, energy=meter.result)

    def _look_for_stalls(self) -> None:
        """Add a doubt about a test with a long wait for a response, whether its first or a later one.

        Other ranks may have kept working during the gap.
        """
        gaps = [later - earlier for earlier, later in pairwise(self._times)]
        stalls = self._work.summarise(find_stalls(gaps, sum(gaps)))
        stalls = stalls if self._place.size == 1 else replace(stalls, idle=False)
        doubt = run_doubts.stalled([stalls], sum(gaps), "its latencies are shorter", "a LoadGen test")
        if doubt is not None and doubt.code not in {known.code for known in self.doubts}:
            self.doubts.append(doubt)

    def _serving(self, reply: Callable[[Sequence[int]], None]) -> QueryServer:
        patience = self._rules.max_wait_ms / 1000
        return QueryServer(self._answers, reply, most=self._most, patience_seconds=patience, begin=self._begin)

    def _begin(self) -> None:
        torch.set_num_threads(self._threads_each)


AT_HALF = {
    "half_load_query_seconds_p50": 0.5,
    "half_load_query_seconds_p90": 0.9,
    "half_load_query_seconds_p99": 0.99,
}

TEST_LATENCY_BOUNDS = 20
"""A test lasts at least this multiple of the latency bound, so that a growing queue exceeds the bound."""


class UnderLoad(Inference):
    """Answers full batches throughout the window, then single queries under load."""

    tolerated_failures = frozenset[ErrorKind]()  # the user requested this load

    def __init__(self, spec: RunSpec, place: RankPlace) -> None:
        """Raises Unsupported if LoadGen is not installed."""
        super().__init__(spec, place)
        self._rules = serving_of(spec.config) or Serving()
        if remedy := loadgen_install_command():
            raise Unsupported(f"measure.scenario=server needs MLPerf's LoadGen: {remedy}")

    def after_window(self, report: RankReport) -> None:
        """Find the highest load within the latency bound, and measure at half that load."""
        super().after_window(report)
        whole = report.metrics["samples_per_second"]
        assert whole.value is not None, "a closed window has a rate"
        report.metrics["batch_samples_per_second"] = whole
        reason = "server is compared on queries_per_second; full batches have batch_samples_per_second"
        report.metrics["samples_per_second"] = Metric(value=None, unit=whole.unit, reason=reason)
        report.metrics |= self._served(whole.value, report)

    def _served(self, capacity: float, report: RankReport) -> dict[str, Metric]:
        with Bench(self._spec, self._place, self._rules) as bench:
            least = bench.alone_seconds()
            bench.join()
            if self._place.rank > 0:
                return {}
            if least > self._rules.latency_ms / 1000:
                bound = f"serving.latency_ms={self._rules.latency_ms:g}"
                reason = f"a single query takes {1000 * least:.3g} ms, more than {bound}"
                return load_metrics(self._rules, None, None, reason)
            peak = find_peak(lambda rate: bench.ask(self._load(rate)), capacity)
            half = None if peak.best is None else bench.ask(self._load(peak.best.answered_per_second / 2))
        report.doubts += bench.doubts
        return load_metrics(self._rules, peak, half, nothing_valid(peak))

    def _load(self, per_second: float) -> Load:
        rules = self._rules
        return Load(
            per_second=per_second,
            latency_seconds=rules.latency_ms / 1000,
            percentile=rules.latency_percentile,
            min_seconds=max(self._spec.config.measure.min_seconds, TEST_LATENCY_BOUNDS * rules.latency_ms / 1000),
            min_queries=round(VALUES_BEYOND / (1.0 - rules.latency_percentile)),
            seed=self._spec.run.seed,
        )


def nothing_valid(peak: Peak) -> str | None:
    """Return LoadGen's reason if no test in a search was valid, else None."""
    if peak.best is not None:
        return None
    refused = peak.refused
    return f"LoadGen: INVALID at {refused.load.per_second:.3g} queries/s, the lowest load tried: {refused.invalid}"


def load_metrics(rules: Serving, peak: Peak | None, half: LoadTest | None, reason: str | None) -> dict[str, Metric]:
    """Return the metrics of a search and of a test at `half` its result, or why they are missing."""
    best = peak.best if peak else None
    kept = f"{100 * rules.latency_percentile:g} % of the answers within {rules.latency_ms:g} ms"
    at_half = None if half is None else f"at {half.load.per_second:.4g} queries/s"
    return {
        "queries_per_second": _metric(best.answered_per_second if best else None, "queries/s", kept, reason),
        "answered_together": _metric(best.mean_batch if best else None, "queries", "at the highest load", reason),
        "joules_per_query": _energy(best, reason),
        "load_tests": _metric(float(peak.tests) if peak else None, "tests", "until the highest load was found", reason),
        **latencies_of(QUERY_PERCENTILES, best, "at the highest load", reason),
        **latencies_of(AT_HALF, half, at_half, reason),
        "half_load_query_seconds_mean": _metric(half.mean_seconds if half else None, "s", at_half, reason),
    }


def _energy(best: LoadTest | None, reason: str | None) -> Metric:
    if best is None or best.energy is None:
        return Metric(value=None, unit="J", reason=reason)
    each = None if best.energy.value is None else best.energy.value / best.queries
    return replace(best.energy, value=each)


def latencies_of(
    names: Mapping[str, float], test: LoadTest | None, scope: str | None, reason: str | None
) -> dict[str, Metric]:
    """Return a test's latencies (s) as metrics; `names` maps metrics to percentiles, as fractions.

    Percentiles that need more queries than the test had are withheld.
    """
    found = {}
    for name, share in names.items():
        few = test is not None and test.queries < round(VALUES_BEYOND / (1.0 - share))
        why = f"withheld: {test.queries} queries are too few for it" if test is not None and few else reason
        value = None if test is None or few else test.percentiles[share]
        found[name] = _metric(value, "s", scope, why)
    return found


def _metric(value: float | None, unit: str, scope: str | None, reason: str | None) -> Metric:
    """Return a LoadGen value as a metric; `reason` is used only if there is no value."""
    why = None if value is not None else reason
    source = f"LoadGen {version('mlcommons-loadgen')}"
    return Metric(value=value, unit=unit, reason=why, scope=scope, provenance=source)


LATENCIES = {"loadgen_query_seconds_p50": 0.5, "loadgen_query_seconds_p90": 0.9, "loadgen_query_seconds_p99": 0.99}


class AskedTwice(Inference):
    """Answers queries throughout the window, then LoadGen's queries in the same scenario."""

    rest = ("loadgen_samples_per_second", *LATENCIES)

    def __init__(self, spec: RunSpec, place: RankPlace) -> None:
        """Raises Unsupported if LoadGen is not installed or there is more than one rank."""
        super().__init__(spec, place)
        self._rules = serving_of(spec.config) or Serving()
        if remedy := loadgen_install_command():
            raise Unsupported(f"serving.generator=loadgen needs MLPerf's LoadGen: {remedy}")
        if place.size > 1:
            raise Unsupported(f"serving.generator=loadgen supports 1 rank, not {place.size}: set devices=1 num_nodes=1")

    def after_window(self, report: RankReport) -> None:
        """Count the operations, then run LoadGen's queries."""
        super().after_window(report)
        rate = report.metrics["samples_per_second"].value
        assert rate is not None, "a closed window has a rate"
        with Bench(self._spec, self._place, self._rules) as bench:
            bench.alone_seconds()
            found = bench.ask(self._load(rate))
        report.doubts += bench.doubts
        scope, invalid = f"scenario {found.load.scenario}", found.invalid and f"LoadGen: INVALID: {found.invalid}"
        value = None if invalid else found.answered_per_second
        report.metrics["loadgen_samples_per_second"] = _metric(value, "1/s", scope, invalid)
        single = None if invalid or found.load.scenario == "offline" else found
        reason = invalid or "offline has no latencies: all queries arrive at once"
        report.metrics |= latencies_of(LATENCIES, single, scope, reason)

    def _load(self, samples_per_second: float) -> Load:
        measure, size = self._spec.config.measure, self._spec.config.batch_size
        per_query = size if measure.scenario == "multi_stream" else 1
        return Load(
            per_second=samples_per_second / per_query,
            percentile=self._rules.latency_percentile,
            min_seconds=measure.min_seconds,
            min_queries=round(VALUES_BEYOND / (1.0 - self._rules.latency_percentile)),
            seed=self._spec.run.seed,
            scenario=measure.scenario,
            per_query=per_query,
        )
