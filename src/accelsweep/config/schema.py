"""Validates a setting's config and converts mappings from YAML, blocks and records to a `SettingConfig`.

`run_config` declares keys, types, bounds and defaults. The pydantic models in this module are derived from it and add
only the checks that require code. Unknown keys are ignored, because a config may contain user-defined keys;
`planning.config_validation` rejects keys that were not added explicitly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from functools import cache
from typing import Annotated, Any, TypeVar, get_args, get_type_hints

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Field,
    GetCoreSchemaHandler,
    GetPydanticSchema,
    create_model,
)
from pydantic_core import CoreSchema, core_schema

from accelsweep import registry
from accelsweep.devices.kinds import Accelerator
from accelsweep.errors import nearest
from accelsweep.run_config import CompileOptions, Count, LearningRate, LoaderOptions, Measure, Node, SettingConfig, Text
from accelsweep.tasks import tasks

PRECISIONS = (
    "32-true",
    "bf16-mixed",
    "16-mixed",
    "bf16-true",
    "16-true",
    "64-true",
    "transformer-engine",
    "transformer-engine-float16",
)
"""Lightning's precision names, as listed in `lightning.fabric`."""

_PRECISION_ALIASES = {"16": "16-mixed", "32": "32-true", "64": "64-true", "bf16": "bf16-mixed"}


def _known_precision(value: str) -> str:
    if value not in PRECISIONS:
        alias = _PRECISION_ALIASES.get(value)
        hint = f" (did you mean '{alias}'?)" if alias else nearest(value, PRECISIONS)
        raise ValueError(f"is not one of Lightning's precisions{hint}; they are: {', '.join(PRECISIONS)}")
    return value


def _known_task(value: str) -> str:
    known = list(dict.fromkeys(task.task for task in tasks()))
    if value not in known:
        raise ValueError(f"is not a task{nearest(value, known)}; they are: {', '.join(known)}")
    return value


def _number_to_text(value: Any) -> Any:
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


def _no_text(value: Any) -> Any:
    if isinstance(value, str):
        raise ValueError("must be a number of samples, or auto, which searches for the largest")
    return value


def _without_device_model(value: Any) -> Any:
    kind, _, model = value.partition(":") if isinstance(value, str) else (value, "", "")
    return kind if model.strip() else value


def _empty_for_none(value: Any) -> Any:
    return {} if value is None else value


def _variable_name(name: str) -> str:
    if not name or "=" in name or "\0" in name:
        raise ValueError("is not a valid name for an environment variable")
    return name


def _no_nul(value: str) -> str:
    if "\0" in value:
        raise ValueError("contains a NUL character, which an environment variable must not contain")
    return value


def _flag_or_auto(value: Any) -> Any:
    if value != "auto" and not isinstance(value, bool):
        raise ValueError("must be true, false or auto")
    return value


def _node_or_auto(value: Any) -> Any:
    is_number = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    if value not in (None, "auto") and not is_number:
        raise ValueError("must be the number of a NUMA node, auto or null")
    return value


def _class_names(value: Any) -> Any:
    if value is None or isinstance(value, str):
        return value
    if not isinstance(value, list | tuple) or not value or not all(isinstance(name, str) for name in value):
        raise ValueError("must be blocks, the name of a class, a list of such names, or null")
    return tuple(value)


_TextOrNumber = Annotated[Text, BeforeValidator(_number_to_text)]

_CHECKED: Mapping[str, Any] = {
    "accelerator": Annotated[Accelerator, BeforeValidator(_without_device_model)],
    "batch_size": Annotated[Count, BeforeValidator(_no_text)],
    "precision": Annotated[_TextOrNumber, AfterValidator(_known_precision)],
    "env": dict[Annotated[str, AfterValidator(_variable_name)], Annotated[_TextOrNumber, AfterValidator(_no_nul)]],
    "channels_last": Annotated[Any, AfterValidator(_flag_or_auto)],
    "activation_checkpointing": Annotated[Any, AfterValidator(_class_names)],
    "numa": Annotated[Any, AfterValidator(_node_or_auto)],
    "task": Annotated[Text, AfterValidator(_known_task)],
    "trainer": Annotated[Node, BeforeValidator(_empty_for_none)],
}
"""Types for fields whose values must be checked or converted by code."""


def _model_of(declaration: type) -> type[BaseModel]:
    """Build a pydantic model with a dataclass's fields, including bounds and defaults."""
    types = get_type_hints(declaration, include_extras=True)
    model_fields = {}
    for field in fields(declaration):
        if field.name == "raw":
            continue
        if field.default_factory is not MISSING:
            default: Any = Field(default_factory=field.default_factory)
        else:
            default = ... if field.default is MISSING else field.default
        model_fields[field.name] = (_CHECKED.get(field.name, types[field.name]), default)
    return create_model(declaration.__name__, **model_fields)  # type: ignore[call-overload, no-any-return]


_Declared = TypeVar("_Declared", SettingConfig, Measure, LearningRate, CompileOptions, LoaderOptions)

OPTIONAL_PARTS: Mapping[str, type] = {"compile_options": CompileOptions, "loader": LoaderOptions}
"""The keys whose mappings may be left out, with what declares their own keys."""

MODELS: Mapping[type, type[BaseModel]] = {
    declaration: _model_of(declaration)
    for declaration in (SettingConfig, Measure, LearningRate, *OPTIONAL_PARTS.values())
}
"""Maps each declaration to the model that validates it."""

CONFIG_KEYS = tuple(MODELS[SettingConfig].model_fields)
"""The top-level keys in a setting's config that accelsweep itself reads."""


def to_dataclass(declaration: type[_Declared], valid: BaseModel, raw: Mapping[str, Any]) -> _Declared:
    """Convert a validated model to its dataclass; `raw` is the mapping from which the model was read."""
    values: dict[str, Any] = {name: getattr(valid, name) for name in MODELS[declaration].model_fields}
    if declaration is SettingConfig:
        values["raw"] = dict(raw)
    return declaration(**values)


def checked_config(value: Any) -> SettingConfig:
    """Validate a mapping and return it as a `SettingConfig`; a `SettingConfig` is returned unchanged.

    Raises pydantic's ValidationError.
    """
    if isinstance(value, SettingConfig):
        return value
    return to_dataclass(SettingConfig, MODELS[SettingConfig].model_validate(value), value)


def checked_measure(value: Any) -> Measure:
    """Validate a mapping and return it as a `Measure`. Raises pydantic's ValidationError."""
    return to_dataclass(Measure, MODELS[Measure].model_validate(value), value)


def changed(config: SettingConfig, **values: Any) -> SettingConfig:
    """Return a copy of a config with these keys changed or added, revalidated."""
    return checked_config({**config.raw, **values})


def without_defaults(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a setting's config without the keys of accelsweep and its features that equal their schema default."""
    result = dict(config)
    for model in (MODELS[SettingConfig], *registry.config_models("")):
        result = _without_defaults(result, model)
    for name, model in (("measure", MODELS[Measure]), ("optimizer", MODELS[LearningRate])):
        if isinstance(result.get(name), Mapping):
            result[name] = _without_defaults(result[name], model)
    for name, declaration in OPTIONAL_PARTS.items():
        if isinstance(result.get(name), Mapping):
            result[name] = _without_defaults(result[name], MODELS[declaration])
            if not result[name]:
                del result[name]
    return result


def _without_defaults(values: Mapping[str, Any], model: type[BaseModel]) -> dict[str, Any]:
    result = dict(values)
    for name, default in _defaults_of(model).items():
        if name not in values:
            continue
        value = values[name]
        if value == default and isinstance(value, bool) == isinstance(default, bool):
            del result[name]
        elif isinstance(value, Mapping) and (nested := _nested_model(model, name)) is not None:
            result[name] = _without_defaults(value, nested)
    return result


@cache
def _defaults_of(model: type[BaseModel]) -> dict[str, Any]:
    optional = {name: field for name, field in model.model_fields.items() if not field.is_required()}
    return {name: field.get_default(call_default_factory=True) for name, field in optional.items()}


@cache
def _nested_model(model: type[BaseModel], name: str) -> type[BaseModel] | None:
    """Return the model of a field declared as a model or an optional model."""
    annotation = model.model_fields[name].annotation
    candidates = (each for each in (annotation, *get_args(annotation)) if isinstance(each, type))
    return next((each for each in candidates if issubclass(each, BaseModel)), None)


def _config_schema(_: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
    def read(value: Any, validate: Callable[[Any], BaseModel]) -> SettingConfig:
        return value if isinstance(value, SettingConfig) else to_dataclass(SettingConfig, validate(value), value)

    return core_schema.no_info_wrap_validator_function(
        read,
        handler(MODELS[SettingConfig]),
        serialization=core_schema.plain_serializer_function_ser_schema(lambda config: config.raw),
    )


Config = Annotated[SettingConfig, GetPydanticSchema(_config_schema)]
"""A config as a model field: validated when read, and serialised exactly as it was read."""
