"""`task: boosting`: a boosted-tree library fits the same rows repeatedly. A step is a complete fit from scratch.

The number of samples in a fit is rows times rounds, because a round passes over all rows once, like an epoch. Ranks get
equal shares of the rows. Rows are read before the window, and also converted to the library's format if it supports
that.
"""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

import torch

from accelsweep.devices.clock import Clock, monotonic
from accelsweep.devices.memory_limits import free_memory_per_rank
from accelsweep.errors import Unsupported
from accelsweep.features.boosting.boosters import Booster, Shares, build_booster, fit_of
from accelsweep.features.boosting.libraries import LIBRARIES
from accelsweep.features.boosting.rows import LabelledRows, RowSets, sets_of
from accelsweep.heartbeat import Heartbeat
from accelsweep.measure.timed_window import group_of
from accelsweep.metrics import Metric, not_reached
from accelsweep.results import ANY_FAILURE
from accelsweep.worker.loops.loop import StepListener
from accelsweep.worker.loops.trainer_replacement import rank_device, refuse_trainer_arguments
from accelsweep.worker.rank_measurement import Measurement, RankReport
from accelsweep.worker.rank_setup import RankPlace, init_process_group, seed_all
from accelsweep.worker.run_spec import RunSpec
from accelsweep.workloads.instantiate import build_data

IN_FIT = "each fit converts the rows as part of its own time (model.prepare)"


class Fitting:
    """Drives the fits."""

    name, precision, optimizer, accumulate = "boosting", "32-true", "none", 1
    optimizer_steps = execution = tokens = None
    booster: Booster
    sets: RowSets
    prepare_seconds: float | None

    def __init__(self, spec: RunSpec, place: RankPlace, clock: Clock = monotonic) -> None:
        """Select the device. Raises Unsupported if this machine has no such device."""
        self._spec, self._place, self._clock = spec, place, clock
        if spec.config.precision != self.precision:
            raise Unsupported(f"task=boosting does not support precision={spec.config.precision}; use {self.precision}")
        refuse_trainer_arguments(spec, "task=boosting")
        self.device = rank_device(spec.config.accelerator, place)
        init_process_group(place, spec, self.device.type)
        self.strategy = "rows shared by the ranks" if place.size > 1 else "one rank"
        self._heartbeat = Heartbeat(spec.heartbeat(place.rank))
        self.epoch_ends: list[int] = []

    def drive(self, listener: StepListener) -> None:
        """Read and prepare the rows, then fit until `listener` ends the phase."""
        config, seed = self._spec.config, self._spec.run.seed
        seed_all(seed)
        data = build_data(config, seed, self.device)
        stated = config.measure.rank_memory_bytes
        self.sets = sets = sets_of(data, free_memory_per_rank(self._place.local_size, stated))
        given = {"device": str(self.device), "threads": torch.get_num_threads(), "seed": seed}
        self.booster = build_booster(config, classes=sets.classes, **given)
        with together(self.booster, self._place):
            share = sets.training.share(self._place.rank, self._place.size)
            began = self._clock()
            fit, apart = fit_of(self.booster, *share)
            self.prepare_seconds = self._clock() - began if apart else None
            listener.begin()
            while True:
                fit()
                enough = listener.step_done(len(share.labels) * self.booster.count(), None)
                self._heartbeat.step(pauses=enough)
                if enough:
                    return


def together(booster: Booster, place: RankPlace) -> AbstractContextManager[None]:
    """Return the context for distributed fits. Raises Unsupported if the library provides none."""
    if place.size == 1:
        return nullcontext()
    if not isinstance(booster, Shares):
        name = type(booster).__name__
        raise Unsupported(f"{name} has no `together`, so it trains in one process: set devices=1 num_nodes=1")
    group = group_of(place.size)
    return booster.together(place.rank, place.size, lambda value: group.gather(value)[0])


class Boosting:
    """Fits models throughout the window, then measures the last one's quality on held-out rows."""

    tolerated_failures = ANY_FAILURE

    def __init__(self, spec: RunSpec, place: RankPlace, clock: Clock = monotonic) -> None:
        """`spec` specifies the library and the rows, `place` is this rank's position among all ranks."""
        self._spec, self._place, self._clock = spec, place, clock
        self._driver: Fitting | None = None

    def driver(self) -> Fitting:
        """Return the driver that runs the fits."""
        self._driver = Fitting(self._spec, self._place)
        return self._driver

    def window_closed(self, measured: Measurement, report: RankReport) -> None:
        """Add the rate and properties of a fit, and adjust metrics whose meaning differs from that in other tasks."""
        driver = self._known
        rate, rounds = measured.metrics["samples_per_second"], driver.booster.count()
        loaded = report.metrics["load_seconds"]
        report.metrics |= {
            "row_rounds_per_second": replace(rate, unit="row rounds/s", provenance=self._library),
            "boosting_rounds": Metric(value=float(rounds), unit="rounds", scope="one fit", provenance="the model"),
            "epoch_samples": _rows(driver.sets.training),
            "epoch_ends_in_window": _rounds_in(measured, rounds),
            "prepare_seconds": _seconds(driver.prepare_seconds, IN_FIT, "rank 0, once, before the window"),
            "load_seconds": replace(loaded, scope="rank 0: the library, the rows, their preparation"),
            **_memory(measured, driver.device),
            **not_reached(("quality", "quality_seconds"), "AUC"),
        }

    def after_window(self, report: RankReport) -> None:
        """Score the held-out rows with the last fit."""
        driver, self._driver = self._known, None
        if self._place.rank == 0:
            began = self._clock()
            report.metrics["quality"] = area_under_curve(driver.booster, driver.sets.held_out)
            report.metrics["quality_seconds"] = _seconds(self._clock() - began, None, "rank 0: held-out rows")

    @property
    def _library(self) -> str:
        library = LIBRARIES.get(self._spec.config.model_target)
        return "clock" if library is None else f"clock, {library.name} {sys.modules[library.module].__version__}"

    @property
    def _known(self) -> Fitting:
        assert self._driver is not None, "driver() comes first"
        return self._driver


def area_under_curve(booster: Booster, held_out: LabelledRows | None) -> Metric:
    """Return the area under the ROC curve; for several classes, the mean of the one-vs-rest areas."""
    from sklearn.metrics import roc_auc_score

    if held_out is None:
        return Metric(value=None, unit="AUC", reason="the data set has no held-out rows")
    scope = f"{len(held_out.labels)} held-out rows, last fit"
    if len(set(held_out.labels.tolist())) < 2:
        return Metric(value=None, unit="AUC", reason="all held-out rows belong to the same class", scope=scope)
    scores = booster.predict(held_out.features)
    try:
        area = roc_auc_score(held_out.labels, scores, multi_class="ovr")
    except ValueError as error:
        return Metric(value=None, unit="AUC", reason=f"scikit-learn: {error}"[:300], scope=scope)
    return Metric(value=float(area), unit="AUC", scope=scope)


def _rows(training: LabelledRows) -> Metric:
    return Metric(value=float(len(training.labels)), unit="samples", scope="one pass over the training set, all ranks")


def _rounds_in(measured: Measurement, rounds: int) -> Metric:
    fits = len(measured.window.window_step_seconds)
    return Metric(value=float(rounds * fits), unit="epochs", scope="rank 0; a round is a pass over the rows")


def _seconds(value: float | None, reason: str | None, scope: str) -> Metric:
    if value is None:
        return Metric(value=None, unit="s", reason=reason, scope=scope)
    return Metric(value=value, unit="s", scope=scope, provenance="clock")


def _memory(measured: Measurement, device: torch.device) -> dict[str, Metric]:
    """Return empty torch-allocator metrics on a GPU, because the library uses its own allocator."""
    if device.type == "cpu":
        return {}
    reason = "the library does not allocate its memory through torch; see device_memory_used_bytes"
    names = ("peak_memory_allocated_bytes", "peak_memory_reserved_bytes")
    return {name: Metric(value=None, unit="B", reason=reason, scope=measured.metrics[name].scope) for name in names}
