"""Checks that each `_target_` exists and accepts its arguments, based on source code alone, without importing it.

A name or an argument is rejected only if the source proves that a run would fail. Modules that create names at import
time and installed modules are checked only in the runs.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cache, lru_cache
from importlib import metadata
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any, NamedTuple

from accelsweep.errors import InputError, nearest
from accelsweep.installation import in_installed
from accelsweep.planning.source_digests import ImportPath, distributions, package_spec, spec_paths, stated_targets
from accelsweep.run_config import LEARNING_RATE_KEYS, SettingConfig
from accelsweep.target_signature import OUR_PACKAGE, Arguments, refuse_arguments
from accelsweep.tasks import task_of

_FORM = "`_target_` is package.module.Class"

_OURS = OUR_PACKAGE.removesuffix(".")

_FIRST_OF_TORCH = {"torch.optim": "params", "torch.optim.lr_scheduler": "optimizer"}
"""The argument that can be supplied only by the code that builds an optimizer or a schedule."""

_MAX_DEPTH = 20
"""The maximum depth to which imports and base classes are followed."""


def refuse_missing_targets(configs: Iterable[SettingConfig], path: ImportPath) -> None:
    """Raise InputError, naming the key, for a `_target_` that is not a class name or whose class does not exist.

    A grid contains many settings but few classes, so each class is looked up only once.
    """
    stated = (pair for config in configs for pair in stated_targets(config))
    for key, target in {repr(pair): pair for pair in stated}.values():
        if not isinstance(target, str) or not all(part.isidentifier() for part in target.split(".")):
            raise InputError(f"{key}={'null' if target is None else target}: not the name of a class; {_FORM}")
        _look_up(key, target, path)


def _look_up(key: str, target: str, path: ImportPath) -> None:
    package, *parts = target.split(".")
    places = spec_paths(package_spec(package, path))
    if not places:
        return  # built-in, or not found, in which case `source_digests` reports it
    place, foreign = places[0], package != _OURS and not path.is_user_code(places[0])
    for number, part in enumerate(parts, start=1):
        submodule = _submodule(place, part)
        if foreign and submodule is not None and number < len(parts):
            place = submodule  # as in torch.optim.SGD, without parsing all of torch/__init__.py
            continue
        source = place / "__init__.py" if place.is_dir() else place
        names = _bound_names(source.read_bytes(), package) if source.is_file() else frozenset[str]()
        if names is None and package == _OURS:
            names = frozenset()  # accelsweep's lazily imported names are for notebooks
        if names is None:
            if not (submodule and submodule.is_dir() and number == len(parts)):
                return
        elif part in names:
            return
        if submodule is None:
            if source.suffix == ".py" and not foreign:
                hint = nearest(part, sorted(names or ()))
                raise InputError(f"{key}={target}: {source} has no '{part}'{hint}; {_FORM}")
            return
        place = submodule
    raise InputError(f"{key}={target}: this is a module, not a class in it; {_FORM}")


def _submodule(place: Path, name: str) -> Path | None:
    """Return the directory or file of the module `name` in a package's directory, if any."""
    if (place / name).is_dir():
        return place / name
    return next((path for path in place.glob(f"{name}.*") if path.suffix in (".py", ".so", ".pyd")), None)


_parsed = lru_cache(maxsize=64)(ast.parse)  # all settings refer to the same few modules


@lru_cache(maxsize=64)
def _bound_names(source: bytes, package: str) -> frozenset[str] | None:
    """Return the names that a module binds at top level, excluding submodules; None if only an import could tell."""
    try:
        tree = _parsed(source)
    except (SyntaxError, ValueError):
        return None
    names = set(_names_in(tree.body, package))
    dynamic = re.search(rb"\b(globals|vars|setattr|exec|sys\.modules)\b", source)
    return None if dynamic or names & {"*", "__getattr__"} else frozenset(names)


def _names_in(body: Iterable[ast.stmt], package: str) -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name
        elif isinstance(node, ast.Import):
            yield from ((alias.asname or alias.name).partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            if node.module is not None and (node.level or node.module != package):
                yield from (alias.asname or alias.name for alias in node.names)
        else:  # an assignment, or a compound statement
            for child in ast.walk(node):
                if isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store):
                    yield child.id
                elif isinstance(child, ast.stmt) and child is not node:
                    yield from _names_in([child], package)


def refuse_wrong_arguments(configs: Iterable[SettingConfig], path: ImportPath) -> None:
    """Raise InputError, naming the key, if a class does not accept an argument or a required argument is missing.

    Only argument names matter, so settings that differ only in values are checked once.
    """
    checked: set[str] = set()
    for config in configs:
        for built in _instantiations(config):
            names = sorted(map(str, built.given))
            signature = repr((built.key, built.given["_target_"], names, built.within, built.given.get("_partial_")))
            if signature not in checked:
                checked.add(signature)
                _check_arguments(built, path)


class _Instantiation(NamedTuple):
    """A `_target_` that a run instantiates: key, config, the target that receives it, and the arguments added to it."""

    key: str
    given: Mapping[str, Any]
    within: str | None = None
    added: tuple[str, ...] = ()


def _instantiations(config: SettingConfig) -> Iterator[_Instantiation]:
    if not task_of(config.task, config.raw).model_trains:
        yield from _with_nested("model", config.model, ("batch_size",) if config.data_from_module else ())
    data = {key: value for key, value in config.data.items() if key != "batch_size"}
    yield from _with_nested("data", data, ("batch_size", "seed", "device"))
    if config.optimizer:
        arguments = {key: value for key, value in config.optimizer.items() if key not in LEARNING_RATE_KEYS}
        yield from _with_nested("optimizer", {**arguments, "_partial_": True}, ())
    yield from _nested("trainer", config.trainer, "the Trainer")


def _with_nested(key: str, node: Mapping[str, Any], added: tuple[str, ...]) -> Iterator[_Instantiation]:
    target = node.get("_target_")
    if isinstance(target, str):
        yield _Instantiation(key, node, None, added)
        yield from _nested(key, node, target)


def _nested(key: str, node: Any, within: str) -> Iterator[_Instantiation]:
    if isinstance(node, dict):
        items: Iterable[tuple[Any, Any]] = node.items() if node.get("_recursive_", True) else ()
    else:
        items = enumerate(node) if isinstance(node, list | tuple) else ()
    for name, value in items:
        inner = within
        if isinstance(value, dict) and isinstance(target := value.get("_target_"), str):
            yield _Instantiation(f"{key}.{name}", value, within)
            inner = target
        if isinstance(value, dict | list | tuple):
            yield from _nested(f"{key}.{name}", value, inner)


def _check_arguments(built: _Instantiation, path: ImportPath) -> None:
    target = str(built.given["_target_"])
    takes = _arguments(target, path, _MAX_DEPTH)
    if takes is None:
        first = _FIRST_OF_TORCH.get(target.rpartition(".")[0])
        if first is None or built.within is None or first in built.given:
            return
        takes = Arguments(target, (first,), (first,), accepts_any=True)
    required = tuple(name for name in takes.required if name not in built.added)
    refuse_arguments(built.given, built.key, takes._replace(target=target, required=required), built.within)


def _arguments(target: str, path: ImportPath, depth: int) -> Arguments | None:
    """Return the arguments that the class or function `target` accepts; None if its source is inconclusive."""
    module = _defining_module(target, path, depth)
    return None if module is None else module.arguments(target.rpartition(".")[2], path, depth)


def _defining_module(target: str, path: ImportPath, depth: int) -> _Module | None:
    """Return the user or accelsweep module that binds the last part of `target` at top level."""
    package, *parts = target.split(".")
    places = spec_paths(package_spec(package, path)) if depth else []
    if not parts or not places or not (path.is_user_code(places[0]) or package == _OURS):
        return None
    place = places[0]
    for number, part in enumerate(parts):
        source = place / "__init__.py" if place.is_dir() else place
        names = _bound_names(source.read_bytes(), package) if source.suffix == ".py" and source.is_file() else None
        if part in (names or ()):
            name = ".".join([package, *parts[:number]])
            return _Module(source, name, place.is_dir(), package) if number == len(parts) - 1 else None
        submodule = _submodule(place, part)
        if submodule is None:
            return None
        place = submodule
    return None


_INERT = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Assign, ast.AnnAssign, ast.Expr, ast.Pass, ast.ClassDef)
"""Statements in a class body in which no `__init__` can be hidden, unlike in an `if` or a loop."""


class _Module(NamedTuple):
    """A module: its source, its dotted name, whether it is a package's `__init__.py`, and its top-level package."""

    source: Path
    name: str
    is_package: bool
    package: str

    def arguments(self, name: str, path: ImportPath, depth: int) -> Arguments | None:
        """Return the arguments that the class or function `name` in this module accepts; None if uncertain."""
        text = self.source.read_bytes()
        tree = _parsed(text)
        bindings = sum(bound == name for bound in _names_in(tree.body, self.package))
        if bindings != 1 or re.search(rb"__(init|new|signature)__\s*=", text):
            return None
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and node.name == name:
                return self._of_class(node, tree, path, depth)
            if isinstance(node, ast.FunctionDef) and node.name == name:
                return None if node.decorator_list else self._of_function(node, path, depth, skip=0)
        imported = self._imported(name, tree)
        return None if imported is None else _arguments(imported, path, depth - 1)

    def _of_class(self, node: ast.ClassDef, tree: ast.Module, path: ImportPath, depth: int) -> Arguments | None:
        methods = [child.name for child in node.body if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)]
        if node.decorator_list or node.keywords or "__new__" in methods or methods.count("__init__") > 1:
            return None
        for child in node.body:
            if isinstance(child, ast.FunctionDef) and child.name == "__init__":
                return None if child.decorator_list else self._of_function(child, path, depth, skip=1)
        if not all(isinstance(child, _INERT) for child in node.body) or len(node.bases) > 1:
            return None  # `__init__` may be inside an `if`, or in any of several base classes
        if not node.bases:
            return Arguments(node.name, (), (), accepts_any=False)
        base = self._dotted(node.bases[0], tree)
        return None if base is None else _arguments(base, path, depth - 1)

    def _of_function(self, node: ast.FunctionDef, path: ImportPath, depth: int, skip: int) -> Arguments | None:
        takes = node.args
        positional = [*takes.posonlyargs, *takes.args]
        if len(positional) < skip:
            return None  # def __init__(*args, ...)
        optional = {arg.arg for arg in positional[len(positional) - len(takes.defaults) :]}
        optional |= {
            arg.arg for arg, default in zip(takes.kwonlyargs, takes.kw_defaults, strict=True) if default is not None
        }
        names = [arg.arg for arg in [*positional[skip:], *takes.kwonlyargs]]
        required = tuple(name for name in names if name not in optional)
        unpacked = None if takes.kwarg is None else self._unpacked(takes.kwarg.annotation, path, depth)
        accepts_any = takes.kwarg is not None and unpacked is None
        return Arguments(node.name, (*names, *(unpacked or ())), required, accepts_any)

    def _unpacked(self, annotation: ast.expr | None, path: ImportPath, depth: int) -> tuple[str, ...] | None:
        """Return the keys of `**kwargs: Unpack[SomeTypedDict]`; None for any other annotation."""
        if not isinstance(annotation, ast.Subscript) or not isinstance(annotation.slice, ast.Name):
            return None
        unpacks = ast.unparse(annotation.value).rpartition(".")[2] == "Unpack"
        return self._typed_dict_keys(annotation.slice.id, path, depth) if unpacks else None

    def _typed_dict_keys(self, name: str, path: ImportPath, depth: int) -> tuple[str, ...] | None:
        """Return the keys of the TypedDict `name` defined in or imported into this module; None for anything else."""
        tree = _parsed(self.source.read_bytes())
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and node.name == name:
                keys = [ast.unparse(child.target) for child in node.body if isinstance(child, ast.AnnAssign)]
                is_typed_dict = [ast.unparse(base).rpartition(".")[2] for base in node.bases] == ["TypedDict"]
                return tuple(keys) if is_typed_dict else None
        imported = self._imported(name, tree)
        module = None if imported is None else _defining_module(imported, path, depth - 1)
        if imported is None or module is None:
            return None
        return module._typed_dict_keys(imported.rpartition(".")[2], path, depth - 1)

    def _dotted(self, node: ast.expr, tree: ast.Module) -> str | None:
        """Return the dotted name of a base class that is defined in or imported into this module."""
        head, *rest = ast.unparse(node).split(".")
        if not all(part.isidentifier() for part in (head, *rest)):
            return None
        if any(isinstance(child, ast.ClassDef) and child.name == head for child in tree.body):
            return ".".join([self.name, head, *rest])
        imported = self._imported(head, tree)
        return None if imported is None else ".".join([imported, *rest])

    def _imported(self, name: str, tree: ast.Module) -> str | None:
        """Return the dotted name that a top-level import in the module binds to `name`."""
        for node in tree.body:
            if isinstance(node, ast.Import):
                for alias in node.names:
                    if alias.asname == name:
                        return alias.name
                    root = alias.name.split(".")[0]
                    if alias.asname is None and name in (alias.name, root):
                        return root
            elif isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    if (alias.asname or alias.name) == name:
                        parent = self._imported_from(node)
                        return None if parent is None else ".".join(part for part in (parent, alias.name) if part)
        return None

    def _imported_from(self, node: ast.ImportFrom) -> str | None:
        """Return the absolute name of the module from which names are imported."""
        if not node.level:
            return node.module
        parts = self.name.split(".")
        up = node.level - 1 if self.is_package else node.level
        if up >= len(parts):
            return None
        return ".".join([*parts[: len(parts) - up], *([node.module] if node.module else [])])


_NEVER_IMPORTED = frozenset({"antigravity", "ensurepip", "idlelib", "lib2to3", "test", "this", "turtle", "turtledemo"})
"""Standard library modules that no library imports, so that user files may share their names."""

_OFTEN_PACKAGED = frozenset({"build", "docs", "example", "examples", "material", "test", "tests"})
"""Top-level folders that some distributions install by mistake, or that are named after a development tool."""


def refuse_shadows(home: Path) -> None:
    """Raise InputError for a module in `home` that shares its name with accelsweep or one of its libraries.

    A run can import only one module of a given name, so either the user's code or a library would import the wrong one,
    possibly not until measurement has started.
    """
    for path in sorted([*home.glob("*.py"), *(init.parent for init in home.glob("*/__init__.py"))]):
        name = path.stem
        in_stdlib = name in sys.stdlib_module_names and name not in _NEVER_IMPORTED
        if in_stdlib or name in ("accelsweep", "lightning", "torch") or _is_from_dependency(name, home):
            raise InputError(
                f"{path} has the name of a module that every run imports, and a run can import only one: rename it"
            )


def _is_from_dependency(name: str, home: Path) -> bool:
    """Return whether a module with this name was installed by a distribution that accelsweep requires."""
    if name in _OFTEN_PACKAGED:
        return False
    elsewhere = [entry for entry in sys.path if entry and Path(entry).absolute() != home.absolute()]
    spec = PathFinder.find_spec(name, elsewhere)
    if spec is None or not spec.origin or not in_installed(Path(spec.origin)):
        return False
    return any(_canonical(each) in _dependencies() for each in distributions().get(name, ()))


@cache
def _dependencies() -> frozenset[str]:
    """Return the distributions that accelsweep and its extras require, directly or indirectly."""
    pending, dependencies = ["accelsweep"], set[str]()
    while pending:
        name = pending.pop()
        if _canonical(name) in dependencies:
            continue
        dependencies.add(_canonical(name))
        try:
            requirements = metadata.requires(name) or ()
        except metadata.PackageNotFoundError:  # required only by an extra or on another platform
            continue
        with_extras = name == "accelsweep"
        pending += [re.split(r"[^\w.-]", line)[0] for line in requirements if with_extras or "extra ==" not in line]
    return frozenset(dependencies)


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
