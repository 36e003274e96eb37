"""Times the optimiser's steps of a training, and compares their rate with the measured one every few minutes.

It never disturbs the training: a step costs one call of a small function, nothing waits for the device, comparisons are
made in a thread of their own, and whatever goes wrong ends the watching with one warning.
"""

from __future__ import annotations

import atexit
import os
import statistics
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from accelsweep.features.watch.measured_rate import Expectation, LiveSetting, MeasuredRate, choose
from accelsweep.measure.stalls import pause_limit
from accelsweep.significant_digits import significant

WARMUP_STEPS = 20
"""Steps before the first one that is compared."""

FIRST_SECONDS = 60.0
"""The first comparison is made after this time at most, to show soon that the training is watched."""

AS_MEASURED = 0.95
"""From this ratio on, a training is as fast as measured, and no causes are stated."""

PAUSED_SHARE = 0.1
"""The share of the time from which pauses are stated."""

LAST_SECONDS = 5.0
"""How long the end of the program waits for a comparison that is being made."""

METRIC = "accelsweep/rate_vs_measured"
"""The ratio's name in an MLflow run."""

LogMetric = Callable[[str, float, int], object]
"""Logs a metric, given its name, value and step."""


@dataclass
class Span:
    """Steps that are compared together: their number, and the seconds that they took, with those in pauses."""

    began: float
    steps: int = 0
    pauses: int = 0
    paused_seconds: float = 0.0
    waited_seconds: float = 0.0
    seconds: float = 0.0

    @property
    def training_seconds(self) -> float:
        """The seconds without pauses. If most steps are slow, these are no pauses."""
        return self.seconds - (0.0 if 2 * self.pauses > self.steps else self.paused_seconds)

    def add(self, other: Span) -> None:
        """Add the steps of another span."""
        for name in ("steps", "pauses", "paused_seconds", "waited_seconds", "seconds"):
            setattr(self, name, getattr(self, name) + getattr(other, name))


class LiveRate:
    """Compares this process's training with what a sweep measured. Of several ranks, only rank 0 does."""

    def __init__(
        self,
        expectation: Expectation,
        say: Callable[[str], object] | None = None,
        metric_logger: Callable[[], LogMetric | None] | None = None,
    ) -> None:
        """`say` prints a line. `metric_logger` is called in the training's thread, and what it returns in another."""
        self._expectation, self._say = expectation, say or say_on_stderr
        self._metric_logger = metric_logger or active_mlflow_run
        self._optimizer: Callable[[], Any] = lambda: None
        self._seen = weakref.WeakSet[Any]()
        self._warmup: list[float] = []
        self._is_warm = False
        self._last = self._waited_before = 0.0
        self._usual = self._pause = self._due = float("inf")
        self._span, self._total, self._all_steps = Span(0.0), Span(0.0), 0
        self._rate: MeasuredRate | None = None
        self._steps_per_second = 0.0
        self._thread = threading.Thread()
        self._circumstances: Any = None

    def start(self) -> None:
        """Start watching. Imports torch."""
        from torch.optim.optimizer import register_optimizer_step_post_hook

        from accelsweep.features.watch.training import WatchedTraining

        self._training = WatchedTraining()
        self._hook = register_optimizer_step_post_hook(self._stepped)
        atexit.register(self.close)

    def close(self) -> None:
        """Say how the training compared as a whole, and stop watching."""
        atexit.unregister(self.close)
        self._leave()
        if self._thread.is_alive():
            self._thread.join(LAST_SECONDS)
        rate, self._rate = self._rate, None
        if rate is not None:
            self._end_span()
            if self._total.steps:
                self._guarded(lambda: self._say(f"the whole training: {self._sentence(rate, self._total)}"))

    def _leave(self) -> None:
        self._hook.remove()
        self._training.leave()

    def _guarded(self, action: Callable[[], object]) -> None:
        try:
            action()
        except Exception as error:  # noqa: BLE001  the training must go on, whatever this is
            self._rate = None
            self._leave()
            self._say(f"this training is no longer compared: {type(error).__name__}: {error}")

    def _in_background(self, action: Callable[[], object]) -> None:
        self._thread = threading.Thread(target=self._guarded, args=(action,), daemon=True)
        self._thread.start()

    # What the training's thread does.

    def _stepped(self, optimizer: Any, *_: Any) -> None:
        if optimizer is not self._optimizer() and not self._adopt(optimizer):
            return
        now = perf_counter()
        taken, self._last = now - self._last, now
        if not self._is_warm:
            self._warmup.append(taken)
            if len(self._warmup) > WARMUP_STEPS:
                self._guarded(self._warmed_up)
            return
        span, waited = self._span, self._training.waited_seconds
        span.steps += 1
        if taken > self._pause:
            span.pauses += 1
            span.paused_seconds += taken - self._usual
        else:
            span.waited_seconds += waited - self._waited_before
        self._waited_before = waited
        if now >= self._due and not self._thread.is_alive():
            self._guarded(self._span_ended)

    def _adopt(self, optimizer: Any) -> bool:
        """Time this optimiser's steps from now on, if it is the one that appeared last, or the one before is gone."""
        is_new = optimizer not in self._seen
        self._seen.add(optimizer)
        if self._optimizer() is not None and (self._is_warm or not is_new):
            return False
        self._optimizer = weakref.ref(optimizer)
        if not self._is_warm:
            self._warmup.clear()
        return True

    def _warmed_up(self) -> None:
        import torch.distributed as distributed

        self._is_warm = True
        ranks, rank = 1, 0
        if distributed.is_available() and distributed.is_initialized():
            ranks, rank = distributed.get_world_size(), distributed.get_rank()
        if rank != 0:
            self._leave()
            return
        live, samples = self._training.learned(self._optimizer(), len(self._warmup), ranks)
        self._begin_span(statistics.median(self._warmup[1:]))
        device = self._optimizer().param_groups[0]["params"][0].device
        self._in_background(lambda: self._choose(live, samples, device))

    def _begin_span(self, usual_seconds: float) -> None:
        self._usual, self._pause = usual_seconds, pause_limit(usual_seconds)
        self._span, self._waited_before = Span(self._last), self._training.waited_seconds

    def _end_span(self) -> Span:
        span = self._span
        span.seconds = self._last - span.began
        self._total.add(span)
        return span

    def _span_ended(self) -> None:
        span, logger, step = self._end_span(), self._metric_logger(), self._total.steps + WARMUP_STEPS
        self._begin_span(span.training_seconds / span.steps)
        self._due = self._last + self._expectation.every_seconds
        self._in_background(lambda: self._compare(span, logger, step))

    # What a thread of its own does.

    def _choose(self, live: LiveSetting, samples: int | None, device: Any) -> None:
        """Choose the rate to compare with."""
        from accelsweep.devices.cpu import machine_identity
        from accelsweep.features.watch.circumstances import Circumstances

        rate = choose(self._expectation, live, machine_identity())
        if isinstance(rate, MeasuredRate) and samples is None and rate.global_batch_size is None:
            rate = "this training reads no DataLoader of torch, so its samples cannot be counted"
        if not isinstance(rate, MeasuredRate):
            self._leave()
            self._say(rate)
            return
        global_batch = rate.global_batch_size if samples is None else samples * live.world_size
        self._steps_per_second = rate.samples_per_second / (global_batch or 1)
        local_ranks = int(os.environ.get("LOCAL_WORLD_SIZE", live.world_size))
        self._is_here = rate.machine == machine_identity()
        self._circumstances = Circumstances(rate, device, local_ranks)
        self._rate = rate
        self._due = self._span.began + min(FIRST_SECONDS, self._expectation.every_seconds)

    def _compare(self, span: Span, logger: LogMetric | None, step: int) -> None:
        causes = self._circumstances.causes(span.waited_seconds / span.training_seconds)
        rate = self._rate
        if rate is None:
            return
        self._say(self._sentence(rate, span, causes))
        if logger is not None:
            logger(METRIC, self._ratio(span), step)

    def _ratio(self, span: Span) -> float:
        return span.steps / span.training_seconds / self._steps_per_second

    def _sentence(self, rate: MeasuredRate, span: Span, causes: Sequence[str] | None = None) -> str:
        ratio, measured = self._ratio(span), rate.samples_per_second
        where = "here" if self._is_here else f"on {rate.host}"
        sentence = (
            f"{100 * ratio:.0f} % of what was measured {where} on {rate.measured_on} "
            f"({significant(ratio * measured)} of {significant(measured)} samples/s, {rate.label})"
        )
        if causes is not None and ratio < AS_MEASURED:
            sentence += f": {'; '.join(causes) or 'no cause was seen'}"
        paused = 1 - span.training_seconds / span.seconds
        if paused >= PAUSED_SHARE:
            sentence += f". Pauses, such as evaluations, take {100 * paused:.0f} % of the time besides"
        return sentence


def say_on_stderr(text: str) -> None:
    """Print a line to stderr, above tqdm's bars if there are any."""
    line, tqdm = f"accelsweep: {text}", sys.modules.get("tqdm")
    if tqdm is not None:
        tqdm.tqdm.write(line, file=sys.stderr)
    else:
        sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def active_mlflow_run() -> LogMetric | None:
    """Return what logs a metric to the MLflow run that is open in this thread; None if there is none."""
    mlflow = sys.modules.get("mlflow")
    run = None if mlflow is None else mlflow.active_run()
    if mlflow is None or run is None:
        return None
    client, run_id = mlflow.MlflowClient(), run.info.run_id
    return lambda name, value, step: client.log_metric(run_id, name, value, step=step)
