"""Turns overrides into a sweep's checked settings: composes, expands, checks, excludes, and flags unsupported ones."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

from hydra.core.object_type import ObjectType
from omegaconf import DictConfig, OmegaConf

from accelsweep import registry
from accelsweep.config.grid import CheckedPoint, GridPoint, GridPoints, expand, plan_config_of
from accelsweep.config.hydra import ENTRY_CONFIG_NAME, Composer, hydra_key_notes
from accelsweep.config.hydra_errors import defining_file, dotted_keys, suggestion
from accelsweep.config.schema import CONFIG_KEYS
from accelsweep.config.setting import PLAN_KEYS, Setting, abbreviate_home, setting_names
from accelsweep.config.site import Site
from accelsweep.config.sweep_options import Options
from accelsweep.config.value_errors import FileOf
from accelsweep.config.versions import Tree
from accelsweep.devices import kinds
from accelsweep.errors import InputError, nearest
from accelsweep.installation import shipped_root
from accelsweep.plain_json import MISSING, look_up
from accelsweep.planning import auto_batch_size, config_validation, unsupported, user_class_check
from accelsweep.planning.config_validation import Rule
from accelsweep.planning.entry_point import PROJECT_FILE, Project, measured_project
from accelsweep.planning.project_config import Compositions, ProjectConfigs
from accelsweep.planning.project_overrides import DEFAULT_AXES, QUALITY, ProjectGrid
from accelsweep.planning.resources import is_emulated
from accelsweep.planning.source_digests import (
    ImportPath,
    differing_in_code,
    entry_digests,
    measured_targets,
    source_digests,
)
from accelsweep.planning.user_class_overrides import optimizer_notes, with_user_targets
from accelsweep.records.plan import Excluded, FoundBatch, Manifest, MeasuredProject, TrialFindings
from accelsweep.run_config import EntryPoint, SettingConfig
from accelsweep.significant_digits import count_of
from accelsweep.trainer_arguments import trainer_argument_hint


def matches(conditions: Mapping[str, Any], point: CheckedPoint) -> bool:
    """Return whether this grid point matches every condition.

    A condition matches if its key has the given value or one of the listed values. A key is either a dotted config key
    or a config group; for a group, the value is the name of the chosen file.
    """
    return all(_is_one_of(_value(point, key), value) for key, value in _flattened(conditions).items())


def _flattened(conditions: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flatten `conditions` to dotted keys, because `+baseline.data.rows=8` on a command line nests them."""
    flat: dict[str, Any] = {}
    for key, value in conditions.items():
        name = f"{prefix}{key}"
        flat |= _flattened(value, f"{name}.") if isinstance(value, Mapping) else {name: value}
    return flat


def _value(point: CheckedPoint, key: str) -> Any:
    value = look_up(point.config.raw, key)
    if value is MISSING and point.config.entry is not None:
        value = look_up(point.config.entry.config or {}, key)
    return point.choices.get(key, value) if value is MISSING or isinstance(value, dict) else value


def _is_one_of(actual: Any, expected: Any) -> bool:
    options = expected if isinstance(expected, list) and not isinstance(actual, list) else [expected]
    return any(actual == option and isinstance(actual, bool) == isinstance(option, bool) for option in options)


def refuse_unknown_keys(
    conditions: Mapping[str, Any], points: Sequence[CheckedPoint], where: str, file_of: FileOf
) -> None:
    """Raise InputError if `conditions` contains a key that does not exist at any grid point."""
    for key in _flattened(conditions):
        if all(_value(point, key) is MISSING for point in points):
            known = list(dotted_keys(points[0].config.raw))
            file = file_of(where.partition(".")[0])
            raise InputError(f"{where}: unknown key '{key}'{suggestion(key, known)}; look in {file}")


def excluded_by(rules: Iterable[Rule], point: CheckedPoint) -> str | None:
    """Return the reason stated in the first rule that excludes this point; None if no rule does."""
    return next((rule.because for rule in rules if matches(rule.when, point)), None)


@dataclass(frozen=True)
class CheckedGrid:
    """A composed and checked grid.

    `points` contains the distinct points keyed by setting name, in grid order; `settings` contains those not dropped by
    an `exclude:` rule.
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
    """The grid of all versions, the digests of their sources, and their source trees.

    `entry` is the user's own training script in the first version, if the sweep measures one.
    """

    grid: CheckedGrid
    sources: dict[str, str]
    trees: tuple[Tree, ...]
    entry: MeasuredProject | None = None


def checked_grid(
    composer: Composer,
    overrides: Sequence[str],
    home: Path,
    search_results: auto_batch_size.SearchResults | None = None,
    project: ProjectGrid | None = None,
) -> CheckedGrid:
    """Return the settings that these Hydra overrides define; raise InputError for any error in them.

    `home` is the runs' working directory, and `search_results` contains the batch sizes found for `batch_size: auto`.
    `project` is the user's own training script, whose config the other overrides go to.
    """
    try:
        return _checked_grid(composer, overrides, home, search_results or {}, project)
    except InputError as error:  # often caused by a file that shadows the expected one
        words = set(re.findall(r"\w+", str(error)))
        shadowed = [note for name, note in composer.shadowed_files().items() if name.partition("/")[0] in words]
        raise (InputError(". ".join([str(error), *shadowed])) if shadowed else error) from None


def _checked_grid(
    composer: Composer,
    overrides: Sequence[str],
    home: Path,
    search_results: auto_batch_size.SearchResults,
    project: ProjectGrid | None,
) -> CheckedGrid:
    theirs: tuple[str, ...] = ()
    if project is not None:
        overrides, theirs = _split_overrides(composer, overrides, project)
    master = composer.master(with_user_targets(composer, overrides))
    _refuse_foreign_config(composer, master)
    grid = composer.grid(master)
    choices = dict(master.hydra.runtime.choices)
    file_of = cache(partial(defining_file, folders=composer.folders, choices=choices))
    plan_config = plan_config_of(composer, grid.jobs[0])
    # Conditions are compared with frozen configs, so their paths must be abbreviated as well.
    conditions: dict[str, Any] = {
        key: abbreviate_home(plan_config[key], home) for key in ("baseline", "exclude") if key in plan_config
    }
    options, site, rules = config_validation.check_plan_config({**plan_config, **conditions}, file_of)
    if site.probe:
        torch = None if project is None else project.torch
        site = site.model_copy(update={"inventory": kinds.inventory(torch)})
    auto = unsupported.resolve_auto(site)
    if project is not None:
        project.auto = auto
        expanded = GridPoints(project.points(composer, grid, theirs), (), "")
    else:
        by_features = (
            grid_points(composer, grid, auto, options.report, file_of) for grid_points in registry.loaded("grid_points")
        )
        expanded = next(filter(None, by_features), None) or GridPoints(expand(composer, grid, auto), (), "")
    groups = composer.loader.get_group_options("", results_filter=ObjectType.GROUP)
    check = config_validation.SettingCheck(home, groups, file_of)
    points = _checked_points(expanded, plan_config, check, search_results)
    every = list(points.values())
    for number, rule in enumerate(rules):
        refuse_unknown_keys(rule.when, every, f"exclude.{number}.when", file_of)
    excluded = {name: because for name, point in points.items() if (because := excluded_by(rules, point))}
    if len(excluded) == len(points):
        raise InputError(f"the `exclude:` rules drop every setting in the grid; look in {file_of('exclude')}")
    refuse_unknown_keys(options.baseline, every, "baseline", file_of)
    remaining = {name: point for name, point in points.items() if name not in excluded}
    config_validation.refuse_unmeasurable(list(remaining.values()), options, file_of)
    settings = {name: _setting(name, point, site) for name, point in remaining.items()}
    return CheckedGrid(
        experiment=choices.get("experiment"),
        name=None if plan_config.get("name") is None else str(plan_config["name"]),
        axes=tuple(every[0].axes),
        points=points,
        settings=settings,
        excluded=tuple(Excluded(axes=points[name].axes, because=because) for name, because in excluded.items()),
        options=options,
        site=site,
        notes=(
            *composer.shadowed_files().values(),
            *expanded.notes,
            *(project.notes if project is not None else ()),
            *(_batch_note(project, points.values(), site) if project is not None else ()),
            *_notes(len(grid.jobs), every, rules),
            *_emulation_notes(settings.values(), site),
            *hydra_key_notes([composer.parse(line) for line in overrides if not line.startswith(QUALITY)]),
            *optimizer_notes(composer, overrides, (point.config for point in every)),
        ),
    )


def _split_overrides(
    composer: Composer, overrides: Sequence[str], project: ProjectGrid
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Divide overrides between accelsweep and the project, and add what the project's config says about quality."""
    own = [key for key in composer.master(()) if key not in ("hydra", "model", "data", "optimizer", "trainer", "loop")]
    split = project.split(composer, overrides, [*map(str, own), "site", "prices", "measure"])
    given = {composer.parse(line).key_or_group for line in split.ours}
    adds_axes = project.minutes is not None and not project.project.whole_process
    if adds_axes and not split.theirs and given.isdisjoint(DEFAULT_AXES):
        project.defaults = [line for line in project.default_axes() if line.partition("=")[0] not in given]
    return (*project.quality_overrides(split.ours), *project.defaults, *split.ours), split.theirs


def _batch_note(project: ProjectGrid, points: Iterable[CheckedPoint], site: Site) -> Iterator[str]:
    """Yield what is assumed about the batch size if no trial will show it."""
    if site.scheduler == "local" or project.batch_meaning is not None:
        return
    if any(point.config.ranks > 1 for point in points):
        yield (
            "batch_size is assumed to apply to each rank, because nothing is tried on a cluster: if the ranks divide "
            f"it, write `batch_is: global` into {PROJECT_FILE}, else `batch_is: per_device`"
        )


def site_of(composer: Composer, overrides: Sequence[str]) -> Site:
    """Return the site that these Hydra overrides define, without expanding the grid; raise InputError for any error."""
    master = composer.master(overrides)
    _refuse_foreign_config(composer, master)
    choices = dict(master.hydra.runtime.choices)
    file_of = partial(defining_file, folders=composer.folders, choices=choices)
    return config_validation.check_plan_config(plan_config_of(composer, composer.grid(master).jobs[0]), file_of)[1]


def _refuse_foreign_config(composer: Composer, master: DictConfig) -> None:
    if "accelerator" not in master and "site" not in master:
        folder = composer.folders[0]
        raise InputError(
            f"{folder / 'config.yaml'} or {folder / 'base.yaml'} is read instead of accelsweep's file of the same "
            "name. It lacks accelsweep's keys: rename it, and keep your experiments and groups next to it"
        )


_ConfigCheck = Callable[[dict[str, Any], frozenset[str]], SettingConfig]


def _checked_points(
    expanded: GridPoints,
    plan_config: dict[str, Any],
    check: _ConfigCheck,
    search_results: auto_batch_size.SearchResults,
) -> dict[str, CheckedPoint]:
    """Return the grid's distinct points, keyed by setting name."""
    points: dict[str, CheckedPoint] = {}
    name_of = setting_names()
    for point in expanded.points:
        if point.plan_config is not plan_config:  # nearly all points share one
            _refuse_different_plan_config(plan_config, point)
            plan_config = point.plan_config
        checked = _checked_point(point, expanded.option, check, search_results)
        points.setdefault(name_of(checked.config.raw), checked)
    return auto_batch_size.with_batch_size_axis(points)


def _checked_point(
    point: GridPoint, option: str, check: _ConfigCheck, search_results: auto_batch_size.SearchResults
) -> CheckedPoint:
    config = check(point.config, point.added)
    checked = CheckedPoint(point.axes, config, point.choices, point.added, point.unsupported)
    if (with_batch := point.with_batch) is None:
        return checked
    auto_batch_size.refuse_unsearchable(config, option)
    return auto_batch_size.with_search_result(
        checked, search_results, lambda batch: check(with_batch(batch), point.added)
    )


def _refuse_different_plan_config(expected: dict[str, Any], point: GridPoint) -> None:
    if point.plan_config == expected:
        return
    keys = [key for key in {**expected, **point.plan_config} if expected.get(key) != point.plan_config.get(key)]
    raise InputError(
        f"'{keys[0]}' differs between settings ({expected.get(keys[0])!r}, {point.plan_config.get(keys[0])!r}), but it "
        "applies to the whole sweep: do not sweep keys that change it, or plan one sweep per value with --name"
    )


def _setting(name: str, point: CheckedPoint, site: Site) -> Setting:
    reason = point.unsupported
    if reason is None or point.search is not None:  # a search is useless if the setting cannot run anyway
        reason = unsupported.why_unsupported(point.config, site) or reason
    return Setting(name=name, axes=point.axes, config=point.config, unsupported=reason)


def _emulation_notes(settings: Iterable[Setting], site: Site) -> list[str]:
    supported = [setting.config for setting in settings if setting.unsupported is None]
    where = "this CPU" if site.probe else "the site's CPU"
    return [
        f"{precision} is emulated on {where}: expect it to be several times slower"
        for precision in dict.fromkeys(config.precision for config in supported if is_emulated(config, site))
    ]


def _notes(jobs: int, points: Sequence[CheckedPoint], rules: Sequence[Rule]) -> list[str]:
    added = {key for point in points for key in point.added}.difference(CONFIG_KEYS, PLAN_KEYS)
    notes = []
    for key in sorted(added):
        if hint := trainer_argument_hint(key):
            notes.append(f"'{key}' is treated as a key of your own. {hint}")
        elif near := nearest(key, CONFIG_KEYS):
            notes.append(f"'{key}' is treated as a key of your own{near}")
    if jobs > len(points):
        notes.append(f"{jobs - len(points)} of the grid's {jobs} points duplicate another setting and are planned once")
    for number, rule in enumerate(rules):
        if not any(matches(rule.when, point) for point in points):
            notes.append(f"exclude.{number} ({rule.because}) drops no setting in this grid")
    return notes


class BatchSearchNeeded(InputError):
    """Raised if `batch_size: auto` first requires a search for some settings' largest batch size; nothing is planned.

    `sweep` is the requested sweep, with its `overrides`, `grid` and `sources`. `searches` contains all searches that it
    needs, and `pending` contains the names of those without a result.
    """

    def __init__(self, sweep: str, overrides: tuple[str, ...], grid: CheckedGrid, sources: dict[str, str]) -> None:
        self.sweep, self.overrides, self.grid, self.sources = sweep, overrides, grid, sources
        settings = list(grid.settings.values())
        self.searches = auto_batch_size.required_searches(grid.points, settings)
        waiting = [setting for setting in settings if setting.unsupported == auto_batch_size.SEARCH_PENDING]
        self.pending = frozenset(auto_batch_size.required_searches(grid.points, waiting))
        super().__init__(
            f"batch_size=auto: the largest batch of {count_of(len(waiting), 'setting')} of {sweep!r} is not known yet. "
            "`accelsweep run` searches for it first: use that command, or set batch_size to a number"
        )


def grid_with_batch_sizes(
    home: Path,
    overrides: Sequence[str],
    sweep: str,
    planned: Mapping[str, FoundBatch],
    search_results: auto_batch_size.SearchResults,
) -> tuple[CheckedGrid, dict[str, str], dict[str, FoundBatch]]:
    """Return the grid with automatic batch sizes filled in, its sources, and all batch sizes found.

    The `planned` batch sizes are kept. Raises BatchSearchNeeded if any batch size is unknown.
    """
    known = {**search_results, **planned}
    grid, sources = project_grid(home, overrides, known)
    if any(setting.unsupported == auto_batch_size.SEARCH_PENDING for setting in grid.settings.values()):
        raise BatchSearchNeeded(sweep, tuple(overrides), grid, sources)
    names = auto_batch_size.required_searches(grid.points, grid.settings.values())
    found = {name: batch for name in names if isinstance(batch := known.get(name), FoundBatch)}
    return grid, sources, {**planned, **found}


def entry_grid(
    project: Project,
    overrides: Sequence[str],
    earlier: Manifest | None,
    trial: TrialFindings | None,
    minutes: float | None,
    compositions: Compositions,
    version: str | None = None,
) -> tuple[CheckedGrid, dict[str, str], MeasuredProject, tuple[str, ...]]:
    """Return the grid over the user's own training script, the digests of its sources, and what the manifest keeps.

    The last part is the overrides, with those of a sweep without axes.

    `earlier` is the sweep's previous plan. Unless the project's sources have changed since, its trial counts if no
    `trial` is given, and the values of the environment that it found are kept. `version` is the name of the compared
    version of the project, if there are several. `minutes` is about how long a sweep without
    axes may take; None if no axes are added. `compositions` are those known so far; new ones are added.
    """
    own = project.home / "conf"  # may be the project's own; only its sites and prices are accelsweep's
    fallback = [own] if any((own / group).is_dir() for group in ("site", "prices")) else []
    composer = Composer((shipped_root() / "conf",), overrides, project.home, ENTRY_CONFIG_NAME, fallback)
    sources = entry_digests(project.home, EntryPoint(project.entry.kind, project.entry.command))
    named = sources if version is None else {f"{name} of {version}": value for name, value in sources.items()}
    before = earlier.entry if earlier is not None and named.items() <= earlier.sources.items() else None
    has_run = before is not None and before.trial is not None and before.software == project.measured.software
    if not has_run and project.entry.kind in ("script", "command"):
        project.check_imports()  # others show by composing their config whether they can import torch
    with ProjectConfigs.of(project, compositions) as configs:
        kept = {} if before is None else before.kept
        trial = trial if before is None or trial is not None else before.trial
        sides = ProjectGrid(project, configs, minutes, trial, kept)
        grid = checked_grid(composer, overrides, project.home, project=sides)
    known = {"batch_is": sides.batch_meaning, "trial": trial, "kept": {**kept, **sides.found}}
    measured = project.measured.model_copy(update=known)
    return grid, sources, measured, (*sides.defaults, *overrides)


def project_grid(
    home: Path, overrides: Sequence[str], search_results: auto_batch_size.SearchResults
) -> tuple[CheckedGrid, dict[str, str]]:
    """Return the grid for the project in `home` and the digests of the sources that it measures."""
    user_class_check.refuse_shadows(home)
    grid = checked_grid(Composer.of(home, overrides), overrides, home, search_results)
    path = ImportPath.of_home(home)
    settings = differing_in_code(grid.settings.values())
    user_class_check.refuse_missing_targets((setting.config for setting in settings), path)
    user_class_check.refuse_wrong_arguments(
        (setting.config for setting in settings if setting.unsupported is None), path
    )
    targets = {pair for setting in settings for pair in measured_targets(setting.config)}
    return grid, source_digests(sorted(targets), path)


def comparison_name(home: Path, overrides: Sequence[str], command: str = "ab", entry: str | None = None) -> str:
    """Return the default name of a sweep that compares versions or nodes: `COMMAND-EXPERIMENT`, or `COMMAND-SCRIPT`.

    The name cannot collide with that of a plain sweep of the same experiment or script. `entry` is the command that
    runs the user's own training script.
    """
    project = measured_project(home, entry, overrides)
    if project is not None:
        return f"{command}-{project.measured.default_name}"
    composer = Composer.of(home, overrides)
    master = composer.master(with_user_targets(composer, overrides))
    name = OmegaConf.select(master, "name") or master.hydra.runtime.choices.get("experiment") or "sweep"
    return f"{command}-{name}".replace("/", "-")
