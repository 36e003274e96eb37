"""Which code a sweep measures: digests of the packages that `_target_` names, found without importing them."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib import metadata
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Any

from accelsweep import __version__
from accelsweep.core.documents import sha256_text
from accelsweep.core.errors import InputError, nearest

OWN_WORKLOADS = "accelsweep.workloads"
SOURCE_SUFFIXES = frozenset({".py", ".pyx", ".c", ".cc", ".cpp", ".cu", ".cuh", ".h", ".hpp"})

_NAMED_BY_VERSION = ("torch", "lightning", "hydra-core", "snakemake")
_PLACES = ("model", "data", "optimizer")


def versions() -> dict[str, str]:
    """Return the installed versions of accelsweep and of what it stands on."""
    found = {"accelsweep": __version__}
    for name in _NAMED_BY_VERSION:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


def targets(config: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the dotted key and the value of every `_target_` below a config's model, data and optimizer."""
    for place in _PLACES:
        yield from _targets(config.get(place), place)


def _targets(value: Any, key: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        if isinstance(value.get("_target_"), str):
            yield f"{key}._target_", value["_target_"]
        for name, item in value.items():
            yield from _targets(item, f"{key}.{name}")
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _targets(item, f"{key}.{index}")


def source_digests(wanted: Iterable[tuple[str, str]], home: Path) -> dict[str, str]:
    """Return a digest of the source files of each top-level package among the `(key, target)` pairs `wanted`.

    `home` comes first on the path, as it does when a run starts. Packages that `versions` covers are left out, an
    installed distribution counts with its list of files and their hashes. Raises InputError for a package that is
    nowhere to be found.
    """
    digests: dict[str, str] = {}
    for key, target in wanted:
        package = target.partition(".")[0]
        if package in digests or package in _NAMED_BY_VERSION:
            continue
        if package == "accelsweep":
            digests[OWN_WORKLOADS] = _digest_of_folder(Path(__file__).resolve().parents[1] / "workloads")
            continue
        digests[package] = _digest(_find(package, key, target, home), package)
    return dict(sorted(digests.items()))


def _find(package: str, key: str, target: str, home: Path) -> ModuleSpec:
    path = [str(home), *(entry for entry in sys.path if entry)]
    spec = PathFinder.find_spec(package, path)
    if spec is None and package not in sys.builtin_module_names:
        near = nearest(package, [entry.stem for entry in home.iterdir() if entry.suffix == ".py" or entry.is_dir()])
        raise InputError(
            f"{key}={target}: there is no module or package '{package}'{near}, neither in {home} nor installed; "
            "`_target_` is package.module.Class"
        )
    return spec or ModuleSpec(package, None)


def _digest(spec: ModuleSpec, package: str) -> str:
    origin = Path(spec.origin) if spec.has_location and spec.origin else None
    folders = [Path(folder) for folder in spec.submodule_search_locations or ()]
    if any(part in ("site-packages", "dist-packages") for path in [origin, *folders] if path for part in path.parts):
        for distribution in _distributions().get(package, []):
            if record := metadata.distribution(distribution).read_text("RECORD"):
                return sha256_text("\n".join(sorted(line for line in record.splitlines() if ".py," in line)))
    if folders:
        return sha256_text("\n".join(_digest_of_folder(folder) for folder in folders))
    return hashlib.sha256(origin.read_bytes()).hexdigest() if origin else "built in"


@cache
def _distributions() -> Mapping[str, list[str]]:
    return metadata.packages_distributions()


def _digest_of_folder(folder: Path) -> str:
    """Return one digest of the names and contents of all source files below `folder`."""
    files = sorted(path for path in folder.rglob("*") if path.suffix in SOURCE_SUFFIXES and path.is_file())
    lines = [f"{path.relative_to(folder).as_posix()} {hashlib.sha256(path.read_bytes()).hexdigest()}" for path in files]
    return sha256_text("\n".join(lines))
