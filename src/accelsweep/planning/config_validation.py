"""Validates the config keys that accelsweep itself reads, and detects settings that no run could measure.

The error for an unknown key suggests the closest known key. The keys of models, data sets, optimizers and the Trainer
are checked where those objects are built.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, StrictStr

from accelsweep import registry
from accelsweep.config.grid import CheckedPoint
from accelsweep.config.prices import Prices
from accelsweep.config.schema import CONFIG_KEYS, MODELS, OPTIONAL_PARTS, changed, to_dataclass
from accelsweep.config.setting import PLAN_KEYS, abbreviate_home, override_value
from accelsweep.config.site import NodeKind, Site
from accelsweep.config.sweep_options import PILOT_BLOCKS, REPEATS_LEAST, Analysis, BlockOptions, Limits, Options
from accelsweep.config.value_errors import FileOf, validated
from accelsweep.errors import InputError, nearest
from accelsweep.plain_json import canonical_json
from accelsweep.registry import Task
from accelsweep.run_config import THREADS_VARIABLE, LearningRate, Measure, SettingConfig
from accelsweep.schedulers.slurm import refuse_unfit_slurm
from accelsweep.tasks import task_of, tasks, unused_keys
from accelsweep.trainer_arguments import (
    DEFAULTS,
    RESERVED_ARGUMENTS,
    requested_length,
    reserved_message,
    strategy_names,
    trainer_argument_hint,
    trainer_arguments,
)

MIN_WARMUP_STEPS = 2
"""The minimum warm-up: the window's length is derived from the step rate in its second half, excluding the first
step."""


class Rule(BaseModel):
    """An `exclude:` rule: combinations that match `when` are dropped for the reason stated in `because`."""

    model_config = ConfigDict(extra="forbid")

    when: Annotated[dict[str, Any], Field(min_length=1)]
    because: Annotated[StrictStr, Field(min_length=1)]


_PARTS: Mapping[str, type[BaseModel]] = {
    "measure": MODELS[Measure],
    **{key: MODELS[declaration] for key, declaration in OPTIONAL_PARTS.items()},
}
"""Top-level key -> the model that allows no other keys in it."""


class _Part(NamedTuple):
    """A top-level part of a checked config, and its form in `SettingConfig.raw` and in the field of its name."""

    given: Any
    raw: Any
    typed: Any


class SettingCheck:
    """Checks the configs of a grid's settings.

    Settings share the parts in which they agree (see `config.grid`). Parts from which valid settings have been built
    are put together without being checked again.
    """

    def __init__(self, home: Path, groups: Sequence[str], file_of: FileOf) -> None:
        """Create a check that abbreviates paths in `home` and allows keys that are config groups (`groups`)."""
        self._home, self._groups, self._file_of = home, groups, file_of
        self._valid_keys: set[tuple[tuple[str, ...], frozenset[str]]] = set()
        self._parts: dict[tuple[str, int], _Part] = {}  # keeps the given parts, so that no ID is used again
        self._models = registry.config_models("")

    def __call__(self, config: dict[str, Any], added: frozenset[str]) -> SettingConfig:
        """Return the checked scientific config, with environment values as strings; raise InputError for any error.

        Unknown top-level keys must be added with `+key=` (`added`) or be config groups.
        """
        keys = tuple(config)
        known = [self._parts.get((key, id(part))) for key, part in config.items()]
        parts = {key: part for key, part in zip(keys, known, strict=True) if part is not None}
        if len(parts) < len(keys) or (keys, added) not in self._valid_keys:
            return self._learned(config, added)
        raw = {key: part.raw for key, part in parts.items()}
        self._check_features(raw)
        checked = SettingConfig(raw, **{key: parts[key].typed for key in CONFIG_KEYS if key in parts})
        _refuse_contradictions(checked)
        return checked

    def _learned(self, config: dict[str, Any], added: frozenset[str]) -> SettingConfig:
        """Check a config with new parts, and remember its parts."""
        _refuse_unknown_keys(config, added, self._groups, self._file_of)
        for key in CONFIG_KEYS:
            if key not in config and key != "entry":  # which planning adds
                raise InputError(f"the key '{key}' is missing; look in {self._file_of(key)}")
        given = {key: self._frozen(key, part) for key, part in config.items()}
        self._check_features(given)
        valid = validated(MODELS[SettingConfig], given, "", self._file_of)
        checked = to_dataclass(SettingConfig, valid, given)
        validated(MODELS[LearningRate], checked.optimizer or {}, "optimizer", self._file_of)
        _refuse_contradictions(checked)
        converted = {"precision": checked.precision, "env": checked.env}
        if any(given[key] != value for key, value in converted.items()):
            checked = changed(checked, **converted)
        for key, part in config.items():
            typed = getattr(checked, key) if key in CONFIG_KEYS else None
            self._parts.setdefault((key, id(part)), _Part(part, checked.raw[key], typed))
        self._valid_keys.add((tuple(config), added))
        return checked

    def _frozen(self, key: str, part: Any) -> Any:
        """Return a part with paths relative to `home` (`abbreviate_home`); raise InputError for any error in it."""
        if (known := self._parts.get((key, id(part)))) is not None:
            return known.raw
        refuse_unwritable(part, f"{key}.")
        abbreviated = abbreviate_home(part, self._home)
        if key in _PARTS:
            validated(_PARTS[key], abbreviated, key, self._file_of, extra="forbid")
        return abbreviated

    def _check_features(self, config: Mapping[str, Any]) -> None:
        for model in self._models:
            given = {key: config[key] for key in model.model_fields if config.get(key) is not None}
            validated(model, given, "", self._file_of, extra="forbid")


def _refuse_contradictions(config: SettingConfig) -> None:
    _check_threads(config)
    _refuse_conflicting_keys(config)
    _check_token_budget(config)


def _check_threads(config: SettingConfig) -> None:
    stated, key = config.env.get(THREADS_VARIABLE), f"env.{THREADS_VARIABLE}"
    if stated is None:
        return
    if config.threads is not None:
        raise InputError(f"threads={config.threads} and {key}={stated} set the same number: remove one of them")
    if not re.fullmatch(r"[1-9][0-9]*", stated):
        raise InputError(f"{key}={stated}: the number of threads must be a whole number from 1")


def _check_token_budget(config: SettingConfig) -> None:
    """Raise InputError for options that count samples, if `batch_size` counts tokens."""
    if config.batch_unit == "samples":
        return
    if config.task != "train_throughput":
        raise InputError(f"batch_unit=tokens: task={config.task} needs a number of samples in each batch")
    if (config.learning_rate.lr_scaling or "none") != "none":
        raise InputError("batch_unit=tokens: optimizer.lr_scaling needs a number of samples in each batch")


def _refuse_conflicting_keys(config: SettingConfig) -> None:
    """Raise InputError if one of our keys and a key of the model, the data or the Trainer set the same thing."""
    model, trainer = config.model, config.trainer
    batches = trainer.get("accumulate_grad_batches")
    ours: dict[str, Any] = {
        "compile": config.compile,
        "channels_last": config.channels_last or None,
        "gradient_accumulation": config.gradient_accumulation,
    }
    theirs = {
        "compile": ("model.compile", model.get("compile") or None),
        "channels_last": ("model.channels_last", model.get("channels_last") or None),
        "gradient_accumulation": ("trainer.accumulate_grad_batches", None if batches == 1 else batches),
    }
    for key, value in ours.items():
        other, their_value = theirs[key]
        if value is not None and their_value is not None:
            both = f"{key}={override_value(value)} and {other}={override_value(their_value)}"
            raise InputError(f"{both} set the same thing: remove one of them")
    if keys := [name for name in config.loader.replaced if name in config.data or "num_workers" in config.data]:
        raise InputError(f"loader.{keys[0]}: this data has keys of its own for its loaders, such as data.num_workers")


def _refuse_unknown_keys(
    config: Mapping[str, Any], added: frozenset[str], groups: Sequence[str], file_of: FileOf
) -> None:
    if "experiment" in config:
        raise InputError(f"{file_of('experiment')} must begin with the line `# @package _global_` to have any effect")
    known = {*_known_keys(), *added, *groups}
    for key in config:
        if key not in known:
            if hint := trainer_argument_hint(str(key)):
                remedy = f"Arguments of Lightning's Trainer belong under `trainer`. {hint}"
            else:
                remedy = f"Add a key of your own with +{key}=VALUE, on the command line or under hydra.sweeper.params"
            raise InputError(
                f"unknown key '{key}'{nearest(str(key), CONFIG_KEYS)}; look in {file_of(str(key))}. {remedy}"
            )


def _known_keys() -> set[str]:
    """Return the top-level keys of a setting that accelsweep reads: its own and those of features."""
    return {*CONFIG_KEYS, *(key for model in registry.config_models("") for key in model.model_fields)}


def refuse_unwritable(value: Any, key: str = "") -> None:
    """Raise InputError, naming the key, for a value that JSON cannot represent or preserve exactly."""
    if value is None or isinstance(value, (str, int)):
        return
    if isinstance(value, dict):
        for name, item in value.items():
            if not isinstance(name, str):
                raise InputError(f"'{key}{name}': the key {name!r} must be text; put quotes around it")
            refuse_unwritable(item, f"{key}{name}.")
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            refuse_unwritable(item, f"{key}{index}.")
    elif not isinstance(value, float):
        raise InputError(
            f"'{key[:-1]}' is of type {type(value).__name__}; only text, numbers, lists and mappings can be planned"
        )
    elif not math.isfinite(value):
        raise InputError(f"'{key[:-1]}' is {value}: a setting's values must be finite numbers")


def check_plan_config(values: Mapping[str, Any], file_of: FileOf) -> tuple[Options, Site, list[Rule]]:
    """Check a config's plan keys and return its options, site and `exclude:` rules; raise InputError for any error."""
    refuse_unwritable(values)
    site = _checked_site(values.get("site") or {}, file_of)
    exclude = values.get("exclude") or []
    if not isinstance(exclude, list):
        raise InputError(f"exclude={exclude!r}: must be a list of rules; look in {file_of('exclude')}")
    rules = [validated(Rule, rule, f"exclude.{number}", file_of) for number, rule in enumerate(exclude)]
    options = {key: values[key] for key in ("repeats", "repeats_most", "baseline") if values.get(key) is not None}
    options |= _auto_repeats(options, file_of)
    models: dict[str, type[BaseModel]] = {
        "limits": Limits,
        "analysis": Analysis,
        "prices": Prices,
        "block": BlockOptions,
    }
    options |= {key: validated(model, values.get(key) or {}, key, file_of) for key, model in models.items()}
    options["report"] = _feature_options("report", values.get("report") or {}, file_of)
    return validated(Options, options, "", file_of), site, rules


def _auto_repeats(values: Mapping[str, Any], file_of: FileOf) -> dict[str, Any]:
    """Return the options for `repeats: auto`, which starts with a pilot; empty if `repeats` is a number."""
    repeats, most = values.get("repeats"), values.get("repeats_most", REPEATS_LEAST)
    if not isinstance(repeats, str):
        return {}
    if repeats != "auto":
        raise InputError(f"repeats={repeats}: must be a number of at least 1, or auto; look in {file_of('repeats')}")
    if isinstance(most, int) and most < REPEATS_LEAST:
        raise InputError(
            f"repeats_most={most}: repeats=auto needs at least {REPEATS_LEAST} blocks for its intervals to be valid; "
            f"look in {file_of('repeats_most')}"
        )
    return {"repeats": PILOT_BLOCKS, "auto_repeats": True}


def _feature_options(group: str, given: Any, file_of: FileOf) -> dict[str, Any]:
    """Return the checked options that features declare in one config group, as plain data."""
    if not isinstance(given, Mapping):
        raise InputError(f"{group}={given!r}: must be a mapping; look in {file_of(group)}")
    models = list(registry.config_models(group))
    known = [name for model in models for name in model.model_fields]
    options: dict[str, Any] = {}
    for key in given:
        if key not in known:
            raise InputError(
                f"unknown key '{group}.{key}'{nearest(str(key), known)}; look in {file_of(f'{group}.{key}')}"
            )
    for model in models:
        keys = {key: given[key] for key in model.model_fields if key in given}
        options |= validated(model, keys, group, file_of).model_dump(mode="json", exclude_unset=True)
    return options


def _checked_site(value: Any, file_of: FileOf) -> Site:
    """Return the checked site; raise InputError for unknown keys and for options that would prevent job submission."""
    _refuse_unknown_site_keys(value, file_of)
    site = validated(Site, value, "site", file_of)
    if site.probe and site.scheduler != "local":
        raise InputError(
            "site.probe=True: must be false if jobs go to a cluster, because the machine that plans is not the one "
            f"that measures; look in {file_of('site.probe')}"
        )
    if site.kinds and site.inventory:
        raise InputError(
            "site.inventory and site.kinds are both set: if a site has several kinds of node, each has its own "
            f"inventory; look in {file_of('site.inventory')}"
        )
    if site.kinds and site.scheduler == "local":
        raise InputError(
            "site.kinds: requires site.scheduler=slurm or another scheduler, because one machine is one kind of node; "
            f"list all of its device models in site.inventory; look in {file_of('site.kinds')}"
        )
    names = [kind.name for kind in site.kinds]
    if duplicate := next((name for name in names if names.count(name) > 1), None):
        raise InputError(f"site.kinds: two kinds of node are named '{duplicate}'; look in {file_of('site.kinds')}")
    refuse_unfit_slurm(site.slurm, "site.slurm", file_of)
    for number, kind in enumerate(site.kinds):
        where = f"site.kinds.{number}.slurm"
        if kind.slurm.driver != site.slurm.driver:
            raise InputError(
                f"{where}.driver: the driver's job serves the whole sweep: set site.slurm.driver; see {file_of(where)}"
            )
        refuse_unfit_slurm(kind.slurm, where, file_of)
    for scheduler in registry.schedulers():
        for nodes in (site, *site.kinds):
            if (options := (nodes.model_extra or {}).get(scheduler.name)) is not None:
                registry.load(scheduler.check)(options, file_of)
    for model in registry.config_models("site.slurm"):
        validated(model, {"driver": site.slurm.driver}, "site.slurm", file_of, extra="forbid")
    return site


def _refuse_unknown_site_keys(site: Any, file_of: FileOf) -> None:
    """Raise InputError for an unknown key in the site, a node kind, or a feature's scheduler options in either."""
    if not isinstance(site, Mapping):
        return
    kinds = site.get("kinds")
    places: list[tuple[str, Any, type[BaseModel]]] = [("site", site, Site)]
    for number, kind in enumerate(kinds if isinstance(kinds, list | tuple) else ()):
        places.append((f"site.kinds.{number}", kind, NodeKind))
    schedulers = {scheduler.name: scheduler.options for scheduler in registry.schedulers()}
    for where, given, model in places:
        for key in given if isinstance(given, Mapping) else ():
            if key in schedulers:
                options = registry.load(schedulers[key])
                validated(options, given[key] or {}, f"{where}.{key}", file_of, extra="forbid")
            elif key not in model.model_fields:
                hint = nearest(str(key), [*model.model_fields, *schedulers])
                raise InputError(f"unknown key '{where}.{key}'{hint}; look in {file_of(f'{where}.{key}')}")


def refuse_unmeasurable(points: Sequence[CheckedPoint], options: Options, file_of: FileOf) -> None:
    """Raise InputError for a setting whose runs would all fail, and for an axis that has no effect."""
    checks = [registry.load(check) for check in dict.fromkeys(task.check for task in tasks()) if check is not None]
    for point in points:
        _refuse_unfit_task(point.config, options.analysis.rate, file_of)
        for check in checks:
            check(point.config, file_of)
        _refuse_conflicts(point.config, options.limits, file_of)
    _refuse_unused_axes(points)
    _refuse_unreferenced_axes(points)
    _refuse_idle_compile_options(points)


def _refuse_idle_compile_options(points: Sequence[CheckedPoint]) -> None:
    """Raise InputError for arguments of torch.compile in a sweep that compiles nothing."""
    if any(point.config.compile for point in points):
        return
    for point in points:
        for name, value in vars(point.config.compile_options).items():
            if value not in (None, False):
                raise InputError(
                    f"compile_options.{name}={override_value(value)} has no effect, because no setting is compiled: "
                    "add compile=null,default to the command"
                )


def _refuse_unfit_task(config: SettingConfig, rate: str | None, file_of: FileOf) -> None:
    """Raise InputError if a config or `analysis.rate` is incompatible with the config's `task`."""
    measure, task = config.measure, task_of(config.task, config.raw)
    if rate is not None and rate not in task.rates:
        raise InputError(
            f"analysis.rate={rate}: {_task_keys(task)} does not measure this rate, only {', '.join(task.rates)}; "
            f"look in {file_of('analysis.rate')}"
        )
    if config.whole_process and config.entry is None:
        raise InputError(
            "measure.scope=process compares the whole processes of a command of your own: name it with --entry; look "
            f"in {file_of('measure.scope')}"
        )
    if config.task == "time_to_accuracy":
        _refuse_missing_target(measure, file_of)
    if (
        config.all_folds
        and config.data_target.startswith("accelsweep.workloads.")
        and (config.task != "train_throughput" or measure.quality_samples is None)
    ):
        raise InputError(
            "data.fold=all trains and validates a module for each fold, on measure.quality_samples samples: set that "
            "key, and leave task at train_throughput"
        )
    if task.without_loop is not None and config.loop != "lightning":
        raise InputError(
            f"loop={config.loop} selects a training loop, but task={config.task} {task.without_loop}: remove "
            f"loop; look in {file_of('loop')}"
        )
    if config.task == "inference" and measure.scenario == "single_stream" and config.batch_size != 1:
        raise InputError(
            f"measure.scenario=single_stream sends one sample at a time, but batch_size is {config.batch_size}: set "
            "batch_size=1, or measure.scenario=offline"
        )


def _task_keys(task: Task) -> str:
    return ", ".join([f"task={task.task}", *(f"{key}={value}" for key, value in task.when)])


def _refuse_missing_target(measure: Measure, file_of: FileOf) -> None:
    if measure.fake_loader:
        raise InputError(
            "measure.fake_loader=true trains on one batch repeatedly, which never reaches a target: set it to false "
            "for task=time_to_accuracy"
        )
    for key, value in (("target", measure.target), ("quality_metric", measure.quality_metric)):
        if value is None:
            raise InputError(
                f"task=time_to_accuracy trains until measure.quality_metric reaches measure.target, but measure.{key} "
                "is null: set it, for example measure.quality_metric=val_accuracy measure.target=0.9; look in "
                f"{file_of(f'measure.{key}')}"
            )


def _refuse_conflicts(config: SettingConfig, limits: Limits, file_of: FileOf) -> None:
    """Raise InputError if a setting's keys contradict each other, the `limits`, or values determined by the run."""
    _refuse_impossible_window(config.measure, limits, file_of)
    for name in map(str, config.trainer):
        where = f"look in {file_of(f'trainer.{name}')}"
        if name in RESERVED_ARGUMENTS:
            raise InputError(f"{reserved_message(name)}; {where}")
        known = trainer_arguments()
        if known and name not in known:
            hint = nearest(name, sorted(known))
            raise InputError(f"trainer.{name} is not an argument of Lightning's Trainer{hint}; {where}")
    requested_length(config.trainer)
    strategy = config.trainer.get("strategy")
    # Other packages may register strategies, so only apparent misspellings are rejected.
    if (
        isinstance(strategy, str)
        and strategy != DEFAULTS["strategy"]  # whose check needs none of Lightning's sources
        and (known := strategy_names())
        and strategy not in known
        and (hint := nearest(strategy, sorted(known)))
    ):
        raise InputError(
            f"trainer.strategy={strategy}: Lightning has no such strategy{hint}; look in {file_of('trainer.strategy')}"
        )
    if "batch_size" in config.data and not config.divided_batch_size:
        raise InputError(
            "data.batch_size is set in the config, but every data set uses the top-level batch_size: remove it, and "
            f"set or sweep batch_size=VALUE; look in {file_of('data.batch_size')}"
        )


def _refuse_impossible_window(measure: Measure, limits: Limits, file_of: FileOf) -> None:
    if measure.warmup_steps < MIN_WARMUP_STEPS:
        raise InputError(
            f"measure.warmup_steps={measure.warmup_steps}: must be at least {MIN_WARMUP_STEPS}, because the "
            f"window's length is derived from the warm-up's second half; look in {file_of('measure.warmup_steps')}"
        )
    if measure.max_steps < measure.min_steps:
        raise InputError(
            f"measure.max_steps={measure.max_steps}: must be at least measure.min_steps={measure.min_steps}; "
            f"raise the former or lower the latter; look in {file_of('measure.max_steps')}"
        )
    if measure.max_seconds is not None and measure.max_seconds < measure.min_seconds:
        raise InputError(
            f"measure.max_seconds={measure.max_seconds:g}: must be at least measure.min_seconds="
            f"{measure.min_seconds:g}; raise the former or lower the latter; look in {file_of('measure.max_seconds')}"
        )
    if measure.min_seconds >= limits.run_seconds:
        raise InputError(
            f"measure.min_seconds={measure.min_seconds:g}: must be less than "
            f"limits.run_seconds={limits.run_seconds:g}, the time limit of a run: lower the former or raise the "
            f"latter; look in {file_of('measure.min_seconds')}"
        )


def _refuse_unused_axes(points: Sequence[CheckedPoint]) -> None:
    """Raise InputError for a swept key that none of the sweep's tasks uses."""
    tasks_of_points = (task_of(point.config.task, point.config.raw) for point in points)
    used = {task.name: task for task in tasks_of_points}
    for key in points[0].axes:
        unused = all(
            any(key == name or key.startswith(f"{name}.") for name in unused_keys(task)) for task in used.values()
        )
        if unused and len({canonical_json(point.axes[key]) for point in points}) > 1:
            raise InputError(
                f"{key} has several values, but {' and '.join(map(_task_keys, used.values()))} does not use it: all "
                "its settings would measure the same thing. Give it one value"
            )


def _refuse_unreferenced_axes(points: Sequence[CheckedPoint]) -> None:
    """Raise InputError for a swept user-defined key that affects nothing else in any setting's config.

    This can be detected only if two points differ in that key alone.
    """
    known = _known_keys()
    for key in points[0].axes:
        head = key.partition(".")[0]
        if head in known or head in PLAN_KEYS or not any(head in point.config.raw for point in points):
            continue
        effective_configs: dict[str, list[str]] = {}
        for point in points:
            other_axes = canonical_json({name: value for name, value in point.axes.items() if name != key})
            effective = {name: value for name, value in point.config.raw.items() if name in known}
            effective_configs.setdefault(other_axes, []).append(canonical_json(effective))
        groups = effective_configs.values()
        if any(len(configs) > 1 for configs in groups) and all(len(set(configs)) == 1 for configs in groups):
            remedy = trainer_argument_hint(key) or f"Refer to it with ${{{key}}} in another key, or give it one value"
            raise InputError(
                f"{key} has several values, but nothing refers to it: all its settings would measure the same thing. "
                f"{remedy}"
            )
