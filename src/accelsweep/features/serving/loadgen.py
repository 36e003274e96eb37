"""Load tests with MLPerf's LoadGen (V. J. Reddi et al., ISCA 2020, section IV), and a search for the highest load.

LoadGen is the package `mlcommons-loadgen`, installed by our extra `serving`. It determines arrivals, latencies and
validity; settings that we do not set keep their defaults. All of its seeds are set to the run's seed. Latency is
measured from when a query is due, even if it is issued later.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from accelsweep.features.serving.server import QueryServer
from accelsweep.metrics import MLPERF_LOG_MARK, Metric

PERCENTILES = (0.5, 0.9, 0.99)
"""The latency percentiles that are recorded."""

SAMPLES = 64
"""Queries are drawn, with replacement, from this many samples."""

_LARGE_LOGS = ("detail.txt", "accuracy.json", "trace.json")

_NANO = 1e9


@dataclass(frozen=True)
class Load:
    """A load test: single queries that arrive as a Poisson process at `per_second`, or one of the other scenarios.

    `latency_seconds` is the latency bound for the share `percentile` of the queries. A `multi_stream` query contains
    `per_query` samples. For the other scenarios, `per_second` is a hint about how many queries to prepare.
    """

    per_second: float
    latency_seconds: float = 1.0
    percentile: float = 0.99
    min_seconds: float = 1.0
    min_queries: int = 1
    seed: int = 0
    scenario: Literal["server", "offline", "single_stream", "multi_stream"] = "server"
    per_query: int = 1

    def settings(self, loadgen: Any) -> Any:
        """Return the test as LoadGen settings."""
        made, nanoseconds = loadgen.TestSettings(), int(_NANO / self.per_second)
        made.scenario = getattr(loadgen.TestScenario, _NAMES[self.scenario])
        made.mode = loadgen.TestMode.PerformanceOnly
        made.min_duration_ms, made.min_query_count = int(1000 * self.min_seconds), self.min_queries
        made.qsl_rng_seed = made.sample_index_rng_seed = made.schedule_rng_seed = self.seed
        made.server_target_qps = made.offline_expected_qps = self.per_second
        made.server_target_latency_ns = int(_NANO * self.latency_seconds)
        made.server_target_latency_percentile = self.percentile
        made.single_stream_expected_latency_ns = made.multi_stream_expected_latency_ns = nanoseconds
        made.single_stream_target_latency_percentile = self.percentile
        made.multi_stream_target_latency_percentile = self.percentile
        made.multi_stream_samples_per_query = self.per_query
        return made


_NAMES = {
    "server": "Server",
    "offline": "Offline",
    "single_stream": "SingleStream",
    "multi_stream": "MultiStream",
}


@dataclass(frozen=True)
class LoadTest:
    """LoadGen's result for a test; `invalid` is LoadGen's reason if the test is invalid.

    `answered_per_second` is the rate in samples/s up to the last response. `percentiles` maps percentiles, as
    fractions, to latencies in seconds. `mean_batch`, the mean batch size of the server, and `energy` (J) are our own
    measurements.
    """

    load: Load
    invalid: str | None
    queries: int
    answered_per_second: float
    mean_seconds: float
    percentiles: dict[float, float]
    mean_batch: float
    energy: Metric | None = None


ServerOf = Callable[[Callable[[Sequence[int]], None]], QueryServer]
"""Creates a server that calls the given function with the IDs of answered queries."""


def ask(load: Load, serving: ServerOf, folder: Path, name: str) -> LoadTest:
    """Run a load test and return LoadGen's result. LoadGen's summary is saved as `name`-summary.txt.

    Errors in the server propagate.
    """
    import mlperf_loadgen as loadgen

    folder.mkdir(parents=True, exist_ok=True)
    queries: list[int] = []

    def reply(ids: Sequence[int]) -> None:
        loadgen.QuerySamplesComplete([loadgen.QuerySampleResponse(ident, 0, 0) for ident in ids])

    with serving(reply) as server:

        def issue(asked: Sequence[Any]) -> None:
            queries.append(len(asked))
            server.put([(query.id, query.index) for query in asked])

        system = loadgen.ConstructSUT(issue, lambda: None)
        library = loadgen.ConstructQSL(SAMPLES, SAMPLES, lambda _: None, lambda _: None)
        try:
            audit = str(folder / "audit.config")  # otherwise LoadGen looks in the working directory
            loadgen.StartTestWithLogSettings(
                system, library, load.settings(loadgen), _logs(loadgen, folder, name), audit
            )
        finally:
            loadgen.DestroyQSL(library)
            loadgen.DestroySUT(system)
    if server.error is not None:
        raise server.error
    log = _log(folder / f"{name}-detail.txt")
    for log_name in _LARGE_LOGS:
        (folder / f"{name}-{log_name}").unlink(missing_ok=True)
    return _result(load, log, len(queries), sum(server.batches) / len(server.batches))


def _logs(loadgen: Any, folder: Path, name: str) -> Any:
    """Return LoadGen's log settings, without per-query traces."""
    made = loadgen.LogSettings()
    output = loadgen.LogOutputSettings()
    output.outdir, output.prefix = str(folder), f"{name}-"
    output.copy_summary_to_stdout = output.copy_detail_to_stdout = False
    made.log_output, made.enable_trace = output, False
    return made


def _log(path: Path) -> dict[str, Any]:
    """Return the last value of each key in LoadGen's detail log, whose entries are lines of JSON with a prefix."""
    lines = path.read_text("utf-8", errors="replace").splitlines()
    entries = [json.loads(line.removeprefix(MLPERF_LOG_MARK)) for line in lines if line.startswith(MLPERF_LOG_MARK)]
    return {str(entry["key"]): entry["value"] for entry in entries}


def _result(load: Load, log: dict[str, Any], queries: int, mean_batch: float) -> LoadTest:
    scope = "_per_query" if load.scenario == "multi_stream" else ""
    mean = log["result_mean_query_latency_ns" if scope else "result_mean_latency_ns"]
    invalid = None if log["result_validity"] == "VALID" else _invalid_reason(log)
    return LoadTest(
        load=load,
        invalid=invalid,
        queries=queries,
        answered_per_second=_answered(load, log),
        mean_seconds=mean / _NANO,
        percentiles={
            share: log[f"result_{100 * share:.2f}_percentile{scope}_latency_ns"] / _NANO for share in PERCENTILES
        },
        mean_batch=mean_batch,
    )


def _answered(load: Load, log: dict[str, Any]) -> float:
    """Return the samples per second, which each scenario reports differently."""
    if load.scenario == "multi_stream":
        return load.per_query * _NANO / float(log["result_mean_query_latency_ns"])
    return float(log[_RATE_OF[load.scenario]])


_RATE_OF = {
    "server": "result_completed_samples_per_sec",
    "offline": "result_samples_per_second",
    "single_stream": "result_qps_with_loadgen_overhead",
}


def _invalid_reason(log: dict[str, Any]) -> str:
    """Format LoadGen's reasons for INVALID, including early stopping, as one line."""
    reason = str(log.get("result_invalid_reason", "")).strip()
    early = "" if log.get("early_stopping_met", True) else str(log.get("early_stopping_result", ""))
    parts = [part for part in (reason, early.replace(" * ", " ")) if part]
    return " ".join(" ".join(parts).split()) or "no reason given"


PRECISION = 1.04
"""The search ends when the lowest failing load is at most this multiple of the highest passing load."""

_FIRST_SHARE = 0.7
"""The first load to try, as a share of the rate with full batches, which no sustained load can exceed."""

_STEP = 1.5

_MIN_SHARE = 1 / 64


@dataclass(frozen=True)
class Peak:
    """The result of a search: the valid test with the highest load, if any, and the last invalid test."""

    best: LoadTest | None
    refused: LoadTest
    tests: int


def find_peak(test: Callable[[float], LoadTest], capacity: float) -> Peak:
    """Return the highest load (queries/s) that passes `test`, to within `PRECISION`, using bisection.

    `capacity` is a hint: the rate with full batches. The search gives up below 1/64 of `capacity`.
    """
    best: LoadTest | None = None
    refusals: list[LoadTest] = []
    tests, low, load, retried = 0, 0.0, _FIRST_SHARE * capacity, False
    while True:
        high = refusals[-1].load.per_second if refusals else math.inf
        ends = load < _MIN_SHARE * capacity or (low > 0 and high / low <= PRECISION)
        if ends and retried:
            return Peak(best, refusals[-1], tests)
        result, tests = test(high if ends else load), tests + 1
        if result.invalid is None:
            best, low = result, result.load.per_second
        elif ends:
            return Peak(best, result, tests)
        else:
            refusals.append(result)
        if ends:  # the failing load passed on retry, so higher loads may pass as well
            refusals, retried = refusals[:-1], True
        load = _next(low, refusals[-1].load.per_second if refusals else math.inf)


def _next(low: float, high: float) -> float:
    if math.isinf(high):
        return low * _STEP
    return math.sqrt(low * high) if low else high / _STEP**2
