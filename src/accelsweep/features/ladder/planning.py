"""Expands a ladder's grid, adapted to the chosen model, data and optimiser.

Each rung of `report.ladder` sets keys on top of the previous rung. If the chosen model, data or optimiser does not
define such a key, that rung and all later ones would pass it to a class that does not accept it, so the key is dropped.
A rung left without any change becomes an `unsupported` row, with the key in its reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from accelsweep.config.grid import GridPoint, GridPoints, axis_name, expand
from accelsweep.config.hydra import Composer, Grid
from accelsweep.config.hydra_errors import dotted_keys
from accelsweep.config.value_errors import FileOf
from accelsweep.errors import InputError, nearest
from accelsweep.features.ladder.model import LadderOptions
from accelsweep.plain_json import canonical_json, look_up
from accelsweep.planning.user_class_overrides import TARGET_GROUPS


def grid_points(
    composer: Composer, grid: Grid, auto: str, report: Mapping[str, Any], file_of: FileOf
) -> GridPoints | None:
    """Return the points of a grid with a ladder, with notes; None if there is no ladder.

    Raises InputError if the ladder's axis is not an axis of the grid.
    """
    axis = LadderOptions.model_validate(report).ladder
    if axis is None:
        return None
    option = f"report.ladder={axis}"
    given = [axis_name(composer.parse(line)) for line in grid.jobs[0]]
    swept = [given[index] for index in grid.swept]
    if axis in swept:
        return GridPoints(_rungs(composer, grid, auto, axis, given.index(axis)), (), option)
    if axis in given:
        note = f"{option}: {axis} has one value here, so there is no ladder"
        return GridPoints(expand(composer, grid, auto), (note,), option)
    axes = f"they are: {', '.join(swept)}" if swept else "nothing is swept"
    raise InputError(
        f"{option}: is not an axis of the grid{nearest(axis, swept)}; {axes}; look in {file_of('report.ladder')}"
    )


def _rungs(composer: Composer, grid: Grid, auto: str, axis: str, index: int) -> Iterator[GridPoint]:
    """Yield the points without the keys that no class accepts; `index` is the position of the ladder's override.

    The keys that exist are determined by composing the same grid without the ladder.
    """
    bare_grid = Grid(
        jobs=tuple((*job[:index], *job[index + 1 :]) for job in grid.jobs),
        swept=tuple(other - (other > index) for other in grid.swept if other != index),
    )
    # Each ladder's previous rung: its config as composed, and with the dropped keys removed.
    previous: dict[str, tuple[Mapping[str, Any], Mapping[str, Any]]] = {}
    for point, bare in zip(expand(composer, grid, auto), expand(composer, bare_grid, auto), strict=True):
        known = set(dotted_keys(bare.config))
        unknown = [key for key in dotted_keys(point.config) if key.split(".")[0] in TARGET_GROUPS and key not in known]
        config = _without_keys(point.config, unknown)
        ladder = canonical_json({key: value for key, value in point.axes.items() if key != axis})
        composed_before, config_before = previous.get(ladder, ({}, {}))
        changed = [key for key in unknown if look_up(point.config, key) != look_up(composed_before, key)]
        if changed and config == config_before:
            yield replace(point, unsupported=_reason(changed, point))
        else:
            yield replace(point, config=config)
        previous[ladder] = (point.config, config)


def _without_keys(tree: Mapping[str, Any], keys: list[str], prefix: str = "") -> dict[str, Any]:
    """Return `tree` without these dotted keys; subtrees without any of them are shared with the original."""
    result = {}
    for name, value in tree.items():
        key = f"{prefix}.{name}" if prefix else name
        if key not in keys:
            nested = isinstance(value, Mapping) and any(other.startswith(f"{key}.") for other in keys)
            result[name] = _without_keys(value, keys, key) if nested else value
    return result


def _reason(changed: list[str], point: GridPoint) -> str:
    group = changed[0].partition(".")[0]
    target = look_up(point.config, f"{group}._target_")
    values = ", ".join(f"{key}={look_up(point.config, key)}" for key in changed)
    return (
        f"this rung would set {values}, but the config of {target} has no such key; if the class accepts it, "
        f"add it to a config file of your own, conf/{group}/NAME.yaml"
    )
