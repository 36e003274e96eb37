"""Times the optimiser's steps of a training, and compares their rate with the measured one every few minutes.

It never disturbs the training: a step costs one call of a small function, nothing waits for the device, comparisons are
made in a thread of their own, and whatever goes wrong ends the comparison with one warning.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import statistics
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any, ClassVar

from accelsweep import reporting
from accelsweep.features.watch.measured_rate import Expectation, LiveSetting, MeasuredRate, choose
from accelsweep.measure.stalls import pause_limit
from accelsweep.significant_digits import significant

if TYPE_CHECKING:
    from accelsweep.features.watch.slowdown_causes import SlowdownCauses

WARMUP_STEPS = 20
"""Steps before the first one that is compared."""

FOREIGN_STEPS = 20
"""If another optimiser makes this many steps in a row, another training has begun."""

FIRST_SECONDS = 60.0
"""The first comparison is made after this time at most, to show soon that the training is watched."""

FAST_ENOUGH_RATIO = 0.95
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
        """The seconds without pauses."""
        return self.seconds - self.paused_seconds

    def end(self, now: float) -> None:
        """Set the seconds. If most steps were slow, these were no pauses."""
        self.seconds = now - self.began
        if 2 * self.pauses > self.steps:
            self.pauses, self.paused_seconds = 0, 0.0

    def add(self, other: Span) -> None:
        """Add the steps of another span that has ended."""
        for name in ("steps", "pauses", "paused_seconds", "waited_seconds", "seconds"):
            setattr(self, name, getattr(self, name) + getattr(other, name))


@dataclass(frozen=True)
class Comparison:
    """What a training is compared with: the rate, as samples and as steps per second, and where it was measured."""

    measured: MeasuredRate
    steps_per_second: float
    is_here: bool
    causes: SlowdownCauses

    def ratio(self, span: Span) -> float:
        """Return the rate of a span's steps divided by the measured rate."""
        return span.steps / span.training_seconds / self.steps_per_second

    def sentence(self, span: Span, causes: Sequence[str] | None = None) -> str:
        """Return the ratio in words, with the causes if the training is slower; None if these are not known."""
        ratio, measured = self.ratio(span), self.measured.samples_per_second
        where = "here" if self.is_here else f"on {self.measured.host}"
        sentence = (
            f"{100 * ratio:.0f} % of what was measured {where} on {self.measured.measured_on} "
            f"({significant(ratio * measured)} of {significant(measured)} samples/s, {self.measured.label})"
        )
        if causes is not None and ratio < FAST_ENOUGH_RATIO:
            sentence += f": {'; '.join(causes) or 'no cause was seen'}"
        paused = span.paused_seconds / span.seconds
        if paused >= PAUSED_SHARE:
            sentence += f". Pauses, such as evaluations, took another {100 * paused:.0f} % of the time"
        return sentence


class LiveRate:
    """Compares this process's training with what a sweep measured. Of several ranks, only rank 0 does.

    There is at most one in a process: as long as one is started, others do nothing.
    """

    _started: ClassVar[LiveRate | None] = None

    def __init__(
        self,
        expectation: Expectation,
        say: Callable[[str], object] | None = None,
        metric_logger: Callable[[], LogMetric | None] | None = None,
    ) -> None:
        """`say` prints a line. `metric_logger` is called in the training's thread, and what it returns in another."""
        self._expectation, self._say = expectation, say or say_on_stderr
        self._metric_logger = metric_logger or active_mlflow_run
        self._seen = weakref.WeakSet[Any]()
        self._thread = threading.Thread()
        self._is_over = True
        self._begin_training(lambda: None)

    def _begin_training(self, optimizer: Callable[[], Any]) -> None:
        self._optimizer = optimizer
        self._warmup: list[float] = []
        self._is_warm = False
        self._last = self._waited_before = self._ahead = 0.0
        self._usual = self._pause = self._next_comparison_at = float("inf")
        self._span, self._total = Span(0.0), Span(0.0)
        self._foreign_steps, self._steps_before = 0, -1
        self._comparison: Comparison | None = None

    def start(self) -> None:
        """Start watching; imports torch. Does nothing in a run of a sweep, and never raises."""
        if LiveRate._started is None and not reporting.is_measured:
            self._guarded(self._start)

    def _start(self) -> None:
        from torch.optim.optimizer import register_optimizer_step_post_hook

        from accelsweep.features.watch.training_observer import TrainingObserver

        self._training = TrainingObserver()
        self._hook = register_optimizer_step_post_hook(self._stepped)
        self._process, self._is_over, LiveRate._started = os.getpid(), False, self
        atexit.register(self.close)

    def close(self) -> None:
        """Say how the training compared as a whole, and stop watching. Never raises."""
        if LiveRate._started is not self:
            return
        LiveRate._started, self._is_over = None, True
        atexit.unregister(self.close)
        self._hook.remove()
        self._training.restore()
        if os.getpid() == self._process:
            self._guarded(self._end_training)

    def _guarded(self, action: Callable[[], object]) -> None:
        """Call `action`; if it fails, the training must go on, whatever the reason is."""
        try:
            action()
        except Exception as error:  # noqa: BLE001  as above
            self._stop(f"stopped comparing this training: {type(error).__name__}: {error}")

    def _stop(self, reason: str | None = None) -> None:
        # The hook stays until `close`, because torch may be calling its hooks now.
        self._is_over, self._comparison = True, None
        with contextlib.suppress(Exception):
            if reason is not None:
                self._say(reason)

    def _in_background(self, action: Callable[[], object]) -> None:
        self._thread = threading.Thread(target=self._guarded, args=(action,), daemon=True)
        self._thread.start()

    # What the training's thread does.

    def _stepped(self, optimizer: Any, *_: Any) -> None:
        if self._is_over or (optimizer is not self._optimizer() and not self._adopt(optimizer)):
            return
        now = perf_counter()
        taken, self._last = now - self._last, now
        if not self._is_warm:
            self._guarded(lambda: self._warm_up(taken))
            return
        span, waited, usual = self._span, self._training.waited_seconds, self._usual
        span.steps += 1
        waited_now, self._waited_before = waited - self._waited_before, waited
        span.waited_seconds += waited_now
        own = taken - waited_now
        if own < 0.5 * usual:
            self._ahead += usual - own  # the host runs ahead of the device, for which a later step will wait
        elif own > self._pause:
            if own - self._ahead > self._pause:
                span.pauses += 1
                span.paused_seconds += own - self._ahead - usual
            self._ahead = 0.0
        if now >= self._next_comparison_at and not self._thread.is_alive():
            self._guarded(self._span_ended)

    def _adopt(self, optimizer: Any) -> bool:
        """Time this optimiser's steps from now on, if it appeared last, or if the one before is no longer used."""
        is_new = optimizer not in self._seen
        self._seen.add(optimizer)
        self._foreign_steps = self._foreign_steps + 1 if self._steps_before == self._span.steps else 1
        self._steps_before = self._span.steps
        if self._optimizer() is None and self._is_warm:
            self._optimizer = weakref.ref(optimizer)  # the same training goes on with another one
            return True
        if self._is_warm and self._foreign_steps < FOREIGN_STEPS:
            return False
        if not self._is_warm and not is_new and self._optimizer() is not None:
            return False
        self._guarded(self._end_training)
        self._begin_training(weakref.ref(optimizer))
        self._training.begin()
        return not self._is_over

    def _warm_up(self, taken: float) -> None:
        self._warmup.append(taken)
        self._training.step_ended()
        if len(self._warmup) <= WARMUP_STEPS:
            return
        import torch.distributed as distributed

        self._is_warm = True
        ranks, rank = 1, 0
        if distributed.is_available() and distributed.is_initialized():
            ranks, rank = distributed.get_world_size(), distributed.get_rank()
        if rank != 0:
            self._stop()
            return
        live, samples, device = self._training.learned(self._optimizer(), ranks)
        self._begin_span(statistics.median(self._warmup[1:]))
        self._in_background(lambda: self._choose(live, samples, device))

    def _begin_span(self, usual_seconds: float) -> None:
        self._usual, self._pause = usual_seconds, pause_limit(usual_seconds)
        self._span, self._waited_before, self._steps_before = Span(self._last), self._training.waited_seconds, -1

    def _end_span(self) -> Span:
        span = self._span
        span.end(self._last)
        self._total.add(span)
        return span

    def _span_ended(self) -> None:
        span, logger, step = self._end_span(), self._metric_logger(), self._total.steps + WARMUP_STEPS
        self._begin_span((span.training_seconds - span.waited_seconds) / span.steps)
        self._next_comparison_at = self._last + self._expectation.every_seconds
        self._in_background(lambda: self._compare(span, logger, step))

    def _end_training(self) -> None:
        if self._thread.is_alive():
            self._thread.join(LAST_SECONDS)
        comparison, self._comparison = self._comparison, None
        if comparison is not None:
            self._end_span()
            if self._total.steps:
                self._say(f"the whole training: {comparison.sentence(self._total)}")

    # What a thread of its own does.

    def _choose(self, live: LiveSetting, samples: float | None, device: Any) -> None:
        """Choose the rate to compare with."""
        from accelsweep.devices.cpu import machine_identity
        from accelsweep.features.watch.slowdown_causes import SlowdownCauses

        machine = machine_identity()
        rate = choose(self._expectation, live, machine)
        if not isinstance(rate, MeasuredRate):
            self._stop(rate)
            return
        global_batch = rate.global_batch_size if samples is None else samples * live.world_size
        if global_batch is None:
            self._stop("this training uses no DataLoader of torch, so its samples cannot be counted")
            return
        if not live.matches(rate):
            self._say(f"this training uses {live}, and is compared with '{rate.label}', as you asked")
        local_ranks = int(os.environ.get("LOCAL_WORLD_SIZE", live.world_size))
        causes = SlowdownCauses(rate, device, local_ranks)
        steps_per_second = rate.samples_per_second / global_batch
        self._comparison = Comparison(rate, steps_per_second, rate.machine == machine, causes)
        self._next_comparison_at = self._span.began + min(FIRST_SECONDS, self._expectation.every_seconds)

    def _compare(self, span: Span, logger: LogMetric | None, step: int) -> None:
        comparison = self._comparison
        if comparison is None:
            return
        causes = comparison.causes.since_last_call(span.waited_seconds / span.training_seconds)
        self._say(comparison.sentence(span, causes))
        if logger is not None:
            try:
                logger(METRIC, comparison.ratio(span), step)
            except Exception as error:  # noqa: BLE001  whatever the server answers
                self._metric_logger = lambda: None
                self._say(f"the ratio is no longer logged to MLflow: {type(error).__name__}: {error}")


def say_on_stderr(text: str) -> None:
    """Print a line to stderr, above tqdm's bars if there are any."""
    line, tqdm = f"accelsweep: {text}", getattr(sys.modules.get("tqdm"), "tqdm", None)
    if tqdm is not None:
        tqdm.write(line, file=sys.stderr)
    else:
        sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def active_mlflow_run() -> LogMetric | None:
    """Return what logs a metric to the MLflow run that is open in this thread; None if there is none."""
    mlflow = sys.modules.get("mlflow")
    run = None if mlflow is None else mlflow.active_run()
    if mlflow is None or run is None:
        return None
    make_client, run_id = mlflow.MlflowClient, run.info.run_id
    return lambda name, value, step: make_client().log_metric(run_id, name, value, step=step)
