"""The checked cells of a sweep, made of overrides: compose, expand, check, exclude, and mark those that cannot run."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

from hydra.core.object_type import ObjectType
from omegaconf import DictConfig

from accelsweep.base.errors import InputError, nearest
from accelsweep.core.cells.cell import PLAN_KEYS, Cell, cell_name, frozen_paths
from accelsweep.core.cells.config import CellConfig
from accelsweep.core.planned.plans import Excluded
from accelsweep.core.planned.settings import Settings
from accelsweep.core.sites.site import Site
from accelsweep.machine import devices
from accelsweep.plan import automatic, select
from accelsweep.plan.grid.compose import Composer
from accelsweep.plan.grid.expand import CheckedPoint, GridPoint, steering_of
from accelsweep.plan.grid.explain import defining_file
from accelsweep.plan.grid.hydra_keys import without_effect
from accelsweep.plan.grid.own import optimizer_notes, with_own_targets
from accelsweep.plan.ladder import fitted, ladder_notes
from accelsweep.plan.refusals import check, conflicts, rules, tasks
from accelsweep.plan.refusals.wording import FileOf
from accelsweep.plan.trainer import trainers_place


@dataclass(frozen=True)
class CheckedGrid:
    """The grid after composing and checking.

    `points` are the distinct points by cell name, in grid order; `cells` those that no `exclude:` rule dropped.
    """

    experiment: str | None
    name: str | None
    axes: tuple[str, ...]
    points: dict[str, CheckedPoint]
    cells: dict[str, Cell]
    excluded: tuple[Excluded, ...]
    settings: Settings
    site: Site
    notes: tuple[str, ...]


def checked_grid(
    composer: Composer, overrides: Sequence[str], home: Path, batches: automatic.Batches | None = None
) -> CheckedGrid:
    """Return the cells of these Hydra overrides; raise InputError for anything that is wrong with them.

    `home` is the folder in which the runs will work, and `batches` are those that searches have found for
    `batch_size: auto`.
    """
    try:
        return _checked_grid(composer, overrides, home, batches)
    except InputError as error:  # a file that nobody expected to be read explains many of them
        words = set(re.findall(r"\w+", str(error)))
        twice = [note for name, note in composer.files_named_twice().items() if name.partition("/")[0] in words]
        raise (InputError(". ".join([str(error), *twice])) if twice else error) from None


def _checked_grid(
    composer: Composer, overrides: Sequence[str], home: Path, batches: automatic.Batches | None
) -> CheckedGrid:
    master = composer.master(with_own_targets(composer, overrides))
    _refuse_foreign_config(composer, master)
    grid = composer.grid(master)
    choices = dict(master.hydra.runtime.choices)
    file_of = cache(partial(defining_file, folders=composer.folders, choices=choices))
    steering = steering_of(composer, grid.jobs[0])
    compared: dict[str, Any] = {
        key: frozen_paths(steering[key], home) for key in ("baseline", "exclude") if key in steering
    }
    settings, site, exclude = check.steering({**steering, **compared}, file_of)
    site = site.model_copy(update={"inventory": devices.inventory()}) if site.probe else site
    auto = rules.resolve_auto(site)
    ladder = ladder_notes(composer, grid, settings.report.ladder, file_of)
    expanded = fitted(composer, grid, auto, settings.report.ladder)
    freeze = _Freezer(composer.loader.get_group_options("", results_filter=ObjectType.GROUP), file_of, home)
    points = _points(expanded, steering, freeze, _Automatic(batches or {}, settings.report.ladder))
    every = list(points.values())
    dropped = _dropped(points, exclude, file_of)
    select.refuse_unknown_keys(settings.baseline, every, "baseline", file_of)
    left = [point for name, point in points.items() if name not in dropped]
    _refuse_what_measures_nothing(left, settings, file_of)
    return CheckedGrid(
        experiment=choices.get("experiment"),
        name=None if steering.get("name") is None else str(steering["name"]),
        axes=tuple(every[0].axes),
        points=points,
        cells={name: _cell(name, point, site) for name, point in points.items() if name not in dropped},
        excluded=tuple(Excluded(axes=points[name].axes, because=because) for name, because in dropped.items()),
        settings=settings,
        site=site,
        notes=(
            *composer.files_named_twice().values(),
            *ladder,
            *_notes(len(grid.jobs), points, exclude),
            *without_effect([composer.parse(line) for line in overrides]),
            *optimizer_notes(composer, overrides, (point.config for point in every)),
        ),
    )


def site_of(composer: Composer, overrides: Sequence[str]) -> Site:
    """Return the site of these Hydra overrides, without the cells; raise InputError for what is wrong with it."""
    master = composer.master(overrides)
    _refuse_foreign_config(composer, master)
    choices = dict(master.hydra.runtime.choices)
    file_of = partial(defining_file, folders=composer.folders, choices=choices)
    return check.steering(steering_of(composer, composer.grid(master).jobs[0]), file_of)[1]


@dataclass(frozen=True)
class _Automatic:
    """The batches of `batch_size: auto`, and the axis of the ladder, with which there are none."""

    batches: automatic.Batches
    ladder: str | None


@dataclass(frozen=True)
class _Freezer:
    """Checks scientific configs and freezes their paths. `groups` are the names of all config groups."""

    groups: Sequence[str]
    file_of: FileOf
    home: Path

    def __call__(self, science: dict[str, Any], added: frozenset[str]) -> CellConfig:
        return check.science(frozen_paths(science, self.home), added, self.groups, self.file_of)


def _points(
    expanded: Iterable[GridPoint], steering: dict[str, Any], freeze: _Freezer, auto: _Automatic
) -> dict[str, CheckedPoint]:
    """Return the grid's distinct points, checked, by the names of their cells."""
    points: dict[str, CheckedPoint] = {}
    for point in expanded:
        _refuse_other_steering(steering, point)
        config = freeze(point.science, point.added)
        checked = CheckedPoint(point.axes, config, point.choices, point.added, point.lacks)
        if point.with_batch is not None:
            automatic.refuse_unsearchable(config, auto.ladder)
            checked = automatic.decided(checked, auto.batches, partial(_with_batch, point, freeze))
        points.setdefault(cell_name(checked.config.raw), checked)
    return automatic.with_batch_axis(points)


def _dropped(points: dict[str, CheckedPoint], exclude: Sequence[check.Rule], file_of: FileOf) -> dict[str, str]:
    """Return the settings that a rule of `exclude` drops, each with its reason; raise InputError where all are."""
    for number, rule in enumerate(exclude):
        select.refuse_unknown_keys(rule.when, list(points.values()), f"exclude.{number}.when", file_of)
    dropped = {name: because for name, point in points.items() if (because := select.excluded_by(exclude, point))}
    if len(dropped) == len(points):
        raise InputError(f"the `exclude:` rules drop every setting of the grid; look in {file_of('exclude')}")
    return dropped


def _with_batch(point: GridPoint, freeze: _Freezer, batch: int) -> CellConfig:
    assert point.with_batch is not None, "asked of a point with an automatic batch only"
    return freeze(point.with_batch(batch), point.added)


def _refuse_what_measures_nothing(left: Sequence[CheckedPoint], settings: Settings, file_of: FileOf) -> None:
    """Raise InputError for a cell that every run would fail, and for an axis whose cells would measure the same."""
    for point in left:
        tasks.refuse_unfit(point.config, settings.analysis.rate, file_of)
        conflicts.refuse_conflicts(point.config, settings.limits, file_of)
    tasks.refuse_idle_axes([point.axes for point in left], [point.config.work for point in left])
    conflicts.refuse_unread_axes(left)


def _refuse_foreign_config(composer: Composer, master: DictConfig) -> None:
    if "accelerator" not in master and "site" not in master:
        own = composer.folders[0]
        raise InputError(
            f"{own / 'config.yaml'} or {own / 'base.yaml'} is read in place of accelsweep's file of that name. It "
            "lacks its keys: rename yours, and keep experiments and groups of your own beside it"
        )


def _cell(name: str, point: CheckedPoint, site: Site) -> Cell:
    searched = point.search is not None  # which is of no use where the setting cannot run anyway
    first = rules.unsupported(point.config, site) if searched else point.lacks
    unsupported = first or (point.lacks if searched else rules.unsupported(point.config, site))
    return Cell(name=name, axes=point.axes, config=point.config, unsupported=unsupported)


def _refuse_other_steering(steering: dict[str, Any], point: GridPoint) -> None:
    if point.steering == steering:
        return
    keys = [key for key in {**steering, **point.steering} if steering.get(key) != point.steering.get(key)]
    raise InputError(
        f"'{keys[0]}' differs between settings ({steering.get(keys[0])!r}, {point.steering.get(keys[0])!r}), "
        "but it steers the whole sweep: sweep nothing that changes it, or plan one sweep per value with --name"
    )


def _notes(jobs: int, points: dict[str, CheckedPoint], exclude: Sequence[check.Rule]) -> tuple[str, ...]:
    known = list(CellConfig.model_fields)
    added = {key for point in points.values() for key in point.added}.difference(known, PLAN_KEYS)
    notes = [
        f"'{key}' is taken as a key of your own" + (f". {place}" if place else near)
        for key in sorted(added)
        if (place := trainers_place(key)) or (near := nearest(key, known))
    ]
    if jobs > len(points):
        notes.append(f"{jobs - len(points)} of the grid's {jobs} points repeat another setting and are planned once")
    for number, rule in enumerate(exclude):
        if not any(select.matches(rule.when, point) for point in points.values()):
            notes.append(f"exclude.{number} ({rule.because}) drops no setting of this grid")
    return tuple(notes)
