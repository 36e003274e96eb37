"""`task: train_throughput` with the user's own script that has no Lightning Trainer."""

from __future__ import annotations

import statistics
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

import torch

from accelsweep.devices.clock import monotonic
from accelsweep.measure import run_doubts
from accelsweep.measure.breakdown import breakdown_metrics
from accelsweep.measure.memory import parameter_bytes, shard_metric
from accelsweep.measure.stalls import pause_limit
from accelsweep.measure.timed_window import group_of
from accelsweep.metrics import Metric, not_reached
from accelsweep.results import ANY_FAILURE, UNSEEN_PRECISION, Doubt, ErrorKind
from accelsweep.worker.loops.script import UNSEEN_STRATEGY, ScriptLoop, running_loop
from accelsweep.worker.rank_measurement import Measurement, RankReport
from accelsweep.worker.rank_setup import RankPlace, threads_of
from accelsweep.worker.run_spec import RunSpec
from accelsweep.worker.script_quality import ScriptQuality

_UNSEEN = "not watched: only the steps of a script without a Lightning Trainer are"
_UNSEEN_UNITS = {
    "first_step_seconds": "s",
    "final_train_loss": "loss",
    "epoch_samples": "samples",
}

_OVER_THE_WINDOW = ("window_seconds", "energy_joules", "host_energy_joules")
"""Metrics of the whole window, from which pauses cannot be taken out."""


def pauses(step_seconds: Sequence[float]) -> list[float]:
    """Return the duration of each pause among the steps, beyond a usual step."""
    usual = statistics.median(step_seconds)
    return [seconds - usual for seconds in step_seconds if seconds > pause_limit(usual)]


class ScriptThroughput:
    """Watches the script through the window. What only a Lightning Trainer shows is not measured."""

    tolerated_failures: Collection[ErrorKind] = ANY_FAILURE

    def __init__(self, spec: RunSpec, place: RankPlace) -> None:
        """`spec` is the run; `place` identifies this rank."""
        self._spec, self._place = spec, place

    def driver(self) -> ScriptLoop:
        """Return the script's training."""
        return running_loop()

    def window_closed(self, measured: Measurement, report: RankReport) -> None:
        """Take the pauses out of the rate, and add what the hooks have seen."""
        loop, group, effective = running_loop(), group_of(self._spec.world_size), measured.effective
        report.effective = replace(
            effective,
            batch_size=loop.batch_size,  # the window may have begun with a short batch
            global_batch_size=loop.batch_size * loop.batches_per_step * self._spec.world_size,
        )
        found = group.gather(pauses(measured.window.window_step_seconds))
        self._exclude_pauses(min(found, key=sum), report)
        rate, scope = loop.learning_rate, "first parameter group, end of the window"
        report.metrics |= {
            **{name: Metric(value=None, unit=unit, reason=_UNSEEN) for name, unit in _UNSEEN_UNITS.items()},
            **breakdown_metrics(_UNSEEN),
            **self._no_quality(loop.quality),
            **({} if loop.module is None else shard_metric(group.gather(parameter_bytes(loop.module)))),
            "learning_rate": Metric(value=rate, unit="1", reason=None if rate is not None else _UNSEEN, scope=scope),
            **self._token_rate(loop.tokens_per_sample, report),
        }
        load = report.metrics["load_seconds"]
        report.metrics["load_seconds"] = replace(load, scope="rank 0: the script, from its start to the steps watched")
        if self._place.rank == 0:
            report.doubts += filter(None, self._other_values(loop))

    def _other_values(self, loop: ScriptLoop) -> Iterator[Doubt | None]:
        """Yield doubts about what the script does in another way than the setting asks for."""
        if loop.precision != UNSEEN_PRECISION:
            yield run_doubts.other_precision(self._spec.config.precision, loop.precision)
        yield run_doubts.separate_ranks(self._spec.world_size if loop.strategy == UNSEEN_STRATEGY else 1)
        yield run_doubts.other_threads(threads_of(self._spec, self._place), torch.get_num_threads())

    def _exclude_pauses(self, found: Sequence[float], report: RankReport) -> None:
        metrics, paused = report.metrics, sum(found)
        scope = "the rank that paused least"
        metrics["pauses"] = Metric(value=float(len(found)), unit="pauses", scope=scope)
        metrics["pause_seconds"] = Metric(value=paused, unit="s", scope=scope, provenance="clock")
        seconds = metrics["window_seconds"].value or 0.0
        share = (seconds - paused) / seconds
        factors = {"samples_per_second": 1 / share, "tokens_per_second": 1 / share, "step_seconds": share}
        for name in filter(metrics.__contains__, factors):
            metrics[name] = replace(metrics[name], value=(metrics[name].value or 0.0) * factors[name])
        for name in filter(metrics.__contains__, _OVER_THE_WINDOW):
            if found and metrics[name].value is not None:
                metrics[name] = replace(metrics[name], scope=f"{metrics[name].scope}, pauses included")
        if self._place.rank == 0 and found:
            report.doubts = [doubt for doubt in report.doubts if doubt.code != "stall"]
            steps = metrics["window_steps"].value or 0.0
            report.doubts += filter(None, [run_doubts.pauses(len(found), paused, round(steps), share)])

    def _token_rate(self, tokens_per_sample: float | None, report: RankReport) -> dict[str, Metric]:
        """Return the rate in tokens, unless the loader's batches have been counted."""
        if "tokens_per_second" in report.metrics:
            return {}
        if not tokens_per_sample:
            reason = "the batches do not show how many tokens they contain"
            return {"tokens_per_second": Metric(value=None, unit="1/s", reason=reason, scope="all ranks")}
        rate = (report.metrics["samples_per_second"].value or 0.0) * tokens_per_sample
        scope = "all ranks, positions of the model's input"
        return {"tokens_per_second": Metric(value=rate, unit="1/s", scope=scope, provenance="clock")}

    def _no_quality(self, wanted: ScriptQuality | None) -> dict[str, Metric]:
        if wanted is not None:
            return not_reached(("quality", "quality_seconds"), self._spec.config.measure.quality_metric)
        reason = "not requested: set quality=METRIC, or quality=PATTERN for what the script prints"
        units = {"quality": "quality", "quality_seconds": "s"}
        return {name: Metric(value=None, unit=unit, reason=reason) for name, unit in units.items()}

    def after_window(self, report: RankReport) -> None:
        """If the quality is wanted, let the script train to its own end, and take the last value."""
        loop, began = running_loop(), monotonic()
        if loop.quality is None:
            return
        loop.train_to_end()
        seconds, scope = monotonic() - began, "from the end of the window to that of the script"
        report.metrics["quality"] = loop.quality.metric()
        report.metrics["quality_seconds"] = Metric(value=seconds, unit="s", scope=scope, provenance="clock")
