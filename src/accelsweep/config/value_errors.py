"""Turns the first invalid value in a config into a message that names the key, value, bound and file.

The models' fields declare the allowed values, pydantic detects invalid ones, and this module formats the error.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, is_dataclass
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from accelsweep.devices.kinds import accelerator_with_alias
from accelsweep.errors import InputError, nearest
from accelsweep.json_documents import UNKNOWN_KEY_ERRORS

FileOf = Callable[[str], str]
"""A function that returns the config file relevant to a dotted key."""

_BOUNDS = {"ge": "at least", "gt": "more than", "le": "at most", "lt": "less than"}

_OUT_OF_RANGE = ("greater_than_equal", "greater_than", "less_than_equal", "less_than")

_Model = TypeVar("_Model", bound=BaseModel)


def validated(
    model: type[_Model], value: Any, where: str, file_of: FileOf, extra: Literal["forbid"] | None = None
) -> _Model:
    """Validate `value` as `model`; raise an InputError that names the first invalid key under `where` and its file.

    `extra="forbid"` rejects unknown keys in a model that would otherwise ignore them.
    """
    try:
        return model.model_validate(value, extra=extra)
    except ValidationError as error:
        first = min(error.errors(), key=lambda each: each["type"] not in UNKNOWN_KEY_ERRORS)
        path = [str(part) for part in first["loc"] if part != "[key]"]
        key = ".".join([where, *path] if where else path)
        raise InputError(f"{_message(model, first, key)}; look in {file_of(key)}") from None


def _message(model: type[BaseModel], error: Any, key: str) -> str:
    value = error["input"]
    if error["type"] in UNKNOWN_KEY_ERRORS:
        return f"unknown key '{key}'{nearest(str(error['loc'][-1]), _field_names(model, error['loc'][:-1]))}"
    if error["type"] == "missing":
        return f"the key '{key}' is missing"
    bounds = describe_bounds(_annotation(model, error["loc"])) if error["type"] in _OUT_OF_RANGE else ""
    if bounds:
        return f"{key}={value}: must be {bounds}"
    message = error["msg"].removeprefix("Value error, ").replace("Input should be", "must be")
    hint = ""
    if isinstance(value, list):
        hint = "; to sweep over these values, write them without brackets"
    elif error["type"] == "literal_error" and isinstance(value, str):
        allowed = error["ctx"]["expected"].replace("'", "").replace(" or ", ", ").split(", ")
        alias = accelerator_with_alias(value)
        hint = f" (did you mean '{alias}'?)" if alias in allowed else nearest(value, allowed)
    return f"{key}={value!r}: {message[0].lower()}{message[1:]}{hint}"


def describe_bounds(annotation: Any) -> str:
    """Describe the range that a field's annotation allows: `at least 0 and less than 1`, or '' if unbounded."""
    limits = list(_limits(annotation))
    bounds = [
        f"{words} {getattr(limit, name):g}"
        for name, words in _BOUNDS.items()
        for limit in limits
        if getattr(limit, name, None) is not None
    ]
    inner = get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation
    or_null = ", or null" if bounds and type(None) in _members(inner) else ""
    return " and ".join(bounds) + or_null


def _members(annotation: Any) -> tuple[Any, ...]:
    """Return the members of a union; any other type is returned as the only member."""
    return get_args(annotation) if get_origin(annotation) in (Union, types.UnionType) else (annotation,)


def _limits(annotation: Any) -> Iterator[Any]:
    for member in _members(annotation):
        if get_origin(member) is Annotated:
            inner, *metadata = get_args(member)
            for each in metadata:
                yield from each.metadata if isinstance(each, FieldInfo) else (each,)
            yield from _limits(inner)


def _annotation(model: type[BaseModel], path: Sequence[Any]) -> Any:
    """Return the type of the field at `path`, including its bounds; Any if the path leaves the models."""
    annotation: Any = model
    for part in path:
        owner = _model_in(annotation)
        if owner is None:
            return Any
        if is_dataclass(owner):
            annotation = get_type_hints(owner, include_extras=True).get(part, owner)
        elif part in owner.model_fields:
            field = owner.model_fields[part]
            annotation = Annotated[field.annotation, *field.metadata] if field.metadata else field.annotation
    return annotation


def _model_in(annotation: Any) -> type[Any] | None:
    """Return the model or dataclass in an annotation, even if it is in a union or is a mapping's value type."""
    if isinstance(annotation, type) and (issubclass(annotation, BaseModel) or is_dataclass(annotation)):
        return annotation
    return next((model for part in get_args(annotation) if (model := _model_in(part))), None)


def _field_names(model: type[BaseModel], path: Sequence[Any]) -> list[str]:
    owner = _model_in(_annotation(model, path)) or model
    return [field.name for field in fields(owner)] if is_dataclass(owner) else list(owner.model_fields)
