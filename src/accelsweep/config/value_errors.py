"""One wrong value in a config, as a sentence that names key, value, bound and file.

The models' fields state the allowed values, once. pydantic finds the others, and this module words the refusal.
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
"""Names the config file to look in for a dotted key."""

_IN_WORDS = {"ge": "at least", "gt": "more than", "le": "at most", "lt": "less than"}

_OUT_OF_RANGE = ("greater_than_equal", "greater_than", "less_than_equal", "less_than")

_Model = TypeVar("_Model", bound=BaseModel)


def validated(
    model: type[_Model], value: Any, where: str, file_of: FileOf, extra: Literal["forbid"] | None = None
) -> _Model:
    """Return `value` as `model`; raise InputError that names the first wrong key below `where` and its file.

    `extra="forbid"` refuses unknown keys; the model itself ignores them, because it reads older files too.
    """
    try:
        return model.model_validate(value, extra=extra)
    except ValidationError as error:
        first = min(error.errors(), key=lambda each: each["type"] not in UNKNOWN_KEY_ERRORS)
        path = [str(part) for part in first["loc"] if part not in ("[key]",)]
        key = ".".join([*([where] if where else []), *path])
        raise InputError(f"{_complaint(model, first, key)}; look in {file_of(key)}") from None


def _complaint(model: type[BaseModel], first: Any, key: str) -> str:
    if first["type"] in UNKNOWN_KEY_ERRORS:
        return f"unknown key '{key}'{nearest(str(first['loc'][-1]), _fields(model, first['loc'][:-1]))}"
    if first["type"] == "missing":
        return f"the key '{key}' is missing"
    bound = describe_bounds(_annotation(model, first["loc"])) if first["type"] in _OUT_OF_RANGE else ""
    if bound:
        return f"{key}={first['input']}: must be {bound}"
    message = first["msg"].removeprefix("Value error, ").replace("Input should be", "must be")
    suggestion = ""
    if first["type"] == "literal_error" and isinstance(first["input"], str):
        allowed = first["ctx"]["expected"].replace("'", "").replace(" or ", ", ").split(", ")
        alias = accelerator_with_alias(first["input"])
        suggestion = f" (did you mean '{alias}'?)" if alias in allowed else nearest(first["input"], allowed)
    if isinstance(first["input"], list):
        suggestion = "; to sweep over these values, write them without brackets"
    return f"{key}={first['input']!r}: {message[0].lower()}{message[1:]}{suggestion}"


def describe_bounds(annotation: Any) -> str:
    """Return the range that a field's annotation allows: `at least 0 and less than 1`; empty where it has none."""
    limits = list(_limits(annotation))
    bounds = [
        f"{words} {getattr(limit, name):g}"
        for name, words in _IN_WORDS.items()
        for limit in limits
        if getattr(limit, name, None) is not None
    ]
    return " and ".join(bounds) + (", or null" if bounds and _may_be_null(annotation) else "")


def _may_be_null(annotation: Any) -> bool:
    inner = get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation
    return type(None) in _parts(inner)


def _parts(annotation: Any) -> tuple[Any, ...]:
    """Return the members of a union; of anything else, that itself."""
    return get_args(annotation) if get_origin(annotation) in (Union, types.UnionType) else (annotation,)


def _limits(annotation: Any) -> Iterator[Any]:
    for part in _parts(annotation):
        if get_origin(part) is Annotated:
            inner, *stated = get_args(part)
            for each in stated:
                yield from each.metadata if isinstance(each, FieldInfo) else (each,)
            yield from _limits(inner)


def _annotation(model: type[BaseModel], path: Sequence[Any]) -> Any:
    """Return the type of the field at `path`, its bounds included; Any where the path leaves the models."""
    found: Any = model
    for part in path:
        owner = _model_in(found)
        if owner is not None and is_dataclass(owner):
            found = get_type_hints(owner, include_extras=True).get(part, owner)
        elif owner is not None and part in owner.model_fields:
            field = owner.model_fields[part]
            found = Annotated[field.annotation, *field.metadata] if field.metadata else field.annotation
        elif owner is None:
            return Any
    return found


def _model_in(annotation: Any) -> type[Any] | None:
    """Return the model or dataclass that an annotation holds, also within a union or as the values of a mapping."""
    if isinstance(annotation, type) and (issubclass(annotation, BaseModel) or is_dataclass(annotation)):
        return annotation
    return next((model for part in get_args(annotation) if (model := _model_in(part))), None)


def _fields(model: type[BaseModel], path: Sequence[Any]) -> list[str]:
    owner = _model_in(_annotation(model, path)) or model
    return [field.name for field in fields(owner)] if is_dataclass(owner) else list(owner.model_fields)
