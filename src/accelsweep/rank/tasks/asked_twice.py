"""`serving.generator=loadgen`: the other scenarios of inference, asked a second time by MLPerf's LoadGen.

The window is ours, with all that it measures. LoadGen's result stands beside it, so that the two can be compared.
"""

from __future__ import annotations

from accelsweep.config.schema import Serving
from accelsweep.errors import Unsupported
from accelsweep.installation import loadgen_install_command
from accelsweep.measure.load.loadgen import Load
from accelsweep.measure.window import BEYOND
from accelsweep.rank.tasks.bench import Bench
from accelsweep.rank.tasks.under_load import latencies_of, told
from accelsweep.worker.measurement import Account
from accelsweep.worker.rank_setup import RankPlace
from accelsweep.worker.run_spec import RunSpec
from accelsweep.worker.tasks.inference import Inference

LATENCIES = {"loadgen_query_seconds_p50": 0.5, "loadgen_query_seconds_p90": 0.9, "loadgen_query_seconds_p99": 0.99}


class AskedTwice(Inference):
    """Answers queries through the window, and then those of LoadGen in the same scenario."""

    rest = ("loadgen_samples_per_second", *LATENCIES)

    def __init__(self, spec: RunSpec, place: RankPlace) -> None:
        """Raises Unsupported where there is no load generator, or more than one rank."""
        super().__init__(spec, place)
        self._rules = spec.config.serving or Serving()
        if remedy := loadgen_install_command():
            raise Unsupported(f"serving.generator=loadgen needs MLPerf's LoadGen: {remedy}")
        if place.size > 1:
            raise Unsupported(f"serving.generator=loadgen asks one rank, not {place.size}: set devices=1 num_nodes=1")

    def after(self, account: Account) -> None:
        """Count the operations; then let LoadGen ask."""
        super().after(account)
        rate = account.metrics["samples_per_second"].value
        assert rate is not None, "a closed window has a rate"
        with Bench(self._spec, self._place, self._rules) as bench:
            bench.alone_seconds()
            found = bench.ask(self._load(rate))
        account.doubts += bench.doubts
        scope, invalid = f"scenario {found.load.scenario}", found.invalid and f"LoadGen: INVALID: {found.invalid}"
        value = None if invalid else found.answered_per_second
        account.metrics["loadgen_samples_per_second"] = told(value, "1/s", scope, invalid)
        single = None if invalid or found.load.scenario == "offline" else found
        reason = invalid or "offline has no latencies: all queries come at once"
        account.metrics |= latencies_of(LATENCIES, single, scope, reason)

    def _load(self, samples_per_second: float) -> Load:
        measure, size = self._spec.config.measure, self._spec.config.batch_size
        per_query = size if measure.scenario == "multi_stream" else 1
        return Load(
            per_second=samples_per_second / per_query,
            percentile=self._rules.latency_percentile,
            min_seconds=measure.min_seconds,
            min_queries=round(BEYOND / (1.0 - self._rules.latency_percentile)),
            seed=self._spec.run.seed,
            scenario=measure.scenario,
            per_query=per_query,
        )
