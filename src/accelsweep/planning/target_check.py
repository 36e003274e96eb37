"""The existence of each `_target_` and its arguments, read in the sources of the user's and ours. Nothing is imported.

A name or an argument is refused only where the source shows for certain that a run would refuse it. A module that makes
its names while it is imported is left to the runs, and so is an installed one.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from importlib import metadata
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any, NamedTuple

from hydra.core.override_parser.types import Override, OverrideType
from omegaconf import DictConfig, OmegaConf

from accelsweep.config.hydra import Composer
from accelsweep.errors import InputError, nearest
from accelsweep.installation import in_installed
from accelsweep.planning.source_digests import ImportPath, package_spec, spec_paths, stated_targets
from accelsweep.run_config import LEARNING_RATE_KEYS, SettingConfig
from accelsweep.target_signature import OUR_PACKAGE, Arguments, refuse_arguments
from accelsweep.tasks import task_of

_FORM = "`_target_` is package.module.Class"

_OURS = OUR_PACKAGE.removesuffix(".")


def refuse_missing_targets(configs: Iterable[SettingConfig], path: ImportPath) -> None:
    """Raise InputError, naming the key, for a `_target_` that is no class's name, or whose class is not there.

    A grid has many settings and few classes: each is looked up once, because its sources are read for that.
    """
    stated = (pair for config in configs for pair in stated_targets(config))
    for key, target in {repr(pair): pair for pair in stated}.values():
        if not isinstance(target, str) or not all(part.isidentifier() for part in target.split(".")):
            raise InputError(f"{key}={'null' if target is None else target}: this names no class; {_FORM}")
        _look_up(key, target, path)


def refuse_wrong_arguments(configs: Iterable[SettingConfig], path: ImportPath) -> None:
    """Raise InputError, naming the key, for an argument that a class does not take, or that it needs and does not get.

    Only the names of arguments count, so settings that differ in values are looked at once.
    """
    seen: set[str] = set()
    for config in configs:
        for built in _built(config):
            names = sorted(map(str, built.given))
            form = repr((built.place, built.given["_target_"], names, built.within, built.given.get("_partial_")))
            if form not in seen:
                seen.add(form)
                _check(built, path)


class _Built(NamedTuple):
    """A `_target_` that a run builds: its key, its config, and the target that gets it. Some arguments come from us."""

    place: str
    given: Mapping[str, Any]
    within: str | None = None
    from_us: tuple[str, ...] = ()


def _built(config: SettingConfig) -> Iterator[_Built]:
    if not task_of(config.task, config.raw).model_trains:
        yield from _built_in("model", config.model, ("batch_size",) if config.data_from_module else ())
    data = {key: value for key, value in config.data.items() if key != "batch_size"}
    yield from _built_in("data", data, ("batch_size", "seed", "device"))
    if config.optimizer:
        ours = LEARNING_RATE_KEYS
        own = {key: value for key, value in config.optimizer.items() if key not in ours}
        yield from _built_in("optimizer", {**own, "_partial_": True}, ())
    yield from _built_below("trainer", config.trainer, "the Trainer")


def _built_in(place: str, node: Mapping[str, Any], from_us: tuple[str, ...]) -> Iterator[_Built]:
    target = node.get("_target_")
    if isinstance(target, str):
        yield _Built(place, node, None, from_us)
        yield from _built_below(place, node, target)


def _built_below(place: str, node: Any, within: str) -> Iterator[_Built]:
    if isinstance(node, Mapping):
        items: Iterable[tuple[Any, Any]] = node.items() if node.get("_recursive_", True) else ()
    else:
        items = enumerate(node) if isinstance(node, list | tuple) else ()
    for key, value in items:
        target = value.get("_target_") if isinstance(value, Mapping) else None
        if isinstance(target, str):
            yield _Built(f"{place}.{key}", value, within)
        yield from _built_below(f"{place}.{key}", value, target if isinstance(target, str) else within)


def _check(built: _Built, path: ImportPath) -> None:
    target = str(built.given["_target_"])
    takes = _arguments(target, path, _DEEPEST)
    if takes is None:
        first = _FIRST_OF_TORCH.get(target.rpartition(".")[0])
        if first is None or built.within is None or first in built.given:
            return
        takes = Arguments(target, (first,), (first,), any_name=True)
    needed = tuple(name for name in takes.needed if name not in built.from_us)
    refuse_arguments(built.given, built.place, takes._replace(target=target, needed=needed), built.within)


_FIRST_OF_TORCH = {"torch.optim": "params", "torch.optim.lr_scheduler": "optimizer"}
"""The argument that only the code around an optimiser or a schedule can give, where such a one stands in a config."""

_DEEPEST = 20
"""Imports and base classes are followed no further."""


def _arguments(target: str, path: ImportPath, deepest: int) -> Arguments | None:
    """Return what the class or function `target` takes; None where its source does not tell for certain."""
    found = _module_of(target, path, deepest)
    return None if found is None else found.arguments(target.rpartition(".")[2], path, deepest)


def _module_of(target: str, path: ImportPath, deepest: int) -> _Module | None:
    """Return the module, of the user's or of ours, that binds the last part of `target` at its top."""
    package, *parts = target.split(".")
    spec = package_spec(package, path)
    places = spec_paths(spec) if spec is not None and deepest else []
    if not parts or not places or not (path.is_users(places[0]) or package == _OURS):
        return None
    place = places[0]
    for number, part in enumerate(parts):
        source = place / "__init__.py" if place.is_dir() else place
        if source.suffix == ".py" and source.is_file() and part in _defined(source.read_bytes(), package):
            name = ".".join([package, *parts[:number]])
            return _Module(source, name, place.is_dir(), package) if number == len(parts) - 1 else None
        inner = _module_in(place, part)
        if inner is None:
            return None
        place = inner
    return None


def _defined(source: bytes, package: str) -> frozenset[str]:
    return _bound_at_top(source, package) or frozenset()


class _Module(NamedTuple):
    """A module's source, its dotted name, whether it is a package's `__init__.py`, and its top-level package."""

    source: Path
    name: str
    is_package: bool
    package: str

    def arguments(self, name: str, path: ImportPath, deepest: int) -> Arguments | None:
        """Return what the class or function `name` of this module takes; None where that cannot be told."""
        text = self.source.read_bytes()
        tree = ast.parse(text)
        bound = [one for one in _bound(tree.body, self.package) if one == name]
        if len(bound) != 1 or re.search(rb"__(init|new|signature)__\s*=", text):
            return None
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and node.name == name:
                return self._of_class(node, tree, path, deepest)
            if isinstance(node, ast.FunctionDef) and node.name == name:
                return None if node.decorator_list else self._of_function(node, path, deepest, skip=0)
        imported = self._imported(name, tree)
        return None if imported is None else _arguments(imported, path, deepest - 1)

    def _of_class(self, node: ast.ClassDef, tree: ast.Module, path: ImportPath, deepest: int) -> Arguments | None:
        names = [one.name for one in node.body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)]
        if node.decorator_list or node.keywords or "__new__" in names or names.count("__init__") > 1:
            return None
        for one in node.body:
            if isinstance(one, ast.FunctionDef) and one.name == "__init__":
                return None if one.decorator_list else self._of_function(one, path, deepest, skip=1)
        if not all(isinstance(one, _INERT) for one in node.body) or len(node.bases) > 1:
            return None  # an `if` may define it, or several classes above
        if not node.bases:
            return Arguments(node.name, (), (), any_name=False)
        above = self._dotted(node.bases[0], tree)
        return None if above is None else _arguments(above, path, deepest - 1)

    def _of_function(self, node: ast.FunctionDef, path: ImportPath, deepest: int, skip: int) -> Arguments | None:
        takes = node.args
        plain = [*takes.posonlyargs, *takes.args]
        optional = {one.arg for one in plain[len(plain) - len(takes.defaults) :]} if takes.defaults else set()
        optional |= {one.arg for one, at in zip(takes.kwonlyargs, takes.kw_defaults, strict=True) if at is not None}
        if len(plain) < skip:
            return None  # def __init__(*args, ...)
        names = [one.arg for one in [*plain[skip:], *takes.kwonlyargs]]
        needed = tuple(name for name in names if name not in optional)
        unpacked = None if takes.kwarg is None else self._unpacked(takes.kwarg.annotation, path, deepest)
        any_name = takes.kwarg is not None and unpacked is None
        return Arguments(node.name, (*names, *(unpacked or ())), needed, any_name)

    def _unpacked(self, annotation: ast.expr | None, path: ImportPath, deepest: int) -> tuple[str, ...] | None:
        """Return the keys of `**others: Unpack[SomeTypedDict]`; None for any other keywords."""
        if not isinstance(annotation, ast.Subscript) or not isinstance(annotation.slice, ast.Name):
            return None
        unpacks = ast.unparse(annotation.value).rpartition(".")[2] == "Unpack"
        return self._keys(annotation.slice.id, path, deepest) if unpacks else None

    def _keys(self, name: str, path: ImportPath, deepest: int) -> tuple[str, ...] | None:
        """Return the keys of the TypedDict `name`, of this module or imported into it; None for anything else."""
        tree = ast.parse(self.source.read_bytes())
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and node.name == name:
                keys = [ast.unparse(one.target) for one in node.body if isinstance(one, ast.AnnAssign)]
                plain = [ast.unparse(base).rpartition(".")[2] for base in node.bases] == ["TypedDict"]
                return tuple(keys) if plain else None
        dotted = self._imported(name, tree)
        found = None if dotted is None else _module_of(dotted, path, deepest - 1)
        return found._keys(str(dotted).rpartition(".")[2], path, deepest - 1) if found is not None else None

    def _dotted(self, node: ast.expr, tree: ast.Module) -> str | None:
        """Return the dotted name of a base class, which is found in this module or imported into it."""
        head, *rest = ast.unparse(node).split(".")
        if not all(part.isidentifier() for part in (head, *rest)):
            return None
        if any(isinstance(one, ast.ClassDef) and one.name == head for one in tree.body):
            return ".".join([self.name, head, *rest])
        imported = self._imported(head, tree)
        return None if imported is None else ".".join([imported, *rest])

    def _imported(self, name: str, tree: ast.Module) -> str | None:
        """Return the dotted name that an import at the top of the module gives the name `name`."""
        for node in tree.body:
            if isinstance(node, ast.Import):
                for alias in node.names:
                    if (alias.asname or alias.name) == name or (
                        alias.asname is None and alias.name.split(".")[0] == name
                    ):
                        return alias.name if alias.asname else alias.name.split(".")[0]
            elif isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    if (alias.asname or alias.name) == name:
                        above = self._above(node)
                        return None if above is None else ".".join(part for part in (above, alias.name) if part)
        return None

    def _above(self, node: ast.ImportFrom) -> str | None:
        """Return the module that an import is from, whose name may be relative to this one."""
        if not node.level:
            return node.module
        parts = self.name.split(".")
        up = node.level - 1 if self.is_package else node.level
        if up >= len(parts):
            return None
        return ".".join([*parts[: len(parts) - up], *([node.module] if node.module else [])])


_INERT = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Assign, ast.AnnAssign, ast.Expr, ast.Pass, ast.ClassDef)
"""Statements in a class after which it has no other `__init__` than the one that is seen."""


def _look_up(key: str, target: str, path: ImportPath) -> None:
    package, *parts = target.split(".")
    spec = package_spec(package, path)
    if spec is None or not (places := spec_paths(spec)):
        return  # nowhere, which is said elsewhere, or built in
    ours = path.is_users(places[0]) or package == _OURS
    place = places[0]
    for part in parts:
        source = place / "__init__.py" if place.is_dir() else place
        names = _names(source, package)
        if names is None and package == _OURS:
            names = frozenset()  # the names that ours makes while it is imported are for notebooks
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


# The user's own `_target_` in place of a config group's: none of the group's keys may leak into the user's class.

TARGET_GROUPS = ("model", "data", "optimizer")
"""The nodes whose keys are arguments of a class; a key added elsewhere is checked where it is read."""

_BELOW = tuple(f"{group}." for group in TARGET_GROUPS)

OWN_CHOICE = "own"
"""The file `conf/GROUP/own.yaml`: a `_target_` that the user must give, and none of its arguments."""


def with_user_targets(composer: Composer, overrides: Sequence[str]) -> tuple[str, ...]:
    """Return `overrides` with `GROUP=own` where a `_target_` of the user's replaces the default choice of GROUP.

    It comes first, so that a choice of the user's own wins over it, the default one's too. Keys below a `_target_` that
    is given in `overrides` need no `+`, because the config does not list that class's keys.
    """
    given = {line: composer.parse(line) for line in overrides}
    choices = [line for line, override in given.items() if composer.is_group_choice(override)]
    if not any(override.key_or_group.startswith(_BELOW) for override in given.values()):
        choices = list(overrides)  # none can be refused for a class's missing key: this is the composition of the plan
    targets = [override.key_or_group for override in given.values() if _is_target(override)]
    master = composer.master(choices)
    own = [f"{group}={OWN_CHOICE}" for group in TARGET_GROUPS if _replaced(composer, master, targets, group)]
    if own:
        master = composer.master((*own, *choices))
    opened = tuple(key.removesuffix("_target_") for key in targets)
    return (*own, *(f"++{line}" if _is_new(override, master, opened) else line for line, override in given.items()))


def _is_target(override: Override) -> bool:
    parents, _, last = override.key_or_group.rpartition(".")
    return parents.split(".")[0] in TARGET_GROUPS and last == "_target_" and not override.is_delete()


def _replaced(composer: Composer, master: DictConfig, targets: Sequence[str], group: str) -> bool:
    """Return whether a `_target_` other than that of the group's file was stated, while the file is the default one."""
    choice = master.hydra.runtime.choices.get(group)
    key = f"{group}._target_"
    stated = key in targets or key in (master.hydra.sweeper.get("params") or {})
    if choice is None or not (stated or OmegaConf.select(master, key) != _target_of(composer, group, choice)):
        return False
    return bool(composer.compose(()).hydra.runtime.choices.get(group) == choice)


def _target_of(composer: Composer, group: str, choice: str) -> Any:
    found = composer.loader.repository.load_config(f"{group}/{choice}")
    return None if found is None else OmegaConf.select(found.config, "_target_")


def _is_new(override: Override, config: DictConfig, opened: tuple[str, ...]) -> bool:
    """Return whether a plain override names a key below an `opened` node that `config` does not have."""
    parent, _, last = override.key_or_group.rpartition(".")
    if override.type is not OverrideType.CHANGE or not override.key_or_group.startswith(opened):
        return False
    node = OmegaConf.select(config, parent)
    return not (isinstance(node, DictConfig) and last in node)


def optimizer_notes(composer: Composer, overrides: Sequence[str], configs: Iterable[SettingConfig]) -> list[str]:
    """Return the notes for a user who states an optimiser for a module that may bring its own.

    `configs` are those of the grid's points.
    """
    stated = any(composer.parse(line).key_or_group.split(".")[0] == "optimizer" for line in overrides)
    own = next((target for one in configs if (target := one.model_target) and not target.startswith(OUR_PACKAGE)), None)
    if not stated or own is None:
        return []
    return [
        f"`optimizer` applies only if {own} leaves configure_optimizers to accelsweep; each record's "
        "effective.optimizer says which one trained"
    ]


# One job of the grid as it is composed, for `--cfg job` to print.


def composed_yaml(home: Path, overrides: Sequence[str]) -> str:
    """Return the composed config: YAML, interpolations unresolved, one value per key. Raises InputError."""
    composer = Composer.of(home, overrides)
    config = composer.compose(with_user_targets(composer, overrides))
    ours: list[Any] = [key for key in config if key != "hydra"]
    return OmegaConf.to_yaml(OmegaConf.masked_copy(config, ours))
