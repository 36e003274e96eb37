"""`batch_size: auto`: the search that each such setting needs first, and the number found, frozen into the plan.

A search is a setting of `task=memory_frontier`. Its name follows from all that its batch can depend on, so that
settings that differ in nothing else share it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, replace
from typing import Any

from accelsweep.config.grid import AUTO_BATCH_SIZE, FIRST_TRY, CheckedPoint
from accelsweep.config.schema import changed
from accelsweep.config.setting import Setting, setting_name
from accelsweep.errors import InputError
from accelsweep.records.plan import FoundBatch
from accelsweep.run_config import Measure, SettingConfig

SEARCHED_TASKS = ("train_throughput", "time_to_accuracy")
"""The tasks whose steps a search does: training steps, with the optimiser's state."""

SEARCH_PENDING = "batch_size=auto: its search has not ended yet"
"""The reason why a setting cannot be planned yet."""

SearchResults = Mapping[str, FoundBatch | str]
"""The results of searches, by their names: the batch, or why there is none."""


def search_of(config: SettingConfig) -> SettingConfig:
    """Return the config of the search for the largest batch of a setting."""
    given = config.measure
    rules = Measure(
        warmup_steps=2,
        min_steps=1,
        min_seconds=0.0,
        max_steps=1,
        fake_loader=given.fake_loader,
        headroom=given.headroom,
        max_batch=given.max_batch,
        batch_resolution=given.batch_resolution,
        rank_memory_bytes=given.rank_memory_bytes,
    )
    return changed(config, task="memory_frontier", batch_size=FIRST_TRY, measure=asdict(rules))


def refuse_unsearchable(config: SettingConfig, option: str | None) -> None:
    """Raise InputError where no search can answer for a setting with `batch_size: auto`."""
    if config.task not in SEARCHED_TASKS:
        raise InputError(
            f"batch_size=auto searches with training steps, and task={config.task} does none: give batch_size a number"
        )
    if option is not None:
        raise InputError(
            f"batch_size=auto would give each setting a batch of its own, and with {option} each changes one thing "
            "only: give batch_size a number"
        )


def with_search_result(
    point: CheckedPoint, batches: SearchResults, with_batch: Callable[[int], SettingConfig]
) -> CheckedPoint:
    """Return a point with the batch that its search found, or with the reason why it has none."""
    search = search_of(point.config)
    found = batches.get(setting_name(search.raw), SEARCH_PENDING)
    if isinstance(found, FoundBatch):
        shown = {**point.axes, "batch_size": found.batch_size}
        return replace(point, config=with_batch(found.batch_size), axes=shown, search=search)
    # A key of its own tells the config, which never runs, from that of a setting whose batch was given.
    apart = changed(point.config, automatic="batch_size")
    return replace(point, config=apart, axes={**point.axes, "batch_size": AUTO_BATCH_SIZE}, search=search, lacks=found)


def with_batch_size_axis(points: Mapping[str, CheckedPoint]) -> dict[str, CheckedPoint]:
    """Return the points with their batch among their axes, if any of them has an automatic one."""
    if all(point.search is None for point in points.values()):
        return dict(points)
    return {
        name: replace(point, axes={"batch_size": point.config.batch_size, **point.axes})
        for name, point in points.items()
    }


def required_searches(points: Mapping[str, CheckedPoint], settings: Iterable[Setting]) -> dict[str, Setting]:
    """Return the searches that the settings of a grid rest on, by name; unsupported settings need none."""
    found: dict[str, Setting] = {}
    for setting in settings:
        point = points[setting.name]
        if point.search is not None and (setting.unsupported is None or setting.unsupported == point.lacks):
            name = setting_name(point.search.raw)
            axes = _axes_of_search(setting.axes)
            found.setdefault(name, Setting(name=name, axes=axes, config=point.search, unsupported=None))
    return found


def _axes_of_search(axes: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in axes.items() if key not in ("batch_size", "task") and key[:8] != "measure."}


def search_notes(batches: Iterable[FoundBatch]) -> tuple[str, ...]:
    """Return a note that names the batches and the sweep that found them; nothing for none."""
    found = list(batches)
    if not found:
        return ()
    numbers = ", ".join(str(number) for number in sorted({one.batch_size for one in found}))
    sweeps = ", ".join(sorted({one.sweep for one in found}))
    return (f"batch_size=auto: {numbers} per rank, found by {sweeps} and frozen into this plan",)
