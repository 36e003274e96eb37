"""The rungs of a ladder, fitted to the model and the data at hand.

Each rung of `report.ladder` sets keys on top of the rung before. The chosen model, data or optimiser may not have one
of these keys. The key would then reach a class that does not take it, there and in all later rungs. So it is left out.
A rung of which nothing is left stays as an `unsupported` row that names the key.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from accelsweep.config.grid import GridPoint, GridPoints, axis_of, expand
from accelsweep.config.hydra import Composer, Grid
from accelsweep.config.hydra_errors import dotted_keys
from accelsweep.config.value_errors import FileOf
from accelsweep.errors import InputError, nearest
from accelsweep.features.ladder.model import LadderOptions
from accelsweep.json_documents import canonical_json, look_up
from accelsweep.planning.target_check import GROUPS


def grid_points(
    composer: Composer, grid: Grid, auto: str, report: Mapping[str, Any], file_of: FileOf
) -> GridPoints | None:
    """Return the points of a grid with a ladder, and notes on it; None without a ladder."""
    axis = LadderOptions.model_validate(report).ladder
    if axis is None:
        return None
    notes = ladder_notes(composer, grid, axis, file_of)
    return GridPoints(fitted(composer, grid, auto, axis), notes, f"report.ladder={axis}")


def fitted(composer: Composer, grid: Grid, auto: str, axis: str | None) -> Iterator[GridPoint]:
    """Yield the points of the grid; those on the ladder over `axis` without the keys that no class takes.

    The same grid, composed without the ladder, shows which keys exist.
    """
    at = next((index for index in grid.swept if axis_of(composer.parse(grid.jobs[0][index])) == axis), None)
    if at is None:
        yield from expand(composer, grid, auto)
        return
    last: dict[
        str, tuple[Mapping[str, Any], Mapping[str, Any]]
    ] = {}  # the rung before: as it stands in its file, as kept
    for point, bare in zip(expand(composer, grid, auto), expand(composer, _without(grid, at), auto), strict=True):
        lacking = _lacking(point.science, bare.science)
        kept = _dropped(point.science, lacking)
        others = canonical_json({key: value for key, value in point.axes.items() if key != axis})
        stated, before = last.get(others, ({}, {}))
        changed = [key for key in lacking if look_up(point.science, key) != look_up(stated, key)]
        if changed and kept == before:
            yield replace(point, lacks=_words(changed, point))
        else:
            yield replace(point, science=kept)
        last[others] = (point.science, kept)


def ladder_notes(composer: Composer, grid: Grid, axis: str | None, file_of: FileOf) -> tuple[str, ...]:
    """Return a note where the ladder's axis has one value; raise InputError where the grid has no such axis."""
    given = [axis_of(composer.parse(line)) for line in grid.jobs[0]]
    swept = [given[index] for index in grid.swept]
    if axis is None or axis in swept:
        return ()
    if axis in given:
        return (f"report.ladder={axis}: {axis} has one value here, so there is no ladder",)
    axes = f"they are: {', '.join(swept)}" if swept else "nothing is swept"
    raise InputError(
        f"report.ladder={axis}: is no axis of the grid{nearest(axis, swept)}; {axes}; look in "
        f"{file_of('report.ladder')}"
    )


def _without(grid: Grid, at: int) -> Grid:
    jobs = tuple((*job[:at], *job[at + 1 :]) for job in grid.jobs)
    return Grid(jobs=jobs, swept=tuple(index - (index > at) for index in grid.swept if index != at))


def _lacking(science: Mapping[str, Any], bare: Mapping[str, Any]) -> list[str]:
    known = set(dotted_keys(bare))
    return [key for key in dotted_keys(science) if key.split(".")[0] in GROUPS and key not in known]


def _dropped(tree: Mapping[str, Any], keys: list[str], at: str = "") -> dict[str, Any]:
    """Return `tree` without these dotted keys; a part without any of them is shared with the original."""
    kept = {}
    for name, value in tree.items():
        key = f"{at}.{name}" if at else name
        if key not in keys:
            deeper = isinstance(value, Mapping) and any(each.startswith(f"{key}.") for each in keys)
            kept[name] = _dropped(value, keys, key) if deeper else value
    return kept


def _words(changed: list[str], point: GridPoint) -> str:
    group = changed[0].partition(".")[0]
    target = look_up(point.science, f"{group}._target_")
    given = ", ".join(f"{key}={look_up(point.science, key)}" for key in changed)
    return (
        f"this rung would set {given}, but the config of {target} has no such key; "
        f"if it takes one, name it in a file of your own, conf/{group}/NAME.yaml"
    )
