"""Implements `batch_size: auto`: each such setting first requires a search, whose result is frozen into the plan.

A search is a setting with `task=largest_batch`. Its name is derived from everything that can affect the largest batch
size, so settings that differ only in other respects share a search.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, replace

from accelsweep.config.grid import AUTO_BATCH_SIZE, PLACEHOLDER_BATCH_SIZE, CheckedPoint
from accelsweep.config.schema import changed
from accelsweep.config.setting import Setting, setting_name
from accelsweep.errors import InputError
from accelsweep.records.plan import FoundBatch
from accelsweep.run_config import Measure, SettingConfig

SEARCH_PENDING = "batch_size=auto: its search has not ended yet"
"""The reason reported when a setting cannot be planned yet."""

_TRAINING_TASKS = ("train_throughput", "time_to_accuracy")
"""Tasks that execute the same steps as a search: training steps with the optimiser's state in memory."""

SearchResults = Mapping[str, FoundBatch | str]
"""Search results keyed by search name: the batch size, or why none was found."""


def search_config(config: SettingConfig) -> SettingConfig:
    """Build the config of the search for a setting's largest batch size."""
    measure = Measure(
        warmup_steps=2,
        min_steps=1,
        min_seconds=0.0,
        max_steps=1,
        fake_loader=config.measure.fake_loader,
        headroom=config.measure.headroom,
        max_batch=config.measure.max_batch,
        batch_resolution=config.measure.batch_resolution,
        rank_memory_bytes=config.measure.rank_memory_bytes,
    )
    return changed(config, task="largest_batch", batch_size=PLACEHOLDER_BATCH_SIZE, measure=asdict(measure))


def refuse_unsearchable(config: SettingConfig, option: str) -> None:
    """Raise InputError if no search can determine this setting's batch size.

    `option` is the option that makes consecutive settings differ in only one respect; empty if there is none.
    """
    if config.task not in _TRAINING_TASKS:
        raise InputError(
            f"batch_size=auto searches with training steps, but task={config.task} has none: set batch_size to a number"
        )
    if option:
        raise InputError(
            f"batch_size=auto could choose a different batch size for each setting, but with {option}, each setting "
            "changes only one thing: set batch_size to a number"
        )


def with_search_result(
    point: CheckedPoint, results: SearchResults, with_batch: Callable[[int], SettingConfig]
) -> CheckedPoint:
    """Fill in the batch size that a point's search found, or the reason why it found none."""
    search = search_config(point.config)
    result = results.get(setting_name(search.raw), SEARCH_PENDING)
    if isinstance(result, FoundBatch):
        axes = {**point.axes, "batch_size": result.batch_size}
        return replace(point, config=with_batch(result.batch_size), axes=axes, search=search)
    # This config never runs. Its extra key ensures that its name differs from a setting with an explicit batch size.
    config = changed(point.config, automatic="batch_size")
    axes = {**point.axes, "batch_size": AUTO_BATCH_SIZE}
    return replace(point, config=config, axes=axes, search=search, unsupported=result)


def with_batch_size_axis(points: Mapping[str, CheckedPoint]) -> dict[str, CheckedPoint]:
    """Add the batch size to the points' axes if any point requires a search."""
    if all(point.search is None for point in points.values()):
        return dict(points)
    return {
        name: replace(point, axes={"batch_size": point.config.batch_size, **point.axes})
        for name, point in points.items()
    }


def required_searches(points: Mapping[str, CheckedPoint], settings: Iterable[Setting]) -> dict[str, Setting]:
    """Return the searches that a grid's settings need, keyed by name; settings that cannot run need none."""
    searches: dict[str, Setting] = {}
    for setting in settings:
        point = points[setting.name]
        if point.search is not None and setting.unsupported in (None, point.unsupported):
            name = setting_name(point.search.raw)
            axes = {
                key: value
                for key, value in setting.axes.items()
                if key not in ("batch_size", "task") and not key.startswith("measure.")
            }
            searches.setdefault(name, Setting(name=name, axes=axes, config=point.search))
    return searches


def search_notes(batches: Iterable[FoundBatch]) -> tuple[str, ...]:
    """Return a note that lists the batch sizes and the sweep that found them; empty if there are no batch sizes."""
    found = list(batches)
    if not found:
        return ()
    sizes = ", ".join(map(str, sorted({batch.batch_size for batch in found})))
    sweeps = ", ".join(sorted({batch.sweep for batch in found}))
    return (f"batch_size=auto: {sizes} per rank, found by {sweeps} and frozen into this plan",)
