"""Computes digests of the code that a sweep measures: the packages of its `_target_`s, located without importing them.

Imports in the user's modules are followed to other user modules. Dynamic imports at run time are not detected.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import os
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import metadata
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Any

from accelsweep import registry
from accelsweep.config.setting import Setting
from accelsweep.config.versions import Tree
from accelsweep.errors import InputError, nearest
from accelsweep.installation import __version__, in_installed
from accelsweep.plain_json import sha256_text
from accelsweep.records.layout import SweepFolder
from accelsweep.run_config import EntryPoint, SettingConfig
from accelsweep.tasks import task_of

WORKLOADS_PACKAGE = "accelsweep.workloads"

WORKLOADS = Path(__file__).resolve().parents[1] / "workloads"
"""The directory of the built-in models and data sets."""

_FEATURES = "accelsweep.features."

_SOURCE_SUFFIXES = frozenset({".py", ".pyx", ".c", ".cc", ".cpp", ".cu", ".cuh", ".h", ".hpp"})

_BY_VERSION = ("torch", "lightning", "hydra-core", "snakemake")
"""Distributions identified by version instead of a digest."""


@dataclass(frozen=True)
class ImportPath:
    """A run's import path: the user's `folders`, followed by the interpreter's own entries (`rest`).

    `tree` is the directory that must contain a version's modules; None if the working directory is measured.
    """

    folders: tuple[Path, ...]
    rest: tuple[str, ...]
    tree: Path | None = None

    @classmethod
    def of_home(cls, home: Path) -> ImportPath:
        """Return the import path of a run in the working directory `home`."""
        return cls((home,), tuple(entry for entry in sys.path if entry))

    @classmethod
    def of_tree(cls, tree: Path, checkout: Path, place: str) -> ImportPath:
        """Return the import path of a run of the version in `tree`, which replaces the repository `checkout`.

        `place` is the working directory relative to both.
        """
        entries = [Path(entry or os.curdir).absolute() for entry in sys.path]
        replaced = [
            entry
            for entry in entries
            if _is_within(entry, checkout)
            and not in_installed(entry.relative_to(checkout))
            and not _is_within(entry, tree)
        ]
        folders = [tree / place, tree / place / "src", *(tree / entry.relative_to(checkout) for entry in replaced)]
        rest = tuple(str(entry) for entry in entries if entry not in replaced)
        return cls(tuple(folder for folder in dict.fromkeys(folders) if folder.is_dir()), rest, tree)

    @property
    def entries(self) -> list[str]:
        """All entries, in order."""
        return [*map(str, self.folders), *self.rest]

    def is_user_code(self, path: Path) -> bool:
        """Return whether a module's file or directory is in a user folder and was not installed there by pip."""
        folder = next((folder for folder in self.folders if folder in path.parents), None)
        return folder is not None and not in_installed(path.relative_to(folder))


def _is_within(path: Path, folder: Path) -> bool:
    return path == folder or folder in path.parents


def version_import_path(folder: SweepFolder, tree: Tree) -> ImportPath:
    """Return the import path for runs of a version whose tree is in the sweep's folder."""
    if not tree.checkout:
        return ImportPath.of_home(folder.home)
    return ImportPath.of_tree(folder.version(tree.version.id), Path(tree.checkout), tree.place)


def core_versions() -> dict[str, str]:
    """Return the installed versions of accelsweep and of the distributions identified by version."""
    versions = {"accelsweep": __version__}
    for name in _BY_VERSION:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = "not installed"
    return versions


def differing_in_code(settings: Iterable[Setting]) -> list[Setting]:
    """Return the first of the settings for each combination of parts that decides about their code, in order.

    These are the parts that may contain a `_target_`, the task, and whether the setting can run. Settings of a grid
    share the parts in which they agree, so few differ.
    """
    first: dict[tuple[object, ...], Setting] = {}
    for setting in settings:
        config = setting.config
        task = task_of(config.task, config.raw)
        parts = (config.model, config.data, config.optimizer, config.trainer, task)
        own = id(config) if task.version_of is not None else None  # may depend on anything in the config
        first.setdefault((*map(id, parts), own, setting.unsupported is None), setting)
    return list(first.values())


def measured_targets(config: SettingConfig) -> Iterator[tuple[str, str]]:
    """Yield the dotted key and value of each `_target_`, and of other modules that determine what is measured.

    Such other modules are those of features' tasks and the libraries behind accelsweep's own classes.
    """
    yield from ((key, target) for key, target in stated_targets(config) if isinstance(target, str))
    task = task_of(config.task, config.raw)
    if any(task in feature.tasks for feature in registry.features()):
        yield "task", task.target.replace(":", ".")
    module = registry.load(task.version_of)(config) if task.version_of is not None else None
    if module is not None and importlib.util.find_spec(module):
        yield "model._target_", module


def stated_targets(config: SettingConfig) -> Iterator[tuple[str, Any]]:
    """Yield the dotted key and value (of any type) of each `_target_` in the parts of a config that may contain one."""
    parts = {"model": config.model, "data": config.data, "optimizer": config.optimizer, "trainer": config.trainer}
    for key, value in parts.items():
        yield from _targets_in(value or {}, key)


def _targets_in(value: Mapping[str, Any] | Sequence[Any], key: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and "_target_" in value:
        yield f"{key}._target_", value["_target_"]
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for name, item in items:
        if isinstance(item, dict | list | tuple):
            yield from _targets_in(item, f"{key}.{name}")


def source_digests(targets: Iterable[tuple[str, str]], path: ImportPath) -> dict[str, str]:
    """Return a digest of the source files for each top-level package among the `(key, target)` pairs.

    The user's folders come first on the path, as in a run. User modules imported by these packages are listed as
    separate entries. For accelsweep itself, only the workloads and the measured features are hashed. An installed
    distribution is represented by its list of files and their hashes. Raises InputError if a package is not found.
    """
    digests: dict[str, str] = {}
    pending = list(targets)
    while pending:
        key, target = pending.pop()
        package = target.partition(".")[0]
        if package in digests or package in _BY_VERSION:
            continue
        if package == "accelsweep" and not is_user_package(path, package):
            digests[WORKLOADS_PACKAGE] = _folder_digest(WORKLOADS)
            if target.startswith(_FEATURES):
                name = target.removeprefix(_FEATURES).partition(".")[0]
                digests[_FEATURES + name] = _folder_digest(WORKLOADS.with_name("features") / name)
            continue
        spec = _required_spec(package, key, target, path)
        digests[package] = _digest(spec, package)
        pending += [(f"import in {package}", name) for name in _imported_user_packages(path, spec)]
    return dict(sorted(digests.items()))


def entry_digests(home: Path, entry: EntryPoint) -> dict[str, str]:
    """Return a digest of the user's training script in `home` and of each of the user's packages that it imports.

    Returns {} if the script does not exist.
    """
    script = script_file(home, entry.command)
    if script is None:
        return {}
    path = ImportPath(tuple(dict.fromkeys((script.parent, home, home / "src"))), ())
    digests = {script.name: hashlib.sha256(script.read_bytes()).hexdigest()}
    pending = [name for name in sorted(_imports(script.read_bytes())) if _is_user_module(path, name)]
    while pending:
        package = pending.pop()
        spec = package_spec(package, path)
        if package in digests or spec is None:
            continue
        digests[package] = _digest(spec, package)
        pending += _imported_user_packages(path, spec)
    return dict(sorted(digests.items()))


def script_file(home: Path, command: Sequence[str]) -> Path | None:
    """Return the file of a training script, given its path or `-m` and a module; None if there is none."""
    if command[0] != "-m":
        candidates = [home / command[0]]
    else:
        parts = command[1].split(".")
        folders = (home, home / "src")
        candidates = [folder.joinpath(*parts, "__main__.py") for folder in folders]
        candidates += [folder.joinpath(*parts).with_suffix(".py") for folder in folders]
    return next((candidate for candidate in candidates if candidate.is_file()), None)


def _required_spec(package: str, key: str, target: str, path: ImportPath) -> ModuleSpec:
    spec = package_spec(package, path)
    if spec is None and package not in sys.builtin_module_names:
        home = path.folders[0]
        hint = nearest(package, [entry.stem for entry in home.iterdir() if entry.suffix == ".py" or entry.is_dir()])
        raise InputError(
            f"{key}={target}: there is no module or package '{package}'{hint}, neither in {home} nor installed; "
            "`_target_` is package.module.Class"
        )
    return spec or ModuleSpec(package, None)


def package_spec(package: str, path: ImportPath) -> ModuleSpec | None:
    """Locate a package, even if its editable installation uses a custom finder."""
    spec = PathFinder.find_spec(package, path.entries)
    others = (finder for finder in sys.meta_path if finder is not PathFinder and hasattr(finder, "find_spec"))
    return spec or next(filter(None, (finder.find_spec(package, None) for finder in others)), None)


def spec_paths(spec: ModuleSpec | None) -> list[Path]:
    """Return a package's directories or a module's file; empty if there are none."""
    if spec is None:
        return []
    if spec.submodule_search_locations:
        return [Path(folder) for folder in spec.submodule_search_locations]
    return [Path(spec.origin)] if spec.has_location and spec.origin else []


def is_user_package(path: ImportPath, name: str) -> bool:
    """Return whether a package, or a module's package, is in one of the user's folders."""
    return any(map(path.is_user_code, spec_paths(package_spec(name.partition(".")[0], path))))


def is_package_below(folder: Path, package: str, path: ImportPath) -> bool:
    """Return whether a package is under `folder` and was not installed there by pip."""
    places = spec_paths(package_spec(package, path))
    return any(folder in place.parents and not in_installed(place.relative_to(folder)) for place in places)


def _is_installed(spec: ModuleSpec) -> bool:
    return any(map(in_installed, spec_paths(spec)))


def _imported_user_packages(path: ImportPath, spec: ModuleSpec) -> list[str]:
    """Return, sorted, the user's modules and packages that a package's sources import."""
    if _is_installed(spec):
        return []
    names = set().union(*(_imports(file.read_bytes()) for file in _source_files(spec_paths(spec), {".py"})))
    return [name for name in sorted(names) if _is_user_module(path, name)]


def _is_user_module(path: ImportPath, name: str) -> bool:
    if not any((folder / f"{name}.py").exists() or (folder / name).is_dir() for folder in path.folders):
        return False  # cheaper than searching the whole path
    spec = package_spec(name, path)
    return spec is not None and any(map(path.is_user_code, spec_paths(spec))) and not _is_installed(spec)


def imported_packages(file: Path) -> frozenset[str]:
    """Return the top-level packages that a file imports."""
    return _imports(file.read_bytes())


@lru_cache(maxsize=4096)
def _imports(source: bytes) -> frozenset[str]:
    """Return the top-level names in a module's absolute imports; empty if the module cannot be parsed."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return frozenset()
    names: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            names.append(node.module)
    return frozenset(name.partition(".")[0] for name in names)


def _digest(spec: ModuleSpec, package: str) -> str:
    if _is_installed(spec):
        for distribution in distributions().get(package, []):
            if record := metadata.distribution(distribution).read_text("RECORD"):
                return sha256_text("\n".join(sorted(line for line in record.splitlines() if ".py," in line)))
    paths = spec_paths(spec)
    if spec.submodule_search_locations:
        return sha256_text("\n".join(map(_folder_digest, paths)))
    return hashlib.sha256(paths[0].read_bytes()).hexdigest() if paths else "built in"


@cache
def distributions() -> Mapping[str, list[str]]:
    """Return the installed distributions that provide each top-level module. Kept, because finding them is slow."""
    return metadata.packages_distributions()


def _source_files(places: Iterable[Path], suffixes: Collection[str] = _SOURCE_SUFFIXES) -> Iterator[Path]:
    for place in places:
        files = sorted(place.rglob("*")) if place.is_dir() else [place]
        yield from (file for file in files if file.suffix in suffixes and file.is_file())


def _folder_digest(folder: Path) -> str:
    """Return a single digest of the names and contents of all source files under `folder`."""
    lines = [
        f"{file.relative_to(folder).as_posix()} {hashlib.sha256(file.read_bytes()).hexdigest()}"
        for file in _source_files([folder])
    ]
    return sha256_text("\n".join(lines))
