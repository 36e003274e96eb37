"""The tries of one search: each is a run of ranks of its own. They end with it, so the next finds a clean device.

A batch does not fit where its run is out of memory: by an allocator's error, a `MemoryError`, or a kill for lack of
memory. Any other death ends the search with its reason.
"""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, cast

from accelsweep.config.schema import CellConfig
from accelsweep.config.sweep_options import Limits
from accelsweep.devices.kinds import Limit
from accelsweep.devices.memory_limits import room_of_a_rank
from accelsweep.executor.monitor import Ending
from accelsweep.executor.outcome import Conclusion, classify, read_results
from accelsweep.executor.processes import last_words, where_it_stood
from accelsweep.records.layout import LOG_FILE
from accelsweep.records.metrics import MEMORY_METRICS
from accelsweep.records.run_record import SEARCH_CONFIDENCE, Coefficient, Frontier, Metric, Outcome, Try
from accelsweep.records.sweep_progress import read_progress
from accelsweep.worker.run_spec import RankResult, RunSpec

# The line through the peaks of the tries: what each sample takes, and what is there without any.


class Line(NamedTuple):
    """Slope (bytes a sample) and intercept (bytes)."""

    per_sample: Coefficient
    fixed: Coefficient


def line_through(points: Sequence[tuple[int, int]]) -> Line:
    """Return the line through (samples, bytes). It takes two points with different samples, an interval a third."""
    if len({samples for samples, _ in points}) < 2:
        why = "fewer than two batches that fit have a peak"
        return Line(Coefficient(value=None, reason=why), Coefficient(value=None, reason=why))
    count = len(points)
    mean_x, mean_y = (math.fsum(values) / count for values in zip(*points, strict=True))
    spread = math.fsum((x - mean_x) ** 2 for x, _ in points)
    slope = math.fsum((x - mean_x) * (y - mean_y) for x, y in points) / spread
    intercept = mean_y - slope * mean_x
    if count < 3:
        why = "two batches give a line without an interval"
        return Line(Coefficient(value=slope, reason=why), Coefficient(value=intercept, reason=why))
    left = math.fsum((y - intercept - slope * x) ** 2 for x, y in points) / (count - 2)
    errors = math.sqrt(left / spread), math.sqrt(left * (1 / count + mean_x**2 / spread))
    return Line(
        *(_with_interval(value, error, count - 2) for value, error in zip((slope, intercept), errors, strict=True))
    )


def _with_interval(value: float, error: float, degrees: int) -> Coefficient:
    from accelsweep.analysis.intervals import critical_t  # scipy, which a rank has loaded before the first try

    half = critical_t(degrees, SEARCH_CONFIDENCE) * error
    return Coefficient(value=value, low=value - half, high=value + half)


# The largest batch that fits, by doubling and bisecting. The caller says what a batch is, and tries it.


class Bracket(NamedTuple):
    """`fits` fits, and is 0 where not even one sample does. `too_large` does not, and is None where no batch was so."""

    fits: int
    too_large: int | None


def largest(fits: Callable[[int], bool], first: int, most: int, resolution: float) -> Bracket:
    """Return the bracket of the largest batch from 1 to `most`; each batch is tried once at most.

    The first try is `first`. Batches are doubled while they fit, or else halved until one does. Then the bracket is
    halved until it is no wider than one sample, or than `resolution` of what fits.
    """
    low, high = 0, None
    batch = min(first, most)
    while high is None and low < most:
        if fits(batch):
            low, batch = batch, min(2 * batch, most)
        else:
            high = batch
    while high is not None and low == 0 and high > 1:
        batch = high // 2
        low, high = (batch, high) if fits(batch) else (0, batch)
    while high is not None and high - low > max(1, int(resolution * low)):
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return Bracket(low, high)


STEPS = {"warmup_steps": 2, "min_steps": 1, "max_steps": 1, "min_seconds": 0.0}
"""Three steps: the optimiser's state exists from the first update on."""

FITS = (Outcome.measured, Outcome.diverged)
"""A loss that is no number takes as much memory as any other."""

DOUBTED = ("foreign_process", "swap")
"""The doubts of a try that matter to its memory."""

LaunchTry = Callable[[RunSpec, Limits], Ending]
"""Runs the ranks of a spec to their end, within limits."""


class _Over(Exception):
    """The search ends early: it was interrupted (`conclusion` is None), or a try ended in a way that says nothing."""

    def __init__(self, conclusion: Conclusion | None) -> None:
        super().__init__()
        self.conclusion = conclusion


@dataclass(frozen=True)
class Searched:
    """The end of a search. `conclusion` is None if it was interrupted; `frontier` where no batch fits, or it failed."""

    conclusion: Conclusion | None
    results: Mapping[int, RankResult]
    frontier: Frontier | None
    wall_seconds: float


@dataclass
class Search:
    """One search. `log` is the run's log: a line for each try, and the output of one that ended the search."""

    spec: RunSpec
    limits: Limits
    launch: LaunchTry
    log: Path
    say: Callable[[str], None]
    tries: list[Try] = field(default_factory=list)

    def run(self) -> Searched:
        """Try until the largest batch is known, or the limits of the run are reached."""
        config, self._began = self.spec.config, time.monotonic()
        measure = config.measure
        self._room = room_of_a_rank(config.devices, measure.rank_memory_bytes)
        self._best: dict[int, RankResult] = {}
        try:
            found = largest(self._fits, config.batch_size, measure.max_batch, measure.batch_resolution)
        except _Over as end:
            return Searched(end.conclusion, {}, None, self._seconds)
        finally:
            shutil.rmtree(Path(self.spec.attempt_folder) / "tries", ignore_errors=True)
        if found.fits == 0:
            reason = f"not even a batch of 1 fits: {self.tries[-1].reason}"
            return Searched(Conclusion(Outcome.out_of_memory, reason), {}, None, self._seconds)
        frontier = self._frontier(found)
        return Searched(Conclusion(Outcome.measured, None), self._results(frontier), frontier, self._seconds)

    @property
    def _seconds(self) -> float:
        return time.monotonic() - self._began

    def _fits(self, batch: int) -> bool:
        began = time.monotonic()
        spec = self._try(batch)
        left = self.limits.model_copy(update={"run_seconds": max(1.0, self.limits.run_seconds - self._seconds)})
        ending = self.launch(spec, left)
        results = read_results(spec, ending.reported)
        if ending.cause == "interrupted" and len(results) < spec.world_size:
            raise _Over(None)
        log = Path(spec.attempt_folder) / LOG_FILE
        stood = where_it_stood(log, read_progress(spec.progress()) or 0) if ending.stacks else ""
        conclusion = classify(ending, results, last_words(log), self.limits, stood)
        fits = conclusion.outcome in FITS
        self._note(batch, conclusion, results, time.monotonic() - began)
        if not fits and (batch == 1 or conclusion.outcome is not Outcome.out_of_memory):
            self._keep(log)
        if not fits and conclusion.outcome is not Outcome.out_of_memory:
            reason = f"with a batch of {batch}: {conclusion.reason}"
            raise _Over(Conclusion(conclusion.outcome, reason, again=conclusion.again))
        if fits:
            self._best = results
        return fits

    def _try(self, batch: int) -> RunSpec:
        config = self.spec.config
        tried = config.changed(batch_size=batch, measure={**config.measure.model_dump(), **STEPS})
        folder = Path(self.spec.attempt_folder) / "tries" / str(batch)
        folder.mkdir(parents=True)
        changed = {"config": tried, "attempt_folder": str(folder), "room": tuple(self._room)}
        spec = self.spec.model_copy(update=changed)
        spec.write(spec.file())
        return spec

    def _note(self, batch: int, conclusion: Conclusion, results: Mapping[int, RankResult], seconds: float) -> None:
        fits, peaks = conclusion.outcome in FITS, [_value(result, "peak_rank_bytes") for result in results.values()]
        known = [int(peak) for peak in peaks if peak is not None]
        peak = max(known) if fits and len(known) == self.spec.world_size else None
        self.tries.append(Try(batch_size=batch, fits=fits, seconds=seconds, peak_bytes=peak, reason=conclusion.reason))
        words = "fits" + (f", peak {peak / 2**20:,.1f} MiB" if peak is not None else "")
        line = f"batch {batch}: {words if fits else conclusion.reason} ({seconds:.1f} s)"
        self.say(f"{self.spec.run.name}: {line}")
        with self.log.open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")

    def _keep(self, log: Path) -> None:
        """Add the output of a try that failed to the run's log."""
        with self.log.open("ab") as file:
            file.write(log.read_bytes())

    def _frontier(self, found: Bracket) -> Frontier:
        points = [(one.batch_size, one.peak_bytes) for one in self.tries if one.peak_bytes is not None]
        limits = [result.metrics["memory_limit_bytes"] for result in self._best.values()]
        tightest = min(limits, key=lambda limit: limit.value or 0.0)
        rows, line = _value(self._best[0], "epoch_samples"), line_through(points)
        return Frontier(
            largest=found.fits,
            too_large=found.too_large,
            limit=cast(Limit, tightest.scope),  # which a rank named, and which is checked here
            limit_bytes=None if tightest.value is None else int(tightest.value),
            headroom=self.spec.config.measure.headroom,
            tries=tuple(self.tries),
            bytes_per_sample=line.per_sample,
            fixed_bytes=line.fixed,
            rows=None if rows is None else int(rows),
        )

    def _results(self, frontier: Frontier) -> dict[int, RankResult]:
        """Return rank 0's result with the largest batch, with the metrics of the search in the place of a window's."""
        first = self._best[0]
        kept = {
            name: first.metrics[name] for name in MEMORY_METRICS if name in first.metrics
        }  # so few steps give no rate
        found = {**frontier_metrics(frontier, self.spec.config), **kept}
        doubts = tuple(doubt for doubt in first.doubts if doubt.code in DOUBTED)
        done = {"metrics": found, "doubts": doubts, "outcome": Outcome.measured, "reason": None, "error_kind": "none"}
        return {0: first.model_copy(update={**done, "traceback": None})}


def _value(result: RankResult, name: str) -> float | None:
    metric = result.metrics.get(name)
    return None if metric is None else metric.value


def frontier_metrics(frontier: Frontier, config: CellConfig) -> dict[str, Metric]:
    """Return the metrics of a search: the largest batch, the first that is too large, and the line's coefficients."""
    peak = max((one.peak_bytes or 0 for one in frontier.tries if one.batch_size == frontier.largest), default=0)
    free = f"{frontier.headroom:.0%} of the free memory kept free"
    repeated = frontier.rows is not None and frontier.largest * config.world_size > frontier.rows
    rows = f"; the {frontier.rows} rows of the data repeated" if repeated else ""
    least = "" if frontier.too_large is not None else f"at least, up to measure.max_batch={config.measure.max_batch}; "
    scope, lined = f"{least}per rank, {free}{rows}", "a line through the tries' peaks"
    limit = Metric(value=None, unit="B", reason="not read", scope=frontier.limit)
    if frontier.limit_bytes is not None:
        limit = Metric(value=float(frontier.limit_bytes), unit="B", scope=frontier.limit, provenance="limit")
    return {
        "largest_batch": Metric(value=float(frontier.largest), unit="samples", scope=scope, provenance="counted"),
        "too_large_batch": _too_large(frontier),
        "bytes_per_sample": _coefficient(frontier.bytes_per_sample.value, frontier.bytes_per_sample.reason, lined),
        "fixed_bytes": _coefficient(frontier.fixed_bytes.value, frontier.fixed_bytes.reason, lined),
        "memory_limit_bytes": limit,
        "peak_rank_bytes": _coefficient(float(peak) if peak else None, "the allocator keeps no peak", "counter"),
    }


def _too_large(frontier: Frontier) -> Metric:
    if frontier.too_large is None:
        return Metric(value=None, unit="samples", reason="no batch up to measure.max_batch is too large")
    return Metric(value=float(frontier.too_large), unit="samples", scope="per rank", provenance="counted")


def _coefficient(value: float | None, why_not: str | None, provenance: str) -> Metric:
    scope = "fullest rank"
    if value is None:
        return Metric(value=None, unit="B", reason=why_not or "not known", scope=scope)
    return Metric(value=value, unit="B", scope=scope, provenance=provenance)
