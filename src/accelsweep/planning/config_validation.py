"""The thin typed check of a config: the keys that accelsweep itself reads, and nothing below `model` or `data`.

An unknown key is refused with the nearest known one. The keys of a model, a data set, an optimizer or the Trainer are
not checked here, but where these are built.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StrictStr

from accelsweep import registry
from accelsweep.analysis.power import MIN_BLOCKS
from accelsweep.config.grid import CheckedPoint
from accelsweep.config.prices import Prices
from accelsweep.config.schema import CONFIG_KEYS, MODELS, changed, to_dataclass
from accelsweep.config.setting import PLAN_KEYS
from accelsweep.config.site import NodeKind, Site
from accelsweep.config.sweep_options import PILOT_BLOCKS, Analysis, BlockOptions, Limits, Options
from accelsweep.config.value_errors import FileOf, validated
from accelsweep.errors import InputError, nearest
from accelsweep.plain_json import canonical_json
from accelsweep.registry import Task
from accelsweep.run_config import LearningRate, Measure, SettingConfig
from accelsweep.schedulers.slurm import refuse_unfit_slurm
from accelsweep.tasks import task_of, tasks, unused_keys
from accelsweep.trainer_arguments import (
    RESERVED_ARGUMENTS,
    requested_length,
    reserved_message,
    strategy_names,
    trainer_argument_hint,
    trainer_arguments,
)


class Rule(BaseModel):
    """One `exclude:` rule: the combinations that `when` matches are dropped `because` of a stated reason."""

    model_config = ConfigDict(extra="forbid")

    when: Annotated[dict[str, Any], Field(min_length=1)]
    because: Annotated[StrictStr, Field(min_length=1)]


def check_setting_config(
    config: dict[str, Any], added: frozenset[str], groups: Sequence[str], file_of: FileOf
) -> SettingConfig:
    """Return the checked scientific config, environment values as text; raise InputError for any fault in it.

    Top-level keys beyond the known ones must have been added with `+key=` (`added`) or be config groups (`groups`).
    """
    _refuse_unknown(config, added, groups, file_of)
    for key in CONFIG_KEYS:
        if key not in config:
            raise InputError(f"the key '{key}' is missing; look in {file_of(key)}")
    validated(MODELS[Measure], config["measure"], "measure", file_of, extra="forbid")
    for model in registry.config_models(""):
        given = {key: config[key] for key in model.model_fields if config.get(key) is not None}
        validated(model, given, "", file_of, extra="forbid")
    checked = to_dataclass(SettingConfig, validated(MODELS[SettingConfig], config, "", file_of), config)
    validated(MODELS[LearningRate], checked.optimizer or {}, "optimizer", file_of)
    refuse_unwritable(config)
    typed = {"precision": checked.precision, "env": checked.env}
    if all(config[key] == value for key, value in typed.items()):
        return checked
    return changed(checked, **typed)


def _refuse_unknown(config: Mapping[str, Any], added: frozenset[str], groups: Sequence[str], file_of: FileOf) -> None:
    if "experiment" in config:
        raise InputError(f"{file_of('experiment')} must begin with the line `# @package _global_` to have any effect")
    known = _known_keys()
    for key in config:
        if key not in known and key not in added and key not in groups:
            raise InputError(
                f"unknown key '{key}'{nearest(str(key), CONFIG_KEYS)}; look in {file_of(str(key))}. "
                + (
                    f"An argument of Lightning's Trainer stands below `trainer`. {place}"
                    if (place := trainer_argument_hint(str(key)))
                    else f"A key of your own is added with +{key}=VALUE, on the command line or under "
                    "hydra.sweeper.params"
                )
            )


def refuse_unwritable(value: Any, key: str = "") -> None:
    """Raise InputError, naming the key, for a value that JSON cannot hold or that would not come back the same."""
    if value is None or isinstance(value, str | int):
        return
    if isinstance(value, Mapping):
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
    """Return the checked plan-level part of a config; raise InputError for any fault in it."""
    refuse_unwritable(values)
    _refuse_unknown_engines(values.get("site") or {}, file_of)
    site = validated(Site, values.get("site") or {}, "site", file_of)
    exclude = values.get("exclude") or []
    if not isinstance(exclude, list):
        raise InputError(f"exclude={exclude!r}: must be a list of rules; look in {file_of('exclude')}")
    rules = [validated(Rule, rule, f"exclude.{number}", file_of) for number, rule in enumerate(exclude)]
    parts = {
        "limits": validated(Limits, values.get("limits") or {}, "limits", file_of),
        "analysis": validated(Analysis, values.get("analysis") or {}, "analysis", file_of),
        "prices": validated(Prices, values.get("prices") or {}, "prices", file_of),
        "block": validated(BlockOptions, values.get("block") or {}, "block", file_of),
    }
    rest = {key: values[key] for key in ("repeats", "repeats_most", "baseline") if values.get(key) is not None}
    rest |= {"report": feature_keys("report", values.get("report") or {}, file_of)}
    options = validated(Options, {**rest, **parts, **_repeats(rest, file_of)}, "", file_of)
    _refuse_unfit_site(site, file_of)
    return options, site, rules


def _refuse_unknown_engines(site: Any, file_of: FileOf) -> None:
    """Raise InputError for a wrong key of a feature's scheduler, at the site or at a kind of its nodes."""
    if not isinstance(site, Mapping):
        return
    kinds = site.get("kinds")
    places: list[tuple[str, Any, type[BaseModel]]] = [("site", site, Site)]
    places += [
        (f"site.kinds.{number}", kind, NodeKind)
        for number, kind in enumerate(kinds if isinstance(kinds, list | tuple) else ())
    ]
    options = {scheduler.name: scheduler.options for scheduler in registry.schedulers()}
    for where, given, model in places:
        for key in given if isinstance(given, Mapping) else ():
            if key in options:
                validated(registry.load(options[key]), given[key] or {}, f"{where}.{key}", file_of, extra="forbid")
            elif key not in model.model_fields:
                known = [*model.model_fields, *options]
                raise InputError(
                    f"unknown key '{where}.{key}'{nearest(str(key), known)}; look in {file_of(f'{where}.{key}')}"
                )


def feature_keys(group: str, given: Any, file_of: FileOf) -> dict[str, Any]:
    """Return the keys of features in a group of the config, checked, as plain data. Raises InputError for others."""
    if not isinstance(given, Mapping):
        raise InputError(f"{group}={given!r}: must be a mapping; look in {file_of(group)}")
    models = list(registry.config_models(group))
    known = [name for model in models for name in model.model_fields]
    for key in given:
        if key not in known:
            raise InputError(
                f"unknown key '{group}.{key}'{nearest(str(key), known)}; look in {file_of(f'{group}.{key}')}"
            )
    checked = [
        validated(model, {key: given[key] for key in model.model_fields if key in given}, group, file_of)
        for model in models
    ]
    return {key: value for one in checked for key, value in one.model_dump(mode="json", exclude_unset=True).items()}


def _repeats(values: Mapping[str, Any], file_of: FileOf) -> dict[str, Any]:
    """Return the repeats of `repeats: auto`: the pilot's blocks first. Nothing for a number, which is checked apart."""
    repeats, most = values.get("repeats"), values.get("repeats_most", MIN_BLOCKS)
    if not isinstance(repeats, str):
        return {}
    if repeats != "auto":
        raise InputError(f"repeats={repeats}: must be a number from 1 on, or auto; look in {file_of('repeats')}")
    if isinstance(most, int) and most < MIN_BLOCKS:
        raise InputError(
            f"repeats_most={most}: repeats=auto takes {MIN_BLOCKS} blocks at least, so that its intervals hold; "
            f"look in {file_of('repeats_most')}"
        )
    return {"repeats": PILOT_BLOCKS, "auto_repeats": True}


def _refuse_unfit_site(site: Site, file_of: FileOf) -> None:
    """Raise InputError for settings that no job could be submitted with: rules for new plans, not for old files."""
    if site.probe and site.scheduler != "local":
        raise InputError(
            "site.probe=True: must be false where jobs go to a cluster: the machine that plans is not the one that "
            f"measures; look in {file_of('site.probe')}"
        )
    if site.kinds and site.inventory:
        raise InputError(
            "site.inventory and site.kinds are both given: where a site has several kinds of node, each has its own "
            f"inventory; look in {file_of('site.inventory')}"
        )
    if site.kinds and site.scheduler == "local":
        raise InputError(
            "site.kinds: needs site.scheduler=slurm, or another engine: one machine is one kind of node; its devices "
            f"of several models stand in site.inventory; look in {file_of('site.kinds')}"
        )
    twice = [kind.name for kind in site.kinds if [other.name for other in site.kinds].count(kind.name) > 1]
    if twice:
        raise InputError(f"site.kinds: two kinds of node are called '{twice[0]}'; look in {file_of('site.kinds')}")
    refuse_unfit_slurm(site.slurm, "site.slurm", file_of)
    for number, kind in enumerate(site.kinds):
        where = f"site.kinds.{number}.slurm"
        if kind.slurm.head != site.slurm.head:
            raise InputError(
                f"{where}.head: the job of a head is the whole sweep's: state it as site.slurm.head; "
                f"look in {file_of(where)}"
            )
        refuse_unfit_slurm(kind.slurm, where, file_of)
    for scheduler in registry.schedulers():
        for one in (site, *site.kinds):
            if (words := (one.model_extra or {}).get(scheduler.name)) is not None:
                registry.load(scheduler.check)(words, file_of)
    for model in registry.config_models("site.slurm"):
        validated(model, {"head": site.slurm.head}, "site.slurm", file_of, extra="forbid")


# Settings that contradict each other, or that a run decides by itself: every run of such a setting would fail.

LEAST_WARMUP_STEPS = 2
"""The window takes the pace from the second half of the warm-up, whose first step is apart (`measure.window`)."""


def refuse_conflicts(config: SettingConfig, limits: Limits, file_of: FileOf) -> None:
    """Raise InputError where a checked scientific config, or it and the `limits`, cannot be measured by any run."""
    _refuse_impossible_window(config.measure, limits, file_of)
    for name in config.trainer:
        _refuse_trainer_key(str(name), file_of)
    requested_length(config.trainer)
    _refuse_misspelt_strategy(config, file_of)
    if "batch_size" in config.data and not config.divided_batch_size:
        raise InputError(
            "data.batch_size is set in the config, and every data set gets the top-level batch_size: remove it, and "
            f"set or sweep batch_size=VALUE; look in {file_of('data.batch_size')}"
        )


def _refuse_impossible_window(measure: Measure, limits: Limits, file_of: FileOf) -> None:
    if measure.warmup_steps < LEAST_WARMUP_STEPS:
        raise InputError(
            f"measure.warmup_steps={measure.warmup_steps}: must be at least {LEAST_WARMUP_STEPS}, because the "
            f"window's length follows from the pace of its second half; look in {file_of('measure.warmup_steps')}"
        )
    if measure.max_steps < measure.min_steps:
        raise InputError(
            f"measure.max_steps={measure.max_steps}: must be at least measure.min_steps={measure.min_steps}; "
            f"raise the one or lower the other; look in {file_of('measure.max_steps')}"
        )
    if measure.min_seconds >= limits.run_seconds:
        raise InputError(
            f"measure.min_seconds={measure.min_seconds:g}: must be less than "
            f"limits.run_seconds={limits.run_seconds:g}, the time limit of a run: lower the one or raise the other; "
            f"look in {file_of('measure.min_seconds')}"
        )


def _refuse_trainer_key(name: str, file_of: FileOf) -> None:
    where = f"look in {file_of(f'trainer.{name}')}"
    if name in RESERVED_ARGUMENTS:
        raise InputError(f"{reserved_message(name)}; {where}")
    known = trainer_arguments()
    if known and name not in known:
        raise InputError(f"trainer.{name} is no argument of Lightning's Trainer{nearest(name, sorted(known))}; {where}")


def _refuse_misspelt_strategy(config: SettingConfig, file_of: FileOf) -> None:
    """Refuse what is close to a strategy's name and is none; another package may have registered any other."""
    strategy, known = config.trainer.get("strategy"), strategy_names()
    if isinstance(strategy, str) and known and strategy not in known and (near := nearest(strategy, sorted(known))):
        raise InputError(
            f"trainer.strategy={strategy}: Lightning has no such strategy{near}; look in {file_of('trainer.strategy')}"
        )


def refuse_unread_axes(points: Sequence[CheckedPoint]) -> None:
    """Raise InputError for a swept key of the user's own that changes nothing else in any setting's config.

    `points` are those left of the grid. Only where two of them differ in nothing but that key is there an answer.
    """
    known = _known_keys()
    for key in points[0].axes:
        head = key.partition(".")[0]
        if head in known or head in PLAN_KEYS or not any(head in point.config.raw for point in points):
            continue
        alike: dict[str, list[str]] = {}
        for point in points:
            others = canonical_json({name: value for name, value in point.axes.items() if name != key})
            alike.setdefault(others, []).append(_read(point.config))
        if any(len(read) > 1 for read in alike.values()) and all(len(set(read)) == 1 for read in alike.values()):
            place = trainer_argument_hint(key)
            raise InputError(
                f"{key} has several values, and nothing refers to it: all of its settings would measure the same. "
                + (place or f"Refer to it with ${{{key}}} where it is to count, or give it one value")
            )


def _read(config: SettingConfig) -> str:
    """Return the part of a config that a run reads, as text: a key of the user's counts if another key refers to it."""
    known = _known_keys()
    return canonical_json({key: value for key, value in config.raw.items() if key in known})


def _known_keys() -> set[str]:
    """Return the top-level keys of a setting that accelsweep reads: its own and those of features."""
    return {*CONFIG_KEYS, *(key for model in registry.config_models("") for key in model.model_fields)}


OUR_WORKLOADS = "accelsweep.workloads."


def refuse_unfit(config: SettingConfig, rate: str | None, file_of: FileOf) -> None:
    """Raise InputError where the settings of a checked scientific config do not fit its `task`.

    `rate` is the plan's `analysis.rate`.
    """
    measure, task = config.measure, task_of(config.task, config.raw)
    if rate is not None and rate not in task.rates:
        raise InputError(
            f"analysis.rate={rate}: {_named(task)} measures no such rate, only {', '.join(task.rates)}; "
            f"look in {file_of('analysis.rate')}"
        )
    if config.task == "time_to_accuracy":
        _refuse_aimless(measure, file_of)
    if config.data_target.startswith(OUR_WORKLOADS) and config.each_fold:
        _refuse_folds_alone(config)
    if task.without_loop is not None and config.loop != "lightning":
        raise InputError(
            f"loop={config.loop} names another training loop, and task={config.task} {task.without_loop}: leave loop "
            f"out; look in {file_of('loop')}"
        )
    if config.task == "inference" and measure.scenario == "single_stream" and config.batch_size != 1:
        raise InputError(
            f"measure.scenario=single_stream asks one sample at a time, and batch_size is {config.batch_size}: set "
            "batch_size=1, or measure.scenario=offline"
        )
    for check in dict.fromkeys(one.check for one in tasks() if one.check is not None):
        registry.load(check)(config, file_of)


def _named(task: Task) -> str:
    return ", ".join([f"task={task.task}", *(f"{key}={value}" for key, value in task.when)])


def refuse_idle_axes(axes: Sequence[Mapping[str, Any]], configs: Sequence[SettingConfig]) -> None:
    """Raise InputError for a swept key that changes nothing in any of the sweep's tasks.

    `axes` and `configs` are those of each setting that is left of the grid.
    """
    used = {config.work: task_of(config.task, config.raw) for config in configs}
    for key in axes[0]:
        idle = all(
            any(key == unused or key.startswith(f"{unused}.") for unused in unused_keys(task)) for task in used.values()
        )
        if idle and len({canonical_json(setting[key]) for setting in axes}) > 1:
            raise InputError(
                f"{key} has several values, and {' and '.join(map(_named, used.values()))} does not use it: all "
                "of its settings would measure the same. Give it one value"
            )


def _refuse_folds_alone(config: SettingConfig) -> None:
    if config.task != "train_throughput" or config.measure.quality_samples is None:
        raise InputError(
            "data.fold=all trains and validates a module for each fold, on measure.quality_samples samples: set them, "
            "and leave task at train_throughput"
        )


def _refuse_aimless(measure: Measure, file_of: FileOf) -> None:
    if measure.fake_loader:
        raise InputError(
            "measure.fake_loader=true trains on one batch again and again, which reaches no target: set it to false "
            "for task=time_to_accuracy"
        )
    for key, value in (("target", measure.target), ("quality_metric", measure.quality_metric)):
        if value is None:
            raise InputError(
                f"task=time_to_accuracy trains until measure.quality_metric reaches measure.target, and measure.{key} "
                f"is null: set it, for example measure.quality_metric=val_accuracy measure.target=0.9; look in "
                f"{file_of(f'measure.{key}')}"
            )
