"""The grid of `accelsweep ab`: each version is a value of the axis `version`, composed from its own `conf/`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from accelsweep.config.grid import CheckedPoint
from accelsweep.config.hydra import Composer
from accelsweep.config.hydra_errors import dotted_keys
from accelsweep.config.schema import changed
from accelsweep.config.setting import Setting, override_value, setting_name
from accelsweep.config.versions import Tree, Version
from accelsweep.errors import InputError
from accelsweep.executor.code_versions import CodeVersion
from accelsweep.plain_json import MISSING, canonical_json, look_up
from accelsweep.planning import user_class_check
from accelsweep.planning.checked_grid import CheckedGrid, VersionedGrid, checked_grid, entry_grid
from accelsweep.planning.entry_point import Project, project_in
from accelsweep.planning.plan import earlier_manifest
from accelsweep.planning.source_digests import (
    ImportPath,
    differing_in_code,
    is_package_below,
    is_user_package,
    measured_targets,
    source_digests,
)
from accelsweep.records.layout import SweepFolder
from accelsweep.records.plan import Excluded, MeasuredProject, TrialFindings, axes_without_version
from accelsweep.run_config import VERSION


@dataclass(frozen=True)
class _VersionGrid:
    """One version's grid, the digests of its sources, and its script, if the sweep measures the user's own."""

    tree: Tree
    grid: CheckedGrid
    sources: dict[str, str]
    entry: MeasuredProject | None = None


def versioned_grid(
    folder: SweepFolder,
    trees: Sequence[Tree],
    overrides: Sequence[str],
    project: Project | None = None,
    trial: TrialFindings | None = None,
) -> VersionedGrid:
    """Return the settings of all versions; the versions of each setting are adjacent, starting with the first version.

    Sweep-wide options come from the last version, which is the one under test. `project` is the user's own training
    script, and `trial` is what a trial of it has shown. Raises InputError if any version contains an error, or if none
    of the measured modules comes from a version's source tree.
    """
    versions = [
        _composed_grid(folder, tree, overrides)
        if project is None
        else _script_grid(folder, tree, overrides, project, trial)
        for tree in trees
    ]
    grids = [(version.tree.version, version.grid) for version in versions]
    if len({canonical_json(grid.axes) for _, grid in grids}) > 1:
        listed = "; ".join(f"{version.description}: {', '.join(grid.axes) or 'none'}" for version, grid in grids)
        raise InputError(f"the versions sweep different axes ({listed}): set the axes as overrides")
    settings_by_axes: dict[str, list[Setting]] = {}
    for _, grid in grids:
        for setting in grid.settings.values():
            settings_by_axes.setdefault(axes_without_version(setting.axes), []).append(setting)
    last = grids[-1][1]
    merged = replace(
        last,
        axes=(*last.axes, VERSION),
        points={name: point for _, grid in grids for name, point in grid.points.items()},
        settings={setting.name: setting for settings in settings_by_axes.values() for setting in settings},
        excluded=tuple(excluded for _, grid in grids for excluded in grid.excluded),
        notes=(*dict.fromkeys(note for _, grid in grids for note in grid.notes), *_config_differences(grids)),
    )
    sources = {
        f"{package} of {version.tree.version.name}": digest
        for version in versions
        for package, digest in version.sources.items()
    }
    entry = versions[0].entry
    if len({version.entry.python for version in versions if version.entry and version.tree.version.python is None}) > 1:
        raise InputError(
            "the versions name different interpreters in accelsweep.yaml: name one with --entry 'PYTHON SCRIPT', or "
            "compare environments with --python"
        )
    if entry is not None:
        found = [version.entry.kept for version in versions if version.entry]
        any_kept = {call: value for kept in found for call, value in kept.items()}
        agreed = {
            call: value for call, value in any_kept.items() if all(kept.get(call, value) == value for kept in found)
        }
        entry = entry.model_copy(update={"kept": agreed})  # the others are returned by a version's own resolvers
    return VersionedGrid(merged, sources, tuple(version.tree for version in versions), entry)


def _composed_grid(folder: SweepFolder, tree: Tree, overrides: Sequence[str]) -> _VersionGrid:
    """Return the grid of a version whose model and data accelsweep composes."""
    version = CodeVersion.of(folder, tree)
    path, home = version.path, version.home
    with _errors_of(tree.version):
        user_class_check.refuse_shadows(home)
        grid = checked_grid(Composer.of(home, overrides), overrides, folder.home)
        settings = differing_in_code(grid.settings.values())
        user_class_check.refuse_missing_targets([setting.config for setting in settings], path)
        user_class_check.refuse_wrong_arguments(
            (setting.config for setting in settings if not setting.unsupported), path
        )
    measured = sorted({pair for setting in settings for pair in measured_targets(setting.config)})
    packages = _packages_in_tree([target for _, target in measured], path, tree, folder)
    with_packages = tree.model_copy(update={"packages": packages})
    return _VersionGrid(with_packages, _with_version(grid, tree.version), source_digests(measured, path))


def _script_grid(
    folder: SweepFolder, tree: Tree, overrides: Sequence[str], project: Project, trial: TrialFindings | None
) -> _VersionGrid:
    """Return the grid of a version of the user's own training script, which runs in the version's tree."""
    version = CodeVersion.of(folder, tree)
    with _errors_of(tree.version):
        own = project_in(version.home, project.typed, environment=folder.home)
        assert own is not None, "a script is required"
        own = replace(own, whole_process=project.whole_process)
        if tree.checkout and Path(own.entry.name).is_absolute():
            raise InputError(f"{own.entry.name} is the same file in every version: name it relative to {folder.home}")
        if tree.version.python is not None:
            own = replace(own, python=tree.version.python, activated=False)
        if tree.checkout:
            own = replace(own, folders=tuple(map(str, version.path.folders)))
        grid, sources, entry, _ = entry_grid(
            own, overrides, earlier_manifest(folder), trial, None, {}, tree.version.name
        )
        grid = replace(grid, notes=(own.note(), *grid.notes))
    return _VersionGrid(tree, _with_version(grid, tree.version), sources, entry)


@contextmanager
def _errors_of(version: Version) -> Iterator[None]:
    """Name the version in each InputError."""
    try:
        yield
    except InputError as error:
        raise InputError(f"in {version.description}: {error}") from None


def _with_version(grid: CheckedGrid, version: Version) -> CheckedGrid:
    """Return a version's grid with the version added to its settings' configs and names."""
    points: dict[str, CheckedPoint] = {}
    versioned: dict[str, Setting] = {}
    for name, point in grid.points.items():
        if VERSION in point.config.raw or VERSION in point.axes:
            raise InputError(f"the config defines '{VERSION}', a key that `ab` uses for its own axis: rename it")
        config = changed(point.config, **{VERSION: version.identity})
        axes = {**point.axes, VERSION: version.name}
        new_name = setting_name(config.raw)
        points[new_name] = replace(point, config=config, axes=axes)
        if (setting := grid.settings.get(name)) is not None:
            versioned[new_name] = Setting(name=new_name, axes=axes, config=config, unsupported=setting.unsupported)
    excluded = tuple(
        Excluded(axes={**excluded.axes, VERSION: version.name}, because=excluded.because) for excluded in grid.excluded
    )
    return replace(grid, points=points, settings=versioned, excluded=excluded)


def _config_differences(grids: Sequence[tuple[Version, CheckedGrid]]) -> list[str]:
    """Return a note for each version whose config differs from the first version's, with the first key that differs."""
    (first_version, first), *others = grids
    is_script = any(setting.config.entry is not None for setting in first.settings.values())
    where = "the script's config differs" if is_script else "conf/ differs"
    return [
        f"{where}: {key.removeprefix('entry.config.')} is {override_value(ours)} in {first_version.name} and "
        f"{override_value(theirs)} in {version.name}"
        for version, grid in others
        for key, ours, theirs in islice(_differing_keys(first, grid), 1)
    ]


def _differing_keys(first: CheckedGrid, other: CheckedGrid) -> Iterator[tuple[str, Any, Any]]:
    """Yield the keys that differ between two versions of a setting, with both values."""
    others = {axes_without_version(setting.axes): setting.config.raw for setting in other.settings.values()}
    for setting in first.settings.values():
        configs = (setting.config.raw, others.get(axes_without_version(setting.axes)))
        if configs[1] is None:
            continue
        for key in dict.fromkeys(key for config in configs for key in dotted_keys(config)):
            ours, theirs = (None if (value := look_up(config, key)) is MISSING else value for config in configs)
            is_group = isinstance(ours, dict) or isinstance(theirs, dict)
            if ours != theirs and not is_group and not key.startswith(f"{VERSION}."):
                yield key, ours, theirs


def _packages_in_tree(measured: Sequence[str], path: ImportPath, tree: Tree, folder: SweepFolder) -> tuple[str, ...]:
    """Return the packages of the `measured` targets that come from a version's tree.

    Raises InputError if the tree lacks one of the repository's packages, or if no package comes from the tree.
    """
    if not tree.checkout:
        return ()
    packages, here = sorted({target.partition(".")[0] for target in measured}), ImportPath.of_home(folder.home)
    in_tree = tuple(package for package in packages if is_user_package(path, package))
    for package in packages:
        if package not in in_tree and is_package_below(Path(tree.checkout), package, here):
            raise InputError(
                f"in {tree.version.description}: there is no module or package '{package}', although it exists in "
                f"{tree.checkout} now"
            )
    if not in_tree:
        raise InputError(
            f"no measured code is in the repository {tree.checkout}, so all versions would be identical: "
            f"{', '.join(sorted(set(measured)))} {'is' if len(set(measured)) == 1 else 'are'} installed elsewhere"
        )
    return in_tree
