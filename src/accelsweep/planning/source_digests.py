"""The code that a sweep measures: digests of the `_target_`s, found without importing any of them.

Modules in the working directory are followed further, because they often import each other. Imports by name at run time
are not seen.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import metadata
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Any

from accelsweep import registry
from accelsweep.config.versions import Tree
from accelsweep.errors import InputError, nearest
from accelsweep.installation import __version__, in_installed
from accelsweep.plain_json import sha256_text
from accelsweep.records.layout import SweepFolder
from accelsweep.run_config import SettingConfig
from accelsweep.tasks import task_of

# The origin of a run's modules: the working directory, or the tree of a version in the place of a checkout.


@dataclass(frozen=True)
class ImportPath:
    """The user's `folders`, which come first, and the folders of the interpreter's own path that follow.

    `tree` is what a version's modules must lie in; None where the working directory is read.
    """

    folders: tuple[Path, ...]
    rest: tuple[str, ...]
    tree: Path | None = None

    @classmethod
    def of_home(cls, home: Path) -> ImportPath:
        """Return the path of a run in the working directory `home`."""
        return cls((home,), tuple(entry for entry in sys.path if entry))

    @classmethod
    def of_tree(cls, tree: Path, checkout: Path, place: str, path: Iterable[str] | None = None) -> ImportPath:
        """Return the path of a run of the version in `tree`, which replaces the repository `checkout`.

        `place` is the working directory below both. `path` is the interpreter's path, by default this one's.
        """
        entries = [Path(entry or os.curdir).absolute() for entry in (sys.path if path is None else path)]
        replaced = [entry for entry in entries if _is_replaced(entry, checkout, tree)]
        own = [tree / entry.relative_to(checkout) for entry in replaced]
        usual = [tree / place, tree / place / "src", *own]
        rest = tuple(str(entry) for entry in entries if entry not in replaced)
        return cls(tuple(folder for folder in dict.fromkeys(usual) if folder.is_dir()), rest, tree)

    @property
    def entries(self) -> list[str]:
        """All entries in order."""
        return [*map(str, self.folders), *self.rest]

    def is_users(self, place: Path) -> bool:
        """Return whether a module's file or folder lies in one of the user's folders, and pip did not put it there."""
        return any(folder in place.parents for folder in self.folders) and not in_installed(self._below(place))

    def _below(self, place: Path) -> Path:
        return next((place.relative_to(folder) for folder in self.folders if folder in place.parents), place)


def _is_replaced(entry: Path, checkout: Path, tree: Path) -> bool:
    inside = entry == checkout or checkout in entry.parents
    return inside and not in_installed(entry.relative_to(checkout)) and not (entry == tree or tree in entry.parents)


def version_import_path(folder: SweepFolder, known: Tree) -> ImportPath:
    """Return the path of the runs of a version whose tree lies in the sweep's folder."""
    if not known.checkout:
        return ImportPath.of_home(folder.home)
    return ImportPath.of_tree(folder.version(known.version.id), Path(known.checkout), known.place)


WORKLOADS_PACKAGE = "accelsweep.workloads"

WORKLOADS = Path(__file__).resolve().parents[1] / "workloads"
"""The folder of our own models and data."""

_FEATURES = "accelsweep.features."

SOURCE_SUFFIXES = frozenset({".py", ".pyx", ".c", ".cc", ".cpp", ".cu", ".cuh", ".h", ".hpp"})

_NAMED_BY_VERSION = ("torch", "lightning", "hydra-core", "snakemake")


def core_versions() -> dict[str, str]:
    """Return the installed versions of accelsweep and of its foundations."""
    found = {"accelsweep": __version__}
    for name in _NAMED_BY_VERSION:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


def measured_targets(config: SettingConfig) -> Iterator[tuple[str, str]]:
    """Yield the dotted key and the value of every text under `_target_`, and what else decides what is measured.

    That is the module of a task that a feature brings, and the library behind a class of ours.
    """
    yield from ((key, target) for key, target in stated_targets(config) if isinstance(target, str))
    task = task_of(config.task, config.raw)
    if any(task in feature.tasks for feature in registry.features()):
        yield "task", task.target.replace(":", ".")
    module = registry.load(task.version_of)(config) if task.version_of is not None else None
    if module is not None and importlib.util.find_spec(module):
        yield "model._target_", module


def stated_targets(config: SettingConfig) -> Iterator[tuple[str, Any]]:
    """Yield the dotted key and the value, whatever it is, of every `_target_` below what is a user's to state."""
    places = {"model": config.model, "data": config.data, "optimizer": config.optimizer, "trainer": config.trainer}
    for key, value in places.items():
        yield from _stated(value or {}, key)


def _stated(value: Mapping[str, Any] | Sequence[Any], key: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping) and "_target_" in value:
        yield f"{key}._target_", value["_target_"]
    items = value.items() if isinstance(value, Mapping) else enumerate(value)
    for name, item in items:
        if isinstance(item, Mapping | list | tuple):
            yield from _stated(item, f"{key}.{name}")


def source_digests(wanted: Iterable[tuple[str, str]], path: ImportPath) -> dict[str, str]:
    """Return a digest of the source files of each top-level package among the `(key, target)` pairs `wanted`.

    The user's folders come first on the path, as they do when a run starts. Modules there that those import have
    entries of their own. Packages that `versions` covers are left out. Of accelsweep itself our workloads and the
    measured features count. An installed distribution counts with its list of files and their hashes. Raises
    InputError for a package that is nowhere to be found.
    """
    digests: dict[str, str] = {}
    waiting = list(wanted)
    while waiting:
        key, target = waiting.pop()
        package = target.partition(".")[0]
        if package in digests or package in _NAMED_BY_VERSION:
            continue
        if package == "accelsweep" and not is_user_package(path, package):
            digests[WORKLOADS_PACKAGE] = _digest_of_folder(WORKLOADS)
            if target.startswith(_FEATURES):
                name = target.removeprefix(_FEATURES).partition(".")[0]
                digests[_FEATURES + name] = _digest_of_folder(WORKLOADS.with_name("features") / name)
            continue
        spec = _find(package, key, target, path)
        digests[package] = _digest(spec, package)
        waiting += [(f"import in {package}", name) for name in _imported_from(path, spec)]
    return dict(sorted(digests.items()))


def _find(package: str, key: str, target: str, path: ImportPath) -> ModuleSpec:
    spec = package_spec(package, path)
    if spec is None and package not in sys.builtin_module_names:
        home = path.folders[0]
        near = nearest(package, [entry.stem for entry in home.iterdir() if entry.suffix == ".py" or entry.is_dir()])
        raise InputError(
            f"{key}={target}: there is no module or package '{package}'{near}, neither in {home} nor installed; "
            "`_target_` is package.module.Class"
        )
    return spec or ModuleSpec(package, None)


def is_user_package(path: ImportPath, package: str) -> bool:
    """Return whether a package, or that of a module, lies in one of the user's folders."""
    spec = package_spec(package.partition(".")[0], path)
    return spec is not None and any(map(path.is_users, spec_paths(spec)))


def is_package_below(folder: Path, package: str, path: ImportPath) -> bool:
    """Return whether a package lies below `folder`, where pip did not put it."""
    spec = package_spec(package, path)
    places = spec_paths(spec) if spec is not None else []
    return any(folder in place.parents and not in_installed(place.relative_to(folder)) for place in places)


def package_spec(package: str, path: ImportPath) -> ModuleSpec | None:
    """Return where a package lies, also one whose editable installation brings a finder of its own."""
    found = PathFinder.find_spec(package, path.entries)
    others = (finder for finder in sys.meta_path if finder is not PathFinder and hasattr(finder, "find_spec"))
    return found or next(filter(None, (finder.find_spec(package, None) for finder in others)), None)


def _imported_from(path: ImportPath, spec: ModuleSpec) -> list[str]:
    """Return the user's modules and packages that the sources of a package import, in order."""
    if is_installed(spec):
        return []
    texts = (source.read_bytes() for source in _source_files(spec) if source.suffix == ".py")
    return [name for name in sorted(set().union(*map(_imports, texts))) if _lies_in(path, name)]


def _lies_in(path: ImportPath, name: str) -> bool:
    if not any((folder / f"{name}.py").exists() or (folder / name).is_dir() for folder in path.folders):
        return False
    spec = package_spec(name, path)
    return spec is not None and any(map(path.is_users, spec_paths(spec))) and not is_installed(spec)


@lru_cache(maxsize=4096)
def _imports(source: bytes) -> frozenset[str]:
    """Return the top-level names that a module imports absolutely; none for an unreadable module."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return frozenset()
    names = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    froms = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and not node.level]
    names += [node.module for node in froms if node.module]
    return frozenset(name.partition(".")[0] for name in names)


def _digest(spec: ModuleSpec, package: str) -> str:
    if is_installed(spec):
        for distribution in _distributions().get(package, []):
            if record := metadata.distribution(distribution).read_text("RECORD"):
                return sha256_text("\n".join(sorted(line for line in record.splitlines() if ".py," in line)))
    if spec.submodule_search_locations:
        return sha256_text("\n".join(_digest_of_folder(folder) for folder in spec_paths(spec)))
    return hashlib.sha256(spec_paths(spec)[0].read_bytes()).hexdigest() if spec_paths(spec) else "built in"


def spec_paths(spec: ModuleSpec) -> list[Path]:
    """Return the folders of a package, the file of a module, or nothing if it has neither."""
    if spec.submodule_search_locations:
        return [Path(folder) for folder in spec.submodule_search_locations]
    return [Path(spec.origin)] if spec.has_location and spec.origin else []


def is_installed(spec: ModuleSpec) -> bool:
    """Return whether a package lies among those that pip installed."""
    return any(map(in_installed, spec_paths(spec)))


@cache
def _distributions() -> Mapping[str, list[str]]:
    return metadata.packages_distributions()


def _source_files(spec: ModuleSpec) -> list[Path]:
    return [path for place in spec_paths(spec) for path in (_below(place) if place.is_dir() else [place])]


def _below(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.suffix in SOURCE_SUFFIXES and path.is_file())


def _digest_of_folder(folder: Path) -> str:
    """Return one digest of the names and contents of all source files below `folder`."""
    lines = [
        f"{path.relative_to(folder).as_posix()} {hashlib.sha256(path.read_bytes()).hexdigest()}"
        for path in _below(folder)
    ]
    return sha256_text("\n".join(lines))
