"""The existence of each `_target_`, read in the sources of the working directory. Nothing is imported.

A name is refused only where the source shows for certain that it is missing. A module that makes its names while it is
imported is left to the runs, and so is an installed one.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Iterator
from functools import cache, lru_cache
from importlib import metadata
from importlib.machinery import PathFinder
from pathlib import Path

from accelsweep.base.errors import InputError, nearest
from accelsweep.core.cells.config import CellConfig
from accelsweep.plan.code.import_path import ImportPath, in_installed
from accelsweep.plan.code.sources import find_package, places_of, stated_targets

_FORM = "`_target_` is package.module.Class"


def refuse_missing(configs: Iterable[CellConfig], path: ImportPath) -> None:
    """Raise InputError, naming the key, for a `_target_` that is no class's name, or whose class is not there.

    A grid has many settings and few classes: each is looked up once, because its sources are read for that.
    """
    stated = (pair for config in configs for pair in stated_targets(config))
    for key, target in {repr(pair): pair for pair in stated}.values():
        if not isinstance(target, str) or not all(part.isidentifier() for part in target.split(".")):
            raise InputError(f"{key}={'null' if target is None else target}: this names no class; {_FORM}")
        _look_up(key, target, path)


def _look_up(key: str, target: str, path: ImportPath) -> None:
    package, *parts = target.split(".")
    spec = find_package(package, path)
    if spec is None or not (places := places_of(spec)):
        return  # nowhere, which is said elsewhere, or built in
    ours = path.is_users(places[0])
    place = places[0]
    for part in parts:
        source = place / "__init__.py" if place.is_dir() else place
        names = _names(source, package)
        inner = _module_in(place, part)
        if part in (names or ()) or (names is None and not (inner and inner.is_dir() and part == parts[-1])):
            return
        if inner is None:
            if ours and source.suffix == ".py":
                known = sorted(names or ())
                raise InputError(f"{key}={target}: {source} has no '{part}'{nearest(part, known)}; {_FORM}")
            return
        place = inner
    raise InputError(f"{key}={target}: this is a module, not a class in it; {_FORM}")


def _module_in(place: Path, name: str) -> Path | None:
    """Return the folder or file of the module `name` in a package's folder; None where there is none."""
    if (place / name).is_dir():
        return place / name
    return next((path for path in place.glob(f"{name}.*") if path.suffix in (".py", ".so", ".pyd")), None)


def _names(source: Path, package: str) -> frozenset[str] | None:
    """Return the names that a module binds at its top, submodules apart; None where only importing it would tell."""
    return _bound_at_top(source.read_bytes(), package) if source.is_file() else frozenset()


@lru_cache(maxsize=64)  # every setting names the same few modules
def _bound_at_top(source: bytes, package: str) -> frozenset[str] | None:
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return None
    bound = set(_bound(tree.body, package))
    made = re.search(rb"\b(globals|vars|setattr|exec|sys\.modules)\b", source)
    return None if made or bound & {"*", "__getattr__"} else frozenset(bound)


def _bound(body: Iterable[ast.stmt], package: str) -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name
        elif isinstance(node, ast.Import):
            yield from ((alias.asname or alias.name).partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            if node.module is not None and (node.level or node.module != package):
                yield from (alias.asname or alias.name for alias in node.names)
        else:
            yield from _bound_by(node, package)


def _bound_by(node: ast.stmt, package: str) -> Iterator[str]:
    """Yield what an assignment, or a statement with statements in it, binds."""
    for child in ast.walk(node):
        if isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store):
            yield child.id
        elif isinstance(child, ast.stmt) and child is not node:
            yield from _bound([child], package)


_NEVER_IMPORTED = frozenset({"antigravity", "ensurepip", "idlelib", "lib2to3", "test", "this", "turtle", "turtledemo"})
"""Modules of Python's own library that no library imports: a user may call a file so."""

_OFTEN_PACKED = frozenset({"build", "docs", "example", "examples", "material", "test", "tests"})
"""Folders that some distribution or other installs by mistake, or that name a tool of ours alone."""


def refuse_shadows(home: Path) -> None:
    """Raise InputError for a module in `home` with the name of one that accelsweep or a library of its imports.

    A run has one module of a name: with ours the user's code would find the wrong one, and with the user's a library
    would, perhaps only when it is already measuring.
    """
    for path in sorted([*home.glob("*.py"), *(init.parent for init in home.glob("*/__init__.py"))]):
        name = path.stem
        standard = name in sys.stdlib_module_names and name not in _NEVER_IMPORTED
        if standard or name in ("accelsweep", "lightning", "torch") or _is_a_librarys(name, home):
            raise InputError(
                f"{path} has the name of a module that every run imports, and a run has one module of a name: rename it"
            )


def _is_a_librarys(name: str, home: Path) -> bool:
    """Return whether a distribution that accelsweep needs has installed a module of this name."""
    if name in _OFTEN_PACKED:
        return False
    elsewhere = [entry for entry in sys.path if entry and Path(entry).absolute() != home.absolute()]
    found = PathFinder.find_spec(name, elsewhere)
    if found is None or not found.origin or not in_installed(Path(found.origin)):
        return False
    return any(_canonical(each) in _needed() for each in metadata.packages_distributions().get(name, ()))


@cache
def _needed() -> frozenset[str]:
    """Return the distributions that accelsweep needs, those of its extras, and whatever these need in turn."""
    waiting, found = ["accelsweep"], set[str]()
    while waiting:
        name = waiting.pop()
        if _canonical(name) in found:
            continue
        found.add(_canonical(name))
        try:
            stated = metadata.requires(name) or ()
        except metadata.PackageNotFoundError:  # of an extra, or for another platform
            continue
        extras = name == "accelsweep"
        waiting += [re.split(r"[^\w.-]", line)[0] for line in stated if extras or "extra ==" not in line]
    return frozenset(found)


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
