"""The grid of a sweep that compares versions: each version's own `conf/` and modules, as one more axis."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from accelsweep.config.grid import CheckedPoint
from accelsweep.config.hydra import Composer
from accelsweep.config.hydra_errors import dotted_keys
from accelsweep.config.schema import changed
from accelsweep.config.setting import Setting, override_value, setting_name
from accelsweep.config.versions import Tree, Version
from accelsweep.errors import InputError
from accelsweep.plain_json import MISSING, canonical_json, look_up
from accelsweep.planning import target_check
from accelsweep.planning.checked_grid import CheckedGrid, VersionedGrid, checked_grid
from accelsweep.planning.source_digests import (
    ImportPath,
    is_package_below,
    is_user_package,
    measured_targets,
    source_digests,
    version_import_path,
)
from accelsweep.records.layout import SweepFolder
from accelsweep.records.plan import Excluded, axes_without_version
from accelsweep.run_config import VERSION


def versioned_grid(folder: SweepFolder, trees: Sequence[Tree], overrides: Sequence[str]) -> VersionedGrid:
    """Return the settings of these overrides in every version, the first version of a setting first.

    Keys that steer the sweep are taken from the last version, because that is the one in question. Raises InputError
    for anything that is wrong with one of them, and where none of the measured modules comes from a version.
    """
    grids = [(tree.version, _of_version(folder, tree, overrides)) for tree in trees]
    axes = {canonical_json(grid.axes): grid.axes for _, grid in grids}
    if len(axes) > 1:
        listed = "; ".join(f"{version.description}: {', '.join(grid.axes) or 'none'}" for version, grid in grids)
        raise InputError(f"the versions sweep different axes ({listed}): state them as overrides")
    last = grids[-1][1]
    merged = replace(
        last,
        axes=(*last.axes, VERSION),
        points={name: point for _, grid in grids for name, point in grid.points.items()},
        settings={setting.name: setting for setting in _side_by_side([grid.settings.values() for _, grid in grids])},
        excluded=tuple(excluded for _, grid in grids for excluded in grid.excluded),
        notes=(*dict.fromkeys(note for _, grid in grids for note in grid.notes), *_differences(grids)),
    )
    paths = {tree.version.id: version_import_path(folder, tree) for tree in trees}
    kept = tuple(
        tree.model_copy(
            update={"packages": _own_packages(grid.settings.values(), paths[tree.version.id], tree, folder)}
        )
        for tree, (_, grid) in zip(trees, grids, strict=True)
    )
    sources = {
        f"{package} of {version.name}": digest
        for version, grid in grids
        for package, digest in _sources(grid.settings.values(), paths[version.id]).items()
    }
    return VersionedGrid(merged, sources, kept)


def _of_version(folder: SweepFolder, tree: Tree, overrides: Sequence[str]) -> CheckedGrid:
    """Return the grid of one version, its settings named with the version."""
    path = version_import_path(folder, tree)
    home = folder.version(tree.version.id) / tree.place if tree.checkout else folder.home
    try:
        target_check.refuse_shadows(home)
        grid = checked_grid(Composer.of(home, overrides), overrides, folder.home)
        configs = [setting.config for setting in grid.settings.values()]
        target_check.refuse_missing_targets(configs, path)
        target_check.refuse_wrong_arguments(
            (setting.config for setting in grid.settings.values() if not setting.unsupported), path
        )
    except InputError as error:
        raise InputError(f"in {tree.version.description}: {error}") from None
    points = {name: _with_version(point, tree.version) for name, point in grid.points.items()}
    named = {name: setting_name(point.config.raw) for name, point in points.items()}
    return replace(
        grid,
        points={named[name]: point for name, point in points.items()},
        settings={
            named[name]: Setting(
                name=named[name], axes=points[name].axes, config=points[name].config, unsupported=setting.unsupported
            )
            for name, setting in grid.settings.items()
        },
        excluded=tuple(
            Excluded(axes={**one.axes, VERSION: tree.version.name}, because=one.because) for one in grid.excluded
        ),
    )


def _with_version(point: CheckedPoint, version: Version) -> CheckedPoint:
    if VERSION in point.config.raw or VERSION in point.axes:
        raise InputError(f"the config has a key '{VERSION}' of its own, which is the axis of `ab`: rename it")
    config = changed(point.config, **{VERSION: version.identity})
    return replace(point, config=config, axes={**point.axes, VERSION: version.name})


def _differences(grids: Sequence[tuple[Version, CheckedGrid]]) -> list[str]:
    """Return a note for each version whose configs are not those of the first, with the first such key."""
    first, *others = grids
    return [
        f"conf/ differs: {key} is {override_value(ours)} in {first[0].name} and "
        f"{override_value(theirs)} in {version.name}"
        for version, grid in others
        for key, ours, theirs in list(_changed(first[1], grid))[:1]
    ]


def _changed(first: CheckedGrid, other: CheckedGrid) -> Iterator[tuple[str, Any, Any]]:
    """Yield the keys whose values two versions configure differently, with both values."""
    theirs = {axes_without_version(setting.axes): setting.config.raw for setting in other.settings.values()}
    for setting in first.settings.values():
        ours, now = setting.config.raw, theirs.get(axes_without_version(setting.axes), {})
        for key in dict.fromkeys([*dotted_keys(ours), *dotted_keys(now)]) if now else ():
            pair = tuple(None if (found := look_up(one, key)) is MISSING else found for one in (ours, now))
            if (
                pair[0] != pair[1]
                and not any(isinstance(one, dict) for one in pair)
                and not key.startswith(f"{VERSION}.")
            ):
                yield key, pair[0], pair[1]


def _own_packages(settings: Iterable[Setting], path: ImportPath, tree: Tree, folder: SweepFolder) -> tuple[str, ...]:
    """Return the measured packages that come from a version's tree.

    Raises InputError where the repository has one that the tree lacks, and where all of them come from elsewhere.
    """
    if not tree.checkout:
        return ()
    named = sorted({target for setting in settings for _, target in measured_targets(setting.config)})
    packages, here = sorted({target.partition(".")[0] for target in named}), ImportPath.of_home(folder.home)
    found = tuple(package for package in packages if is_user_package(path, package))
    lost = [
        package for package in packages if package not in found and is_package_below(Path(tree.checkout), package, here)
    ]
    if lost:
        raise InputError(
            f"in {tree.version.description}: there is no module or package '{lost[0]}', though "
            f"{tree.checkout} has it now"
        )
    if not found:
        raise InputError(
            f"nothing that is measured lies in the repository {tree.checkout}, so all versions would be equal: "
            f"{', '.join(named)} {'is' if len(named) == 1 else 'are'} installed elsewhere"
        )
    return found


def _side_by_side(each: Sequence[Iterable[Setting]]) -> list[Setting]:
    """Return the settings in the first version's order, the versions of each one after another."""
    found: dict[str, list[Setting]] = {}
    for settings in each:
        for setting in settings:
            found.setdefault(axes_without_version(setting.axes), []).append(setting)
    return [setting for settings in found.values() for setting in settings]


def _sources(settings: Iterable[Setting], path: ImportPath) -> dict[str, str]:
    return source_digests(sorted({pair for setting in settings for pair in measured_targets(setting.config)}), path)
