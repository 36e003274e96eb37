"""The tasks that a config can select, including those of features, and the rates by which settings are compared."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from accelsweep import registry
from accelsweep.plain_json import look_up
from accelsweep.registry import (
    BATCH_SEARCH_KEYS,
    GRADIENT_KEYS,
    MODULE_KEYS,
    QUALITY_KEYS,
    TARGET_KEYS,
    WINDOW_KEYS,
    Task,
)

PROCESS_RATE = "processes_per_hour"
"""The rate of commands that are measured as a whole (`measure.scope=process`)."""

TOKEN_RATE = "tokens_per_second"  # noqa: S105  # nosec B105
"""The rate of training on batches whose size is given in tokens (`batch_unit=tokens`)."""

_TRAINING = (
    Task(
        "train_throughput",
        "train_throughput",
        "accelsweep.worker.tasks.train:TrainThroughput",
        rates=("samples_per_second", TOKEN_RATE),
        unused_keys=("measure.scenario", *TARGET_KEYS, *BATCH_SEARCH_KEYS),
    ),
    Task(
        "train_throughput",
        "train_throughput",
        "accelsweep.worker.tasks.train:EntryThroughput",
        when=(("loop", "entry"),),
        rates=("samples_per_second", TOKEN_RATE),
        unused_keys=("measure.scenario", "measure.fake_loader", *TARGET_KEYS, *BATCH_SEARCH_KEYS),
    ),
    Task(
        "train_throughput",
        "train_throughput",
        "accelsweep.worker.tasks.script:ScriptThroughput",
        when=(("loop", "script"),),
        rates=("samples_per_second", TOKEN_RATE),
        unused_keys=(
            *("measure.scenario", "measure.fake_loader", "measure.quality_samples"),
            *("measure.probe_steps", "measure.matmul_steps", "gradient_accumulation", *TARGET_KEYS, *BATCH_SEARCH_KEYS),
        ),
    ),
)
"""Training on batches of samples."""

_CORE = (
    Task(
        "whole_process",
        "train_throughput",
        "accelsweep.worker.tasks.whole_process:WholeProcess",
        when=(("measure.scope", "process"),),
        rates=(PROCESS_RATE,),
        unused_keys=(
            *("measure.scenario", "measure.fake_loader"),
            *("matmul_precision", *MODULE_KEYS, *TARGET_KEYS, *QUALITY_KEYS, *BATCH_SEARCH_KEYS, *WINDOW_KEYS),
        ),
    ),
    *(
        replace(
            task,
            name="token_throughput",
            when=(*task.when, ("batch_unit", "tokens")),
            rates=(TOKEN_RATE, "samples_per_second"),
        )
        for task in reversed(_TRAINING)
    ),
    *_TRAINING,
    Task(
        "time_to_accuracy",
        "time_to_accuracy",
        "accelsweep.worker.tasks.train:TimeToAccuracy",
        rates=("results_per_hour", "samples_per_second", TOKEN_RATE),
        unused_keys=("measure.scenario", "measure.quality_samples", *BATCH_SEARCH_KEYS),
    ),
    Task(
        "inference",
        "inference",
        "accelsweep.worker.tasks.inference:Inference",
        rates=("samples_per_second", TOKEN_RATE),
        unused_keys=("optimizer", "trainer", *GRADIENT_KEYS, *TARGET_KEYS, *QUALITY_KEYS, *BATCH_SEARCH_KEYS),
        without_loop="does not train",
    ),
    Task(
        "largest_batch",
        "largest_batch",
        "accelsweep.worker.tasks.train:LargestBatch",
        rates=("largest_batch",),
        unused_keys=("batch_size", "measure.scenario", *TARGET_KEYS, *QUALITY_KEYS, *WINDOW_KEYS),
    ),
)

SIZE_METRICS = frozenset({"largest_batch"})
"""Rates that are actually sizes: a higher value means larger, not faster."""

METRIC_TITLES = {"largest_batch": "largest batch"}
"""Metric -> its name in headings, if that is not "rate"."""


@cache
def tasks() -> tuple[Task, ...]:
    """Return all tasks: core tasks first, then those provided by features."""
    return (*_CORE, *(task for feature in registry.features() for task in feature.tasks))


def task_of(name: str, config: Mapping[str, Any]) -> Task:
    """Return the task `name` for a config: the one whose `when` matches the config, otherwise the one without `when`.

    Raises KeyError if the task does not exist.
    """
    for task in _tasks_named(name):
        for key, value in task.when:
            if look_up(config, key) != value:
                break
        else:
            return task
    raise KeyError(name)


@cache
def _tasks_named(name: str) -> tuple[Task, ...]:
    """Return the tasks that `task=NAME` may select, the one without `when` last."""
    return tuple(sorted((task for task in tasks() if task.task == name), key=lambda task: not task.when))


def rates_by_task() -> dict[str, tuple[str, ...]]:
    """Return each task's rates, keyed by task name. The first is the default for `analysis.rate`."""
    return {task.name: task.rates for task in reversed(tasks())}


def unused_keys(task: Task) -> tuple[str, ...]:
    """Return the keys that do not affect a task's measurement: those it lists, and other features' top-level keys."""
    others = (feature for feature in registry.features() if task not in feature.tasks)
    models = (registry.load(keys.model) for other in others for keys in other.config_keys if keys.group == "")
    return (*task.unused_keys, *(name for model in models for name in model.model_fields))


def compared_rate(rate: str | None, task_names: Iterable[str]) -> str:
    """Return the metric by which settings are compared: `analysis.rate` if set, otherwise the first task's default."""
    return rate or rates_by_task().get(next(iter(task_names), ""), ("samples_per_second",))[0]
