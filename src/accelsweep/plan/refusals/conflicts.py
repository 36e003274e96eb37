"""Settings that contradict each other, or that a run decides by itself: every run of such a cell would fail.

Also an axis of the user's own that no key refers to: all its cells would measure the same.
"""

from __future__ import annotations

from collections.abc import Sequence

from accelsweep.base.documents import canonical_json
from accelsweep.base.errors import InputError, nearest
from accelsweep.core.cells.cell import PLAN_KEYS
from accelsweep.core.cells.config import CellConfig, Measure, global_batch_of
from accelsweep.core.cells.trainer import DECIDED_HERE, asked_length, decided_words
from accelsweep.core.planned.settings import Limits
from accelsweep.plan.grid.expand import CheckedPoint
from accelsweep.plan.refusals.wording import FileOf
from accelsweep.plan.trainer import strategy_names, trainer_arguments, trainers_place

LEAST_WARMUP_STEPS = 2
"""The window takes the pace from the second half of the warm-up, whose first step is apart (`measure.window`)."""


def refuse_conflicts(config: CellConfig, limits: Limits, file_of: FileOf) -> None:
    """Raise InputError where a checked scientific config, or it and the `limits`, cannot be measured by any run."""
    _refuse_impossible_window(config.measure, limits, file_of)
    for name in config.trainer:
        _refuse_trainer_key(str(name), file_of)
    asked_length(config.trainer)
    _refuse_misspelt_strategy(config, file_of)
    if "batch_size" in config.data and not global_batch_of(config):
        raise InputError(
            "data.batch_size is set in the config, and every data set gets the top-level batch_size: remove it, and "
            f"set or sweep batch_size=VALUE; look in {file_of('data.batch_size')}"
        )


def _refuse_impossible_window(measure: Measure, limits: Limits, file_of: FileOf) -> None:
    if measure.warmup_steps < LEAST_WARMUP_STEPS:
        raise InputError(
            f"measure.warmup_steps={measure.warmup_steps}: must be at least {LEAST_WARMUP_STEPS}, because the "
            f"window's length follows from the pace of its second half; look in {file_of('measure.warmup_steps')}"
        )
    if measure.max_steps < measure.min_steps:
        raise InputError(
            f"measure.max_steps={measure.max_steps}: must be at least measure.min_steps={measure.min_steps}; "
            f"raise the one or lower the other; look in {file_of('measure.max_steps')}"
        )
    if measure.min_seconds >= limits.run_seconds:
        raise InputError(
            f"measure.min_seconds={measure.min_seconds:g}: must be less than "
            f"limits.run_seconds={limits.run_seconds:g}, the time limit of a run: lower the one or raise the other; "
            f"look in {file_of('measure.min_seconds')}"
        )


def _refuse_trainer_key(name: str, file_of: FileOf) -> None:
    where = f"look in {file_of(f'trainer.{name}')}"
    if name in DECIDED_HERE:
        raise InputError(f"{decided_words(name)}; {where}")
    known = trainer_arguments()
    if known and name not in known:
        raise InputError(f"trainer.{name} is no argument of Lightning's Trainer{nearest(name, sorted(known))}; {where}")


def _refuse_misspelt_strategy(config: CellConfig, file_of: FileOf) -> None:
    """Refuse what is close to a strategy's name and is none; another package may have registered any other."""
    strategy, known = config.trainer.get("strategy"), strategy_names()
    if isinstance(strategy, str) and known and strategy not in known and (near := nearest(strategy, sorted(known))):
        raise InputError(
            f"trainer.strategy={strategy}: Lightning has no such strategy{near}; look in {file_of('trainer.strategy')}"
        )


def refuse_unread_axes(points: Sequence[CheckedPoint]) -> None:
    """Raise InputError for a swept key of the user's own that changes nothing else in any cell's config.

    `points` are those left of the grid. Only where two of them differ in nothing but that key is there an answer.
    """
    for key in points[0].axes:
        head = key.partition(".")[0]
        if (
            head in CellConfig.model_fields
            or head in PLAN_KEYS
            or not any(head in point.config.raw for point in points)
        ):
            continue
        alike: dict[str, list[str]] = {}
        for point in points:
            others = canonical_json({name: value for name, value in point.axes.items() if name != key})
            alike.setdefault(others, []).append(_read(point.config))
        if any(len(read) > 1 for read in alike.values()) and all(len(set(read)) == 1 for read in alike.values()):
            place = trainers_place(key)
            raise InputError(
                f"{key} has several values, and nothing refers to it: all of its settings would measure the same. "
                + (place or f"Refer to it with ${{{key}}} where it is to count, or give it one value")
            )


def _read(config: CellConfig) -> str:
    """Return the part of a config that a run reads, as text: a key of the user's counts if another key refers to it."""
    return canonical_json({key: value for key, value in config.raw.items() if key in CellConfig.model_fields})
