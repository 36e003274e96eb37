"""Search for the largest batch size that fits, by doubling and bisecting. Each trial runs in its own processes.

A batch does not fit if its trial runs out of memory: an allocator error, a `MemoryError`, or an out-of-memory kill. Any
other failure ends the search, with that failure as the reason. Because a trial's processes end with the trial, the next
one starts on a clean device.
"""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import NamedTuple, cast

from accelsweep.config.schema import changed
from accelsweep.config.sweep_options import Limits
from accelsweep.devices.memory_limits import MemoryLimit, free_memory_per_rank
from accelsweep.executor.attempt_outcome import Conclusion, conclude
from accelsweep.executor.recording import read_results
from accelsweep.executor.run_watchdog import Ending
from accelsweep.executor.sampler import append_samples
from accelsweep.metrics import MEMORY_METRICS, Metric
from accelsweep.records.layout import LOG_FILE
from accelsweep.records.run_record import SEARCH_CONFIDENCE, Coefficient, LargestBatch, Trial
from accelsweep.results import Outcome, RankResult
from accelsweep.run_config import SettingConfig
from accelsweep.worker.run_spec import RunSpec

_TRIAL_STEPS = {"warmup_steps": 2, "min_steps": 1, "max_steps": 1, "min_seconds": 0.0}
"""Three steps in total, because the optimiser's state only exists after the first update."""

_FITS = (Outcome.measured, Outcome.diverged)
"""The outcomes of a trial that fits. A diverged trial fits too, because a NaN loss uses as much memory as any other."""

_MEMORY_DOUBTS = ("foreign_process", "swap")


class Line(NamedTuple):
    """The slope (bytes per sample) and intercept (bytes) of a line."""

    per_sample: Coefficient
    fixed: Coefficient


def fit_line(points: Sequence[tuple[int, int]]) -> Line:
    """Return the least-squares line through (samples, bytes); a confidence interval requires three points."""
    if len({samples for samples, _ in points}) < 2:
        reason = "fewer than two of the batches that fit have a known peak"
        return Line(Coefficient(value=None, reason=reason), Coefficient(value=None, reason=reason))
    count = len(points)
    mean_x, mean_y = (math.fsum(values) / count for values in zip(*points, strict=True))
    spread = math.fsum((x - mean_x) ** 2 for x, _ in points)
    slope = math.fsum((x - mean_x) * (y - mean_y) for x, y in points) / spread
    intercept = mean_y - slope * mean_x
    if count < 3:
        reason = "two batches determine a line but no interval"
        return Line(Coefficient(value=slope, reason=reason), Coefficient(value=intercept, reason=reason))
    from accelsweep.analysis.intervals import critical_t  # imports scipy

    residual = math.fsum((y - intercept - slope * x) ** 2 for x, y in points) / (count - 2)
    t = critical_t(count - 2, SEARCH_CONFIDENCE)
    slope_half = t * math.sqrt(residual / spread)
    intercept_half = t * math.sqrt(residual * (1 / count + mean_x**2 / spread))
    return Line(
        Coefficient(value=slope, low=slope - slope_half, high=slope + slope_half),
        Coefficient(value=intercept, low=intercept - intercept_half, high=intercept + intercept_half),
    )


class Bracket(NamedTuple):
    """The largest batch size that `fits` (0 if none does) and the smallest that is `too_large` (None if none is)."""

    fits: int
    too_large: int | None


def find_largest(fits: Callable[[int], bool], first: int, maximum: int, resolution: float) -> Bracket:
    """Return a bracket around the largest batch size from 1 to `maximum` that fits, trying each size at most once.

    Starting at `first`, double the batch size while it fits, or halve it until it fits. Then bisect until the bracket
    is no wider than one sample or `resolution` times the size that fits.
    """
    low, high = 0, None
    batch = min(first, maximum)
    while high is None and low < maximum:
        if fits(batch):
            low, batch = batch, min(2 * batch, maximum)
        else:
            high = batch
    while high is not None and low == 0 and high > 1:
        batch = high // 2
        low, high = (batch, high) if fits(batch) else (0, batch)
    while high is not None and high - low > max(1, int(resolution * low)):
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return Bracket(low, high)


class _EndSearch(Exception):
    """The search was interrupted (`conclusion` is None), or a trial failed for a reason other than memory."""

    def __init__(self, conclusion: Conclusion | None) -> None:
        super().__init__()
        self.conclusion = conclusion


class SearchResult(NamedTuple):
    """`conclusion` is None if the search was interrupted; `largest_batch` is None unless a batch fits."""

    conclusion: Conclusion | None
    results: Mapping[int, RankResult]
    largest_batch: LargestBatch | None


class BatchSizeSearch:
    """A single search. The run's log receives one line per trial, and the output of the trial that ended the search."""

    def __init__(
        self, spec: RunSpec, limits: Limits, run_ranks: Callable[[RunSpec, Limits], Ending], say: Callable[[str], None]
    ) -> None:
        self._spec = spec
        self._limits = limits
        self._run_ranks = run_ranks
        self._say = say
        self._folder = Path(spec.attempt_folder)
        self._trials: list[Trial] = []
        self._best: dict[int, RankResult] = {}
        self._started = time.monotonic()

    @property
    def elapsed_seconds(self) -> float:
        """The seconds since the search began."""
        return time.monotonic() - self._started

    def run(self) -> SearchResult:
        """Try batch sizes until the largest one is known, or the run's time limit is reached."""
        config = self._spec.config
        measure = config.measure
        free = free_memory_per_rank(config.devices, measure.rank_memory_bytes)
        self._host_memory = free.bytes, free.limit
        try:
            bracket = find_largest(self._fits, config.batch_size, measure.max_batch, measure.batch_resolution)
        except _EndSearch as end:
            return SearchResult(end.conclusion, {}, None)
        finally:
            shutil.rmtree(self._folder / "trials", ignore_errors=True)
        if bracket.fits == 0:
            reason = f"not even a batch of 1 fits: {self._trials[-1].reason}"
            return SearchResult(Conclusion(Outcome.out_of_memory, reason), {}, None)
        result = self._largest_batch(bracket)
        return SearchResult(Conclusion(Outcome.measured, None), {0: self._result(result)}, result)

    def _fits(self, batch: int) -> bool:
        started = time.monotonic()
        spec = self._trial_spec(batch)
        left = max(1.0, self._limits.run_seconds - self.elapsed_seconds)
        ending = self._run_ranks(spec, self._limits.model_copy(update={"run_seconds": left}))
        results = read_results(spec, ending.reported)
        conclusion = conclude(spec, ending, results, self._limits)
        append_samples(self._folder, Path(spec.attempt_folder))
        if conclusion is None:
            raise _EndSearch(None)
        self._log_trial(batch, conclusion, results, time.monotonic() - started)
        if conclusion.outcome in _FITS:
            self._best = results
            return True
        out_of_memory = conclusion.outcome is Outcome.out_of_memory
        if batch == 1 or not out_of_memory:
            with (self._folder / LOG_FILE).open("ab") as log:
                log.write((Path(spec.attempt_folder) / LOG_FILE).read_bytes())
        if not out_of_memory:
            reason = f"with a batch of {batch}: {conclusion.reason}"
            raise _EndSearch(Conclusion(conclusion.outcome, reason, retryable=conclusion.retryable))
        return False

    def _trial_spec(self, batch: int) -> RunSpec:
        config = self._spec.config
        config = changed(config, batch_size=batch, measure={**asdict(config.measure), **_TRIAL_STEPS})
        folder = self._folder / "trials" / str(batch)
        folder.mkdir(parents=True)
        spec = replace(self._spec, config=config, attempt_folder=str(folder), host_memory=self._host_memory)
        spec.write()
        return spec

    def _log_trial(self, batch: int, conclusion: Conclusion, results: Mapping[int, RankResult], seconds: float) -> None:
        fits, reason = conclusion.outcome in _FITS, conclusion.reason
        peaks = [_value(result, "peak_rank_bytes") for result in results.values()]
        known = [int(peak) for peak in peaks if peak is not None]
        peak = max(known) if fits and len(known) == self._spec.world_size else None
        self._trials.append(Trial(batch_size=batch, fits=fits, seconds=seconds, peak_bytes=peak, reason=reason))
        fit = "fits" if peak is None else f"fits, peak {peak / 2**20:,.1f} MiB"
        line = f"batch {batch}: {fit if fits else reason} ({seconds:.1f} s)"
        self._say(f"{self._spec.run.name}: {line}")
        with (self._folder / LOG_FILE).open("a", encoding="utf-8") as log:
            log.write(f"{line}\n")

    def _largest_batch(self, bracket: Bracket) -> LargestBatch:
        line = fit_line(
            [(trial.batch_size, trial.peak_bytes) for trial in self._trials if trial.peak_bytes is not None]
        )
        limits = [result.metrics["memory_limit_bytes"] for result in self._best.values()]
        tightest = min(limits, key=lambda limit: limit.value or 0.0)
        rows = _value(self._best[0], "epoch_samples")
        return LargestBatch(
            largest=bracket.fits,
            too_large=bracket.too_large,
            limit=cast(MemoryLimit, tightest.scope),  # validated by LargestBatch
            limit_bytes=None if tightest.value is None else int(tightest.value),
            headroom=self._spec.config.measure.headroom,
            trials=tuple(self._trials),
            bytes_per_sample=line.per_sample,
            fixed_bytes=line.fixed,
            rows=None if rows is None else int(rows),
        )

    def _result(self, result: LargestBatch) -> RankResult:
        """Return rank 0's result at the largest batch, reduced to the search's metrics and memory (no rates)."""
        first = self._best[0]
        memory = {name: first.metrics[name] for name in MEMORY_METRICS if name in first.metrics}
        return replace(
            first,
            outcome=Outcome.measured,
            reason=None,
            error_kind="none",
            traceback=None,
            metrics={**_largest_batch_metrics(result, self._spec.config), **memory},
            doubts=tuple(doubt for doubt in first.doubts if doubt.code in _MEMORY_DOUBTS),
        )


def _value(result: RankResult, name: str) -> float | None:
    metric = result.metrics.get(name)
    return None if metric is None else metric.value


def _largest_batch_metrics(result: LargestBatch, config: SettingConfig) -> dict[str, Metric]:
    """Return search metrics: the largest batch size, the smallest that is too large, and the line's coefficients."""
    peak = max((trial.peak_bytes or 0 for trial in result.trials if trial.batch_size == result.largest), default=0)
    at_least = "" if result.too_large is not None else f"at least, up to measure.max_batch={config.measure.max_batch}; "
    repeated = result.rows is not None and result.largest * config.world_size > result.rows
    rows = f"; the data's {result.rows} rows are repeated" if repeated else ""
    scope = f"{at_least}per rank, {result.headroom:.0%} of the free memory reserved{rows}"
    too_large = Metric(value=None, unit="samples", reason="no batch up to measure.max_batch is too large")
    if result.too_large is not None:
        too_large = Metric(value=float(result.too_large), unit="samples", scope="per rank", provenance="counted")
    limit = Metric(value=None, unit="B", reason="not read", scope=result.limit)
    if result.limit_bytes is not None:
        limit = Metric(value=float(result.limit_bytes), unit="B", scope=result.limit, provenance="limit")
    fit = "a line through the peaks of the trials"
    return {
        "largest_batch": Metric(value=float(result.largest), unit="samples", scope=scope, provenance="counted"),
        "too_large_batch": too_large,
        "bytes_per_sample": _bytes(result.bytes_per_sample.value, result.bytes_per_sample.reason, fit),
        "fixed_bytes": _bytes(result.fixed_bytes.value, result.fixed_bytes.reason, fit),
        "memory_limit_bytes": limit,
        "peak_rank_bytes": _bytes(float(peak) if peak else None, "the allocator records no peak", "counter"),
    }


def _bytes(value: float | None, reason: str | None, provenance: str) -> Metric:
    scope = "fullest rank"
    if value is None:
        return Metric(value=None, unit="B", reason=reason or "unknown", scope=scope)
    return Metric(value=value, unit="B", scope=scope, provenance=provenance)
