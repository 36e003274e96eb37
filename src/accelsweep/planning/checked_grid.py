"""From overrides to the checked settings of a sweep: compose, expand, check, exclude, mark what is unsupported."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

from hydra.core.object_type import ObjectType
from omegaconf import DictConfig, OmegaConf

from accelsweep import registry
from accelsweep.config.grid import CheckedPoint, GridPoint, GridPoints, expand, plan_config_of
from accelsweep.config.hydra import Composer, hydra_key_notes
from accelsweep.config.hydra_errors import defining_file, dotted_keys, suggestion
from accelsweep.config.schema import CONFIG_KEYS
from accelsweep.config.setting import PLAN_KEYS, Setting, abbreviate_home, setting_name
from accelsweep.config.site import Site
from accelsweep.config.sweep_options import Options
from accelsweep.config.value_errors import FileOf
from accelsweep.config.versions import Tree
from accelsweep.devices import kinds
from accelsweep.errors import InputError, nearest
from accelsweep.plain_json import MISSING, look_up
from accelsweep.planning import auto_batch_size, config_validation, target_check, unsupported
from accelsweep.planning.config_validation import Rule
from accelsweep.planning.source_digests import ImportPath, measured_targets, source_digests
from accelsweep.planning.target_check import optimizer_notes, with_user_targets
from accelsweep.records.plan import Excluded, FoundBatch
from accelsweep.run_config import SettingConfig
from accelsweep.significant_digits import count_of
from accelsweep.trainer_arguments import trainer_argument_hint

# Pick settings by the values of their keys: `exclude:` rules and the choice of the baseline.


def matches(wanted: Mapping[str, Any], point: CheckedPoint) -> bool:
    """Return whether every key of `wanted` has its value, or one of its listed values, at this point of the grid.

    A key is a dotted config key or the name of a config group, whose value is then the chosen file's name.
    """
    return all(_is_one_of(_value(point, key), value) for key, value in flat(wanted).items())


def flat(wanted: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Return `wanted` by dotted keys: a command line that says `+baseline.data.rows=8` nests them."""
    found: dict[str, Any] = {}
    for key, value in wanted.items():
        found |= flat(value, f"{above}{key}.") if isinstance(value, Mapping) else {f"{above}{key}": value}
    return found


def _value(point: CheckedPoint, key: str) -> Any:
    value = look_up(point.config.raw, key)
    return point.choices.get(key, value) if value is MISSING or isinstance(value, dict) else value


def _is_one_of(actual: Any, wanted: Any) -> bool:
    options = wanted if isinstance(wanted, list) and not isinstance(actual, list) else [wanted]
    return any(actual == option and isinstance(actual, bool) == isinstance(option, bool) for option in options)


def refuse_unknown_keys(wanted: Mapping[str, Any], points: Sequence[CheckedPoint], where: str, file_of: FileOf) -> None:
    """Raise InputError if `wanted` names a key that no point of the grid has."""
    for key in flat(wanted):
        if all(_value(point, key) is MISSING for point in points):
            known = list(dotted_keys(points[0].config.raw))
            raise InputError(
                f"{where}: unknown key '{key}'{suggestion(key, known)}; look in {file_of(where.partition('.')[0])}"
            )


def excluded_by(rules: Iterable[Rule], point: CheckedPoint) -> str | None:
    """Return the reason of the first rule that drops this point, or None if it stays."""
    return next((rule.because for rule in rules if matches(rule.when, point)), None)


@dataclass(frozen=True)
class CheckedGrid:
    """The grid after composing and checking.

    `points` are the distinct points by setting name, in grid order; `settings` those that no `exclude:` rule dropped.
    """

    experiment: str | None
    name: str | None
    axes: tuple[str, ...]
    points: dict[str, CheckedPoint]
    settings: dict[str, Setting]
    excluded: tuple[Excluded, ...]
    options: Options
    site: Site
    notes: tuple[str, ...]


@dataclass(frozen=True)
class VersionedGrid:
    """The grid of all versions, for each of them the digests of its sources, and its tree with the packages in it."""

    grid: CheckedGrid
    sources: dict[str, str]
    trees: tuple[Tree, ...]


def checked_grid(
    composer: Composer, overrides: Sequence[str], home: Path, batches: auto_batch_size.SearchResults | None = None
) -> CheckedGrid:
    """Return the settings of these Hydra overrides; raise InputError for anything that is wrong with them.

    `home` is the folder in which the runs will work, and `batches` are those that searches have found for
    `batch_size: auto`.
    """
    try:
        return _checked_grid(composer, overrides, home, batches)
    except InputError as error:  # a file that nobody expected to be read explains many of them
        words = set(re.findall(r"\w+", str(error)))
        twice = [note for name, note in composer.shadowed_files().items() if name.partition("/")[0] in words]
        raise (InputError(". ".join([str(error), *twice])) if twice else error) from None


def _checked_grid(
    composer: Composer, overrides: Sequence[str], home: Path, batches: auto_batch_size.SearchResults | None
) -> CheckedGrid:
    master = composer.master(with_user_targets(composer, overrides))
    _refuse_foreign_config(composer, master)
    grid = composer.grid(master)
    choices = dict(master.hydra.runtime.choices)
    file_of = cache(partial(defining_file, folders=composer.folders, choices=choices))
    steering = plan_config_of(composer, grid.jobs[0])
    compared: dict[str, Any] = {
        key: abbreviate_home(steering[key], home) for key in ("baseline", "exclude") if key in steering
    }
    options, site, exclude = config_validation.check_plan_config({**steering, **compared}, file_of)
    site = site.model_copy(update={"inventory": kinds.inventory()}) if site.probe else site
    auto = unsupported.resolve_auto(site)
    own = (points(composer, grid, auto, options.report, file_of) for points in registry.loaded("grid_points"))
    fitted = next(filter(None, own), None) or GridPoints(expand(composer, grid, auto), (), "")
    freeze = _Freezer(composer.loader.get_group_options("", results_filter=ObjectType.GROUP), file_of, home)
    points = _points(fitted, steering, freeze, batches or {})
    every = list(points.values())
    dropped = _dropped(points, exclude, file_of)
    refuse_unknown_keys(options.baseline, every, "baseline", file_of)
    left = [point for name, point in points.items() if name not in dropped]
    _refuse_what_measures_nothing(left, options, file_of)
    return CheckedGrid(
        experiment=choices.get("experiment"),
        name=None if steering.get("name") is None else str(steering["name"]),
        axes=tuple(every[0].axes),
        points=points,
        settings={name: _setting(name, point, site) for name, point in points.items() if name not in dropped},
        excluded=tuple(Excluded(axes=points[name].axes, because=because) for name, because in dropped.items()),
        options=options,
        site=site,
        notes=(
            *composer.shadowed_files().values(),
            *fitted.notes,
            *_notes(len(grid.jobs), points, exclude),
            *hydra_key_notes([composer.parse(line) for line in overrides]),
            *optimizer_notes(composer, overrides, (point.config for point in every)),
        ),
    )


def site_of(composer: Composer, overrides: Sequence[str]) -> Site:
    """Return the site of these Hydra overrides, without the settings; raise InputError for what is wrong with it."""
    master = composer.master(overrides)
    _refuse_foreign_config(composer, master)
    choices = dict(master.hydra.runtime.choices)
    file_of = partial(defining_file, folders=composer.folders, choices=choices)
    return config_validation.check_plan_config(plan_config_of(composer, composer.grid(master).jobs[0]), file_of)[1]


@dataclass(frozen=True)
class _Freezer:
    """Checks scientific configs and freezes their paths. `groups` are the names of all config groups."""

    groups: Sequence[str]
    file_of: FileOf
    home: Path

    def __call__(self, science: dict[str, Any], added: frozenset[str]) -> SettingConfig:
        return config_validation.check_setting_config(
            abbreviate_home(science, self.home), added, self.groups, self.file_of
        )


def _points(
    expanded: GridPoints, steering: dict[str, Any], freeze: _Freezer, batches: auto_batch_size.SearchResults
) -> dict[str, CheckedPoint]:
    """Return the grid's distinct points, checked, by the names of their settings."""
    points: dict[str, CheckedPoint] = {}
    for point in expanded.points:
        _refuse_other_steering(steering, point)
        config = freeze(point.science, point.added)
        checked = CheckedPoint(point.axes, config, point.choices, point.added, point.lacks)
        if point.with_batch is not None:
            auto_batch_size.refuse_unsearchable(config, expanded.option or None)
            checked = auto_batch_size.with_search_result(checked, batches, partial(_with_batch, point, freeze))
        points.setdefault(setting_name(checked.config.raw), checked)
    return auto_batch_size.with_batch_size_axis(points)


def _dropped(
    points: dict[str, CheckedPoint], exclude: Sequence[config_validation.Rule], file_of: FileOf
) -> dict[str, str]:
    """Return the settings that a rule of `exclude` drops, each with its reason; raise InputError where all are."""
    for number, rule in enumerate(exclude):
        refuse_unknown_keys(rule.when, list(points.values()), f"exclude.{number}.when", file_of)
    dropped = {name: because for name, point in points.items() if (because := excluded_by(exclude, point))}
    if len(dropped) == len(points):
        raise InputError(f"the `exclude:` rules drop every setting of the grid; look in {file_of('exclude')}")
    return dropped


def _with_batch(point: GridPoint, freeze: _Freezer, batch: int) -> SettingConfig:
    assert point.with_batch is not None, "asked of a point with an automatic batch only"
    return freeze(point.with_batch(batch), point.added)


def _refuse_what_measures_nothing(left: Sequence[CheckedPoint], options: Options, file_of: FileOf) -> None:
    """Raise InputError for a setting whose runs would all fail, and for an axis that changes nothing."""
    for point in left:
        config_validation.refuse_unfit(point.config, options.analysis.rate, file_of)
        config_validation.refuse_conflicts(point.config, options.limits, file_of)
    config_validation.refuse_idle_axes([point.axes for point in left], [point.config for point in left])
    config_validation.refuse_unread_axes(left)


def _refuse_foreign_config(composer: Composer, master: DictConfig) -> None:
    if "accelerator" not in master and "site" not in master:
        own = composer.folders[0]
        raise InputError(
            f"{own / 'config.yaml'} or {own / 'base.yaml'} is read in place of accelsweep's file of that name. It "
            "lacks its keys: rename yours, and keep experiments and groups of your own beside it"
        )


def _setting(name: str, point: CheckedPoint, site: Site) -> Setting:
    searched = point.search is not None  # which is of no use where the setting cannot run anyway
    first = unsupported.why_unsupported(point.config, site) if searched else point.lacks
    reason = first or (point.lacks if searched else unsupported.why_unsupported(point.config, site))
    return Setting(name=name, axes=point.axes, config=point.config, unsupported=reason)


def _refuse_other_steering(steering: dict[str, Any], point: GridPoint) -> None:
    if point.steering == steering:
        return
    keys = [key for key in {**steering, **point.steering} if steering.get(key) != point.steering.get(key)]
    raise InputError(
        f"'{keys[0]}' differs between settings ({steering.get(keys[0])!r}, {point.steering.get(keys[0])!r}), "
        "but it steers the whole sweep: sweep nothing that changes it, or plan one sweep per value with --name"
    )


def _notes(jobs: int, points: dict[str, CheckedPoint], exclude: Sequence[config_validation.Rule]) -> tuple[str, ...]:
    known = CONFIG_KEYS
    added = {key for point in points.values() for key in point.added}.difference(known, PLAN_KEYS)
    notes = [
        f"'{key}' is taken as a key of your own" + (f". {place}" if place else near)
        for key in sorted(added)
        if (place := trainer_argument_hint(key)) or (near := nearest(key, known))
    ]
    if jobs > len(points):
        notes.append(f"{jobs - len(points)} of the grid's {jobs} points repeat another setting and are planned once")
    for number, rule in enumerate(exclude):
        if not any(matches(rule.when, point) for point in points.values()):
            notes.append(f"exclude.{number} ({rule.because}) drops no setting of this grid")
    return tuple(notes)


# The checked grid of a sweep's overrides, with the batches that searches have found for `batch_size: auto`.


class BatchSearchNeeded(InputError):
    """The batches of some settings have to be searched first, for `batch_size: auto`. Nothing is planned until then.

    `sweep` is the sweep that was asked for, with its `overrides`, `grid` and `sources`. `searches` are all that it
    rests on, and `left` the names of those without an answer.
    """

    def __init__(self, sweep: str, overrides: tuple[str, ...], grid: CheckedGrid, sources: dict[str, str]) -> None:
        self.sweep, self.overrides, self.grid, self.sources = sweep, overrides, grid, sources
        settings = list(grid.settings.values())
        self.searches = auto_batch_size.required_searches(grid.points, settings)
        waiting = [setting for setting in settings if setting.unsupported == auto_batch_size.SEARCH_PENDING]
        self.left = frozenset(auto_batch_size.required_searches(grid.points, waiting))
        super().__init__(
            f"batch_size=auto: the largest batch of {count_of(len(waiting), 'setting')} of {sweep!r} is not known yet. "
            "`accelsweep run` searches for it first: give that command, or batch_size a number"
        )


def grid_with_batch_sizes(
    home: Path,
    overrides: Sequence[str],
    sweep: str,
    kept: Mapping[str, FoundBatch],
    batches: auto_batch_size.SearchResults,
) -> tuple[CheckedGrid, dict[str, str], dict[str, FoundBatch]]:
    """Return the grid with automatic batches, its sources, and the batches to keep. Those of earlier plans stay.

    Raises Unsearched where some are not known.
    """
    known = {**batches, **kept}
    grid, sources = grid_of(home, overrides, known)
    if any(setting.unsupported == auto_batch_size.SEARCH_PENDING for setting in grid.settings.values()):
        raise BatchSearchNeeded(sweep, tuple(overrides), grid, sources)
    names = auto_batch_size.required_searches(grid.points, grid.settings.values())
    found = {name: one for name in names if isinstance(one := known.get(name), FoundBatch)}
    return grid, sources, {**kept, **found}


def grid_of(
    home: Path, overrides: Sequence[str], batches: auto_batch_size.SearchResults
) -> tuple[CheckedGrid, dict[str, str]]:
    """Return the grid of the working directory, and the digests of the sources that it measures."""
    target_check.refuse_shadows(home)
    grid = checked_grid(Composer.of(home, overrides), overrides, home, batches)
    path = ImportPath.of_home(home)
    configs = [setting.config for setting in grid.settings.values()]
    target_check.refuse_missing_targets(configs, path)
    # A setting whose keys nothing takes may be a row that says so (`GridPoint.lacks`).
    measured = [setting.config for setting in grid.settings.values() if setting.unsupported is None]
    target_check.refuse_wrong_arguments(measured, path)
    return grid, source_digests(sorted({pair for config in configs for pair in measured_targets(config)}), path)


# The name of a sweep that compares versions or nodes.


def comparison_name(home: Path, overrides: Sequence[str], command: str = "ab") -> str:
    """Return the name of the sweep that compares versions of what these overrides measure: `ab-EXPERIMENT`.

    Or it compares nodes, and the `command` is another one. A sweep of the same experiment alone keeps its own name.
    """
    composer = Composer.of(home, overrides)
    master = composer.master(with_user_targets(composer, overrides))
    chosen = OmegaConf.select(master, "name") or master.hydra.runtime.choices.get("experiment") or "sweep"
    return f"{command}-{chosen}".replace("/", "-")
