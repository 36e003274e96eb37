"""The thin typed check of a config: the keys that accelsweep itself reads, and nothing below `model` or `data`.

An unknown key is refused with the nearest known one; what a model, a data set, an optimizer or the Trainer takes is
their business and is checked where they are built.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    StrictInt,
    StrictStr,
    ValidationError,
)

from accelsweep.core.errors import InputError, nearest
from accelsweep.core.plans import Analysis, BlockSettings, Limits, Settings, Site
from accelsweep.core.tasks import Task
from accelsweep.plan.prices import Prices
from accelsweep.plan.refusals.ranges import refuse_out_of_range
from accelsweep.plan.refusals.trainer import trainers_place

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
"""Lightning's names, as `lightning.fabric` lists them."""

_ACCELERATOR_ALIASES = {"gpu": "cuda"}
"""Lightning's name for whichever GPU there is; a cell names its kind."""

_PRECISION_ALIASES = {"16": "16-mixed", "32": "32-true", "64": "64-true", "bf16": "bf16-mixed"}


def _precision(value: str) -> str:
    if value not in PRECISIONS:
        alias = _PRECISION_ALIASES.get(value)
        hint = f" (did you mean '{alias}'?)" if alias else nearest(value, PRECISIONS)
        raise ValueError(f"is none of Lightning's precisions{hint}; they are: {', '.join(PRECISIONS)}")
    return value


def _text(value: Any) -> Any:
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


def _variable(name: str) -> str:
    if not name or "=" in name or "\0" in name:
        raise ValueError("is not usable as the name of an environment variable")
    return name


def _no_nul(value: str) -> str:
    if "\0" in value:
        raise ValueError("holds a NUL character, which no environment variable can")
    return value


Count = Annotated[StrictInt, Field(ge=1)]
Natural = Annotated[StrictInt, Field(ge=0)]
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False, strict=True)]
Text = Annotated[StrictStr, BeforeValidator(_text)]
Node = Annotated[dict[str, Any], Field()]


class Measure(BaseModel):
    """How a run is measured, all of it: a key that nothing reads is refused. Sizes are steps, samples and seconds."""

    model_config = ConfigDict(extra="forbid")

    concurrency: Count = 1
    warmup_steps: Natural
    min_steps: Count
    min_seconds: Seconds
    max_steps: Count
    probe_steps: Count | None = None
    fake_loader: StrictBool = False
    quality_samples: Count | None = None
    quality_metric: StrictStr | None = None
    quality_better: Literal["max", "min"] | None = None
    target: Annotated[float, Field(allow_inf_nan=False, strict=True)] | None = None
    validate_every_samples: Count | None = None
    max_samples: Count | None = None
    scenario: Literal["offline", "single_stream"] = "offline"


class Science(BaseModel):
    """The top-level keys that decide what a run measures. Keys of the user's own were refused or admitted before."""

    model_config = ConfigDict(extra="allow")

    accelerator: Literal["cpu", "cuda", "mps"]
    devices: Count
    num_nodes: Count
    batch_size: Count
    precision: Annotated[Text, AfterValidator(_precision)]
    seed: Annotated[Natural, Field(lt=2**31)]
    loop: Literal["lightning", "raw"]
    launcher: Literal["fork", "spawn"]
    threads: Count | None
    env: dict[Annotated[str, AfterValidator(_variable)], Annotated[Text, AfterValidator(_no_nul)]]
    task: Task
    model: Node
    data: Node
    optimizer: Node | None
    trainer: Node
    measure: Measure


class Rule(BaseModel):
    """One `exclude:` rule: the combinations that `when` matches are dropped `because` of a stated reason."""

    model_config = ConfigDict(extra="forbid")

    when: Annotated[dict[str, Any], Field(min_length=1)]
    because: Annotated[StrictStr, Field(min_length=1)]


FileOf = Callable[[str], str]
"""Names the config file to look in for a dotted key."""

_Model = TypeVar("_Model", bound=BaseModel)


def parsed(model: type[_Model], value: Any, where: str, file_of: FileOf) -> _Model:
    """Return `value` as `model`; raise InputError that names the first wrong key below `where` and its file."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        first = min(error.errors(), key=lambda each: each["type"] != "extra_forbidden")
        path = [str(part) for part in first["loc"] if part not in ("[key]",)]
        key = ".".join([*([where] if where else []), *path])
        raise InputError(f"{_complaint(model, first, key)}; look in {file_of(key)}") from None


def _complaint(model: type[BaseModel], first: Any, key: str) -> str:
    if first["type"] == "extra_forbidden":
        return f"unknown key '{key}'{nearest(str(first['loc'][-1]), _fields(model, first['loc'][:-1]))}"
    if first["type"] == "missing":
        return f"the key '{key}' is missing"
    message = first["msg"].removeprefix("Value error, ").replace("Input should be", "must be")
    suggestion = ""
    if first["type"] == "literal_error" and isinstance(first["input"], str):
        allowed = first["ctx"]["expected"].replace("'", "").replace(" or ", ", ").split(", ")
        alias = _ACCELERATOR_ALIASES.get(first["input"])
        suggestion = f" (did you mean '{alias}'?)" if alias in allowed else nearest(first["input"], allowed)
    if isinstance(first["input"], list):
        suggestion = "; to sweep over these values, write them without brackets"
    return f"{key}={first['input']!r}: {message[0].lower()}{message[1:]}{suggestion}"


def _fields(model: type[BaseModel], path: Sequence[Any]) -> list[str]:
    for part in path:
        inner = model.model_fields[part].annotation if part in model.model_fields else None
        model = inner if isinstance(inner, type) and issubclass(inner, BaseModel) else model
    return list(model.model_fields)


def science(config: dict[str, Any], added: frozenset[str], groups: Sequence[str], file_of: FileOf) -> dict[str, Any]:
    """Return the checked scientific config, environment values as text; raise InputError for what is wrong with it.

    Top-level keys beyond the known ones must have been added with `+key=` (`added`) or be config groups (`groups`).
    """
    if "experiment" in config:
        raise InputError(f"{file_of('experiment')} must begin with the line `# @package _global_` to have any effect")
    for key in config:
        if key not in Science.model_fields and key not in added and key not in groups:
            raise InputError(
                f"unknown key '{key}'{nearest(str(key), Science.model_fields)}; look in {file_of(key)}. "
                + (
                    f"An argument of Lightning's Trainer stands below `trainer`. {place}"
                    if (place := trainers_place(str(key)))
                    else f"A key of your own is added with +{key}=VALUE, on the command line or under "
                    "hydra.sweeper.params"
                )
            )
    checked = parsed(Science, config, "", file_of)
    refuse_unwritable(config)
    if (config["env"], config["precision"]) != (checked.env, checked.precision):
        return {**config, "precision": checked.precision, "env": checked.env}
    return config


def refuse_unwritable(value: Any, key: str = "") -> None:
    """Raise InputError, naming the key, for a value that JSON cannot hold or that would not come back the same."""
    if isinstance(value, Mapping):
        for name, item in value.items():
            if not isinstance(name, str):
                raise InputError(f"'{key}{name}': the key {name!r} must be text; put quotes around it")
            refuse_unwritable(item, f"{key}{name}.")
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            refuse_unwritable(item, f"{key}{index}.")
    elif isinstance(value, float) and not math.isfinite(value):
        raise InputError(f"'{key[:-1]}' is {value}: a cell's values must be finite numbers")
    elif value is not None and not isinstance(value, str | int | float):
        raise InputError(
            f"'{key[:-1]}' is of type {type(value).__name__}; only text, numbers, lists and mappings can be planned"
        )


def steering(values: Mapping[str, Any], file_of: FileOf) -> tuple[Settings, Site, list[Rule]]:
    """Return the checked plan-level part of a config; raise InputError for what is wrong with it."""
    refuse_unwritable(values)
    site = parsed(Site, values.get("site") or {}, "site", file_of)
    exclude = values.get("exclude") or []
    if not isinstance(exclude, list):
        raise InputError(f"exclude={exclude!r}: must be a list of rules; look in {file_of('exclude')}")
    rules = [parsed(Rule, rule, f"exclude.{number}", file_of) for number, rule in enumerate(exclude)]
    parts = {
        "limits": parsed(Limits, values.get("limits") or {}, "limits", file_of),
        "analysis": parsed(Analysis, values.get("analysis") or {}, "analysis", file_of),
        "block": parsed(BlockSettings, values.get("block") or {}, "block", file_of),
    }
    parsed(Prices, values.get("prices") or {}, "prices", file_of)
    rest = {key: values[key] for key in ("repeats", "baseline", "prices", "report") if values.get(key) is not None}
    settings = parsed(Settings, {**rest, **parts}, "", file_of)
    refuse_out_of_range(settings, site, file_of)
    return settings, site, rules
