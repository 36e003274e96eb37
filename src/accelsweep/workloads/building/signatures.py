"""The arguments that a target takes, those included that it hands on to the class above it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from inspect import Parameter
from typing import Any, Unpack, get_args, get_origin


def parameters_of(target: Callable[..., Any]) -> Mapping[str, Parameter]:
    """Return the parameters of `target` by name; `**others: Unpack[SomeTypedDict]` counts as that dict's keys.

    Raises ValueError for a class of an extension, which has no signature to read.
    """
    return {parameter.name: parameter for parameter in _each(target)}


def _each(target: Callable[..., Any]) -> Iterator[Parameter]:
    for parameter in inspect.signature(target).parameters.values():
        keys = _unpacked(target, parameter.name) if parameter.kind is Parameter.VAR_KEYWORD else None
        if keys is None:
            yield parameter
        else:
            yield from (Parameter(key, Parameter.KEYWORD_ONLY, default=None) for key in keys)


def _unpacked(target: Callable[..., Any], name: str) -> list[str] | None:
    function: Any = target.__init__ if inspect.isclass(target) else target
    try:
        hint = inspect.get_annotations(function, eval_str=True).get(name)
    except (NameError, AttributeError, TypeError):  # a name imported for type checkers alone
        return None
    return list(get_args(hint)[0].__annotations__) if get_origin(hint) is Unpack else None
