"""`measure.scenario=server`: single queries arrive at random, and the highest load is sought that keeps their latency.

The window comes first, with full batches one after another. It gives memory, energy and doubts, and the rate from which
the search starts. Then MLPerf's LoadGen asks a server inside of this rank, and judges each test (`measure.load`).
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version

from accelsweep.config.schema import Serving
from accelsweep.errors import Unsupported
from accelsweep.installation import loadgen_install_command
from accelsweep.measure.load.loadgen import Load, LoadTest
from accelsweep.measure.load.peak import Peak, find_peak
from accelsweep.measure.window import BEYOND
from accelsweep.rank.tasks.bench import Bench
from accelsweep.records.run_record import Metric
from accelsweep.worker.measurement import Account
from accelsweep.worker.rank_setup import RankPlace
from accelsweep.worker.run_spec import ErrorKind, RunSpec
from accelsweep.worker.tasks.inference import QUERY_PERCENTILES, Inference

AT_HALF = {
    "half_load_query_seconds_p50": 0.5,
    "half_load_query_seconds_p90": 0.9,
    "half_load_query_seconds_p99": 0.99,
}

TEST_LATENCY_BOUNDS = 20
"""A test lasts so many times the latency bound at least, so that a queue that only grows is seen to break it."""


class UnderLoad(Inference):
    """Answers full batches through the window, and then single queries under load."""

    rate_survives = frozenset[ErrorKind]()  # the load is what was asked for

    def __init__(self, spec: RunSpec, place: RankPlace) -> None:
        """Raises Unsupported where there is no load generator."""
        super().__init__(spec, place)
        self._rules = spec.config.serving or Serving()
        if remedy := loadgen_install_command():
            raise Unsupported(f"measure.scenario=server needs MLPerf's LoadGen: {remedy}")

    def after(self, account: Account) -> None:
        """Count the operations; then find the highest load, and look at half of it."""
        super().after(account)
        whole = account.metrics["samples_per_second"]
        assert whole.value is not None, "a closed window has a rate"
        account.metrics["batch_samples_per_second"] = whole
        reason = "server is compared by queries_per_second; full batches have batch_samples_per_second"
        account.metrics["samples_per_second"] = Metric(value=None, unit=whole.unit, reason=reason)
        account.metrics |= self._served(whole.value, account)

    def _served(self, capacity: float, account: Account) -> dict[str, Metric]:
        with Bench(self._spec, self._place, self._rules) as bench:
            least = bench.alone_seconds()
            bench.join()
            if self._place.rank > 0:
                return {}
            if least > self._rules.latency_ms / 1000:
                bound = f"serving.latency_ms={self._rules.latency_ms:g}"
                reason = f"one query alone takes {1000 * least:.3g} ms, more than {bound}"
                return load_metrics(self._rules, None, None, reason)
            peak = find_peak(lambda rate: bench.ask(self._load(rate)), capacity)
            half = None if peak.best is None else bench.ask(self._load(peak.best.answered_per_second / 2))
        account.doubts += bench.doubts
        return load_metrics(self._rules, peak, half, nothing_valid(peak))

    def _load(self, per_second: float) -> Load:
        rules = self._rules
        return Load(
            per_second=per_second,
            latency_seconds=rules.latency_ms / 1000,
            percentile=rules.latency_percentile,
            min_seconds=max(self._spec.config.measure.min_seconds, TEST_LATENCY_BOUNDS * rules.latency_ms / 1000),
            min_queries=round(BEYOND / (1.0 - rules.latency_percentile)),
            seed=self._spec.run.seed,
        )


def nothing_valid(peak: Peak) -> str | None:
    """Return LoadGen's reason where it let no test of a search pass; None where it did."""
    if peak.best is not None:
        return None
    refused = peak.refused
    return (
        f"LoadGen: INVALID at {refused.load.per_second:.3g} queries/s, the least load that was tried: {refused.invalid}"
    )


def load_metrics(rules: Serving, peak: Peak | None, half: LoadTest | None, reason: str | None) -> dict[str, Metric]:
    """Return the metrics of a search and of a test at `half` of its result, or why there are none."""
    best = peak.best if peak else None
    kept = f"{100 * rules.latency_percentile:g} % of the answers within {rules.latency_ms:g} ms"
    at_half = None if half is None else f"at {half.load.per_second:.4g} queries/s"
    return {
        "queries_per_second": told(best.answered_per_second if best else None, "queries/s", kept, reason),
        "answered_together": told(best.mean_batch if best else None, "queries", "at the highest load", reason),
        "joules_per_query": _energy(best, reason),
        "load_tests": told(float(peak.tests) if peak else None, "tests", "until the highest load was found", reason),
        **latencies_of(QUERY_PERCENTILES, best, "at the highest load", reason),
        **latencies_of(AT_HALF, half, at_half, reason),
        "half_load_query_seconds_mean": told(half.mean_seconds if half else None, "s", at_half, reason),
    }


def _energy(best: LoadTest | None, reason: str | None) -> Metric:
    if best is None or best.energy is None:
        return Metric(value=None, unit="J", reason=reason)
    each = None if best.energy.value is None else best.energy.value / best.queries
    return best.energy.model_copy(update={"value": each})


def latencies_of(
    names: Mapping[str, float], test: LoadTest | None, scope: str | None, reason: str | None
) -> dict[str, Metric]:
    """Return the latencies (s) of a test by the `names` of their shares; withheld where too few queries lie beyond."""
    found = {}
    for name, share in names.items():
        few = test is not None and test.queries < round(BEYOND / (1.0 - share))
        why = f"withheld: {test.queries} queries are too few for it" if test is not None and few else reason
        value = None if test is None or few else test.percentiles[share]
        found[name] = told(value, "s", scope, why)
    return found


def told(value: float | None, unit: str, scope: str | None, reason: str | None) -> Metric:
    """Return what LoadGen told as a metric; the `reason` counts where there is no value."""
    why = None if value is not None else reason
    source = f"LoadGen {version('mlcommons-loadgen')}"
    return Metric(value=value, unit=unit, reason=why, scope=scope, provenance=source)
