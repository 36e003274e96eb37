"""Whether a cell's settings fit its task. Unfit ones are refused while nothing has been written yet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from accelsweep.base.documents import canonical_json
from accelsweep.base.errors import InputError
from accelsweep.core.cells.config import CellConfig, Measure
from accelsweep.core.cells.tasks import RATES_OF
from accelsweep.plan.refusals.wording import FileOf

KERNELS = "accelsweep.workloads.kernels."
TREES = "accelsweep.workloads.boosting."
OUR_WORKLOADS = "accelsweep.workloads."

_FRONTIER = ("measure.headroom", "measure.max_batch", "measure.batch_resolution", "measure.rank_memory_bytes")
_WINDOW = ("measure.warmup_steps", "measure.min_steps", "measure.max_steps", "measure.min_seconds")
_GOAL = ("measure.target", "measure.max_samples", "measure.validate_every_samples")
_QUALITY = (
    "measure.quality_samples",
    "measure.quality_metric",
    "measure.quality_better",
    "measure.probe_steps",
    "measure.matmul_steps",
)

_LOAD = ("serving.latency_ms", "serving.latency_percentile", "serving.max_wait_ms", "serving.workers")
_ANSWERS = ("measure.scenario", "serving")
_DELIVERY = ("data.placement", "data.preprocess", "data.num_workers", "data.prefetch_factor")

_WITHOUT_LOOP = {
    "inference": "does not train",
    "kernels": "does not train",
    "boosting": "lets a library train",
}

UNUSED_BY: dict[str, tuple[str, ...]] = {
    "train_throughput": (*_GOAL, *_FRONTIER, *_ANSWERS),
    "time_to_accuracy": ("measure.quality_samples", *_FRONTIER, *_ANSWERS),
    "inference": ("optimizer", "trainer", *_LOAD, *_GOAL, *_QUALITY, *_FRONTIER),
    "serving": ("optimizer", "trainer", "serving.generator", *_GOAL, *_QUALITY, *_FRONTIER),
    "kernels": (
        *("optimizer", "trainer", "data", "measure.fake_loader"),
        *(*_ANSWERS, *_GOAL, *_QUALITY, *_FRONTIER),
    ),
    "memory_frontier": ("batch_size", *_ANSWERS, *_GOAL, *_QUALITY, *_WINDOW),
    "boosting": (
        *("optimizer", "trainer", "batch_size", "precision", "measure.fake_loader", *_DELIVERY),
        *(*_ANSWERS, *_GOAL, *_QUALITY, *_FRONTIER[:-1]),
    ),
}
"""Work (`CellConfig.work`) -> the keys, with all below them, that change nothing in its measurement."""


def refuse_unfit(config: CellConfig, rate: str | None, file_of: FileOf) -> None:
    """Raise InputError where the settings of a checked scientific config do not fit its `task`.

    `rate` is the plan's `analysis.rate`.
    """
    task, measure = config.task, config.measure
    if rate is not None and rate not in RATES_OF[config.work]:
        raise InputError(
            f"analysis.rate={rate}: {_named(config)} measures no such rate, only {', '.join(RATES_OF[config.work])}; "
            f"look in {file_of('analysis.rate')}"
        )
    if task == "time_to_accuracy":
        _refuse_aimless(measure, file_of)
    if config.data_target.startswith(OUR_WORKLOADS) and config.each_fold:
        _refuse_folds_alone(config)
    if task in ("inference", "kernels", "boosting") and config.loop != "lightning":
        raise InputError(
            f"loop={config.loop} names another training loop, and task={task} {_WITHOUT_LOOP[task]}: leave loop out; "
            f"look in {file_of('loop')}"
        )
    if task == "inference" and measure.scenario == "single_stream" and config.batch_size != 1:
        raise InputError(
            f"measure.scenario=single_stream asks one sample at a time, and batch_size is {config.batch_size}: set "
            "batch_size=1, or measure.scenario=offline"
        )
    if config.work == "serving" and config.serving is None:
        raise InputError(
            "measure.scenario=server does not know the latency that it may take: add serving=default, and set "
            "serving.latency_ms"
        )
    target = config.model_target
    if task == "kernels" and target.startswith(OUR_WORKLOADS) and not target.startswith(KERNELS):
        raise InputError(
            f"task=kernels calls a kernel, and {target} is a model to train: take model=kernel_matmul, "
            "model=kernel_elementwise or model=kernel_copy"
        )
    if task != "kernels" and target.startswith(KERNELS):
        raise InputError(f"{target} is a kernel, which has nothing to train: set task=kernels with it")
    _refuse_unfit_trees(config, file_of)


def _refuse_unfit_trees(config: CellConfig, file_of: FileOf) -> None:
    target, metric = config.model_target, config.measure.quality_metric
    if config.task != "boosting":
        if target.startswith(TREES):
            raise InputError(f"{target} grows trees, which has no training step: set task=boosting with it")
        return
    if target.startswith(OUR_WORKLOADS) and not target.startswith(TREES):
        raise InputError(
            f"task=boosting grows trees, and {target} is a network or a kernel: take model=xgboost, model=lightgbm or "
            "model=hist_gradient_boosting"
        )
    if metric != "AUC" or config.measure.better != "max":
        raise InputError(
            f"task=boosting measures the area under the curve of held-out rows, and measure.quality_metric={metric}"
            f" is another quality: take measure=boosting; look in {file_of('measure.quality_metric')}"
        )


def _named(config: CellConfig) -> str:
    return "measure.scenario=server" if config.work == "serving" else f"task={config.task}"


def refuse_idle_axes(axes: Sequence[Mapping[str, Any]], tasks: Sequence[str]) -> None:
    """Raise InputError for a swept key that changes nothing in any of the sweep's tasks.

    `axes` and `tasks` are those of each cell that is left of the grid.
    """
    for key in axes[0]:
        idle = all(any(key == unused or key.startswith(f"{unused}.") for unused in UNUSED_BY[task]) for task in tasks)
        if idle and len({canonical_json(cell[key]) for cell in axes}) > 1:
            raise InputError(
                f"{key} has several values, and task={' and task='.join(dict.fromkeys(tasks))} does not use it: all "
                "of its settings would measure the same. Give it one value"
            )


def _refuse_folds_alone(config: CellConfig) -> None:
    if config.task != "train_throughput" or config.measure.quality_samples is None:
        raise InputError(
            "data.fold=all trains and validates a module for each fold, on measure.quality_samples samples: set them, "
            "and leave task at train_throughput"
        )


def _refuse_aimless(measure: Measure, file_of: FileOf) -> None:
    if measure.fake_loader:
        raise InputError(
            "measure.fake_loader=true trains on one batch again and again, which reaches no target: set it to false "
            "for task=time_to_accuracy"
        )
    for key, value in (("target", measure.target), ("quality_metric", measure.quality_metric)):
        if value is None:
            raise InputError(
                f"task=time_to_accuracy trains until measure.quality_metric reaches measure.target, and measure.{key} "
                f"is null: set it, for example measure.quality_metric=val_accuracy measure.target=0.9; look in "
                f"{file_of(f'measure.{key}')}"
            )
