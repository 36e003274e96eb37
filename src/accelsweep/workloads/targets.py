"""Builds objects from a config's `_target_` nodes like Hydra's `instantiate`, but without Hydra.

The worker runs in other people's environments, where Hydra need not be installed. The keys are Hydra's: `_target_`,
`_args_`, `_partial_`, `_recursive_` (true by default) and `_convert_`. A user's class receives mappings and lists as
Hydra passes them by default: as OmegaConf containers, or as dictionaries with attributes if OmegaConf is not installed.
Our own classes receive plain containers. Exceptions from constructors propagate unchanged.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from inspect import Parameter
from types import ModuleType
from typing import Any, get_args, get_origin

from typing_extensions import Unpack  # a dependency of torch

from accelsweep.errors import InputError
from accelsweep.target_signature import OUR_PACKAGE, Arguments, refuse_arguments

_OWN_KEYS = frozenset({"_target_", "_args_", "_partial_", "_recursive_", "_convert_"})

_REFUSED = ("os", "posix", "subprocess", "shutil", "pty", "socket", "ctypes", "pickle", "runpy", "importlib", "code")
"""Standard library modules whose functions a config must not call, because they run programs or remove files."""

_REFUSED_BUILTINS = frozenset({"eval", "exec", "compile", "open", "__import__", "input", "breakpoint", "exit", "quit"})


def locate(name: str) -> Any:
    """Return the module, class or function with this dotted name.

    Raises ImportError if it does not exist. Errors raised while importing one of the user's modules propagate.
    """
    parts = name.split(".")
    if not all(parts):
        raise ImportError(f"cannot load {name!r}: it is not a dotted name")
    _refuse(name, parts[0])
    found: Any = _imported(parts[0], name)
    for end, part in enumerate(parts[1:], 2):
        if hasattr(found, part):
            found = getattr(found, part)
        elif isinstance(found, ModuleType):
            found = _imported(".".join(parts[:end]), name)
        else:
            raise ImportError(f"cannot load {name!r}: {'.'.join(parts[: end - 1])} has no attribute {part!r}")
    return found


def _refuse(name: str, module: str) -> None:
    if module in _REFUSED or (module == "builtins" and name.rpartition(".")[2] in _REFUSED_BUILTINS):
        raise InputError(f"_target_={name}: a config must not call functions that run code or change files")


def _imported(module: str, wanted: str) -> ModuleType:
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise  # the user's module exists, but imports a module that does not
        owner, _, part = module.rpartition(".")
        what = (
            f"{owner} has no attribute {part!r}, and there is no such module" if owner else f"no module {part!r} here"
        )
        raise ImportError(f"cannot load {wanted!r}: {what}") from error


def instantiate(node: Any, stated: str | None = None) -> Any:
    """Return a config node with every nested `_target_` instantiated; `stated` is the outer node's `_convert_`."""
    if isinstance(node, list | tuple):
        return [instantiate(item, stated) for item in node]
    if not isinstance(node, Mapping):
        return node
    stated = node.get("_convert_", stated)
    recursive = node.get("_recursive_", True)
    built = {
        key: instantiate(value, stated) if recursive else value
        for key, value in node.items()
        if key not in _OWN_KEYS or key == "_args_"
    }
    if "_target_" not in node:
        return built
    plain = stated not in (None, "none") or (stated is None and is_ours(node))
    given = {key: value if plain else _as_hydra_passes(value) for key, value in built.items()}
    target, arguments = locate(str(node["_target_"])), given.pop("_args_", ())
    if not callable(target):
        raise InputError(f"_target_={node['_target_']}: it is a {type(target).__name__}, which is not callable")
    return partial(target, *arguments, **given) if node.get("_partial_") else target(*arguments, **given)


class AttributeDict(dict[str, Any]):
    """A mapping whose keys are also available as attributes, as in a DictConfig."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


def _as_hydra_passes(value: Any) -> Any:
    if type(value) not in (dict, list):
        return value
    if find_spec("omegaconf"):
        return import_module("omegaconf").OmegaConf.create(value, flags={"allow_objects": True})
    if isinstance(value, list):
        return [_as_hydra_passes(item) for item in value]
    return AttributeDict({key: _as_hydra_passes(item) for key, item in value.items()})


def is_ours(node: Mapping[str, Any]) -> bool:
    """Return whether a node's `_target_` is in this package."""
    return str(node.get("_target_")).startswith(OUR_PACKAGE)


def build_target(node: Mapping[str, Any], place: str) -> Any:
    """Build a config's `_target_`. Raises InputError, which specifies the key under `place`, for wrong arguments."""
    _check_arguments(node, place)
    for key, inner in _nested_targets(node, place):
        with suppress(ImportError, TypeError):  # `instantiate` will raise the same error
            _check_arguments(inner, key, within=str(node.get("_target_")))
    return instantiate(node)


def _nested_targets(node: Any, place: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the key and config of each `_target_` nested in another `_target_` and built together with it."""
    if isinstance(node, Mapping):
        items: Iterable[tuple[Any, Any]] = node.items() if node.get("_recursive_", True) else ()
    else:
        items = enumerate(node) if isinstance(node, list | tuple) else ()
    for key, value in items:
        if isinstance(value, Mapping) and "_target_" in value:
            yield f"{place}.{key}", value
        yield from _nested_targets(value, f"{place}.{key}")


def _check_arguments(node: Mapping[str, Any], place: str, within: str | None = None) -> None:
    """Reject unknown and missing arguments of the target with an error that specifies the key to change.

    `within` is the enclosing target, if any, that receives this object as an argument.
    """
    parameters = target_parameters(node)
    kinds = {parameter.kind for parameter in parameters.values()}
    variadic = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
    required = [
        name
        for name, parameter in parameters.items()
        if parameter.default is Parameter.empty and parameter.kind not in variadic
    ]
    takes = Arguments(str(node.get("_target_")), tuple(parameters), tuple(required), Parameter.VAR_KEYWORD in kinds)
    refuse_arguments(node, place, takes, within)


def target_parameters(node: Mapping[str, Any]) -> Mapping[str, Parameter]:
    """Return the parameters of a config's `_target_`, keyed by name; `**settings` if its signature cannot be read."""
    try:
        return signature_parameters(locate(str(node["_target_"])))
    except ValueError:  # a class from an extension module
        return {"settings": Parameter("settings", Parameter.VAR_KEYWORD)}


def signature_parameters(target: Callable[..., Any]) -> Mapping[str, Parameter]:
    """Return the parameters of `target`, keyed by name; `**options: Unpack[SomeTypedDict]` yields that dict's keys.

    Raises ValueError for a class from an extension module, whose signature cannot be read.
    """
    parameters = {}
    for name, parameter in inspect.signature(target).parameters.items():
        keys = _unpacked_keys(target, name) if parameter.kind is Parameter.VAR_KEYWORD else None
        if keys is None:
            parameters[name] = parameter
        else:
            parameters |= {key: Parameter(key, Parameter.KEYWORD_ONLY, default=None) for key in keys}
    return parameters


def _unpacked_keys(target: Callable[..., Any], name: str) -> list[str] | None:
    function: Any = target.__init__ if inspect.isclass(target) else target
    try:
        hint = inspect.get_annotations(function, eval_str=True).get(name)
    except (NameError, AttributeError, TypeError):  # only imported under `if TYPE_CHECKING`
        return None
    return list(get_args(hint)[0].__annotations__) if get_origin(hint) is Unpack else None
