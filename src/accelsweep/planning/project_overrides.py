"""Decides which of the two configs an override belongs to, and translates axes into the project's own arguments.

accelsweep's config (axes and options) and the project's config are composed separately. An override goes to the project
if the project's config has its key. If both have the key, it must be written as `sweep.KEY` or `project.KEY`.
"""

from __future__ import annotations

import itertools
import math
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from hydra.core.override_parser.types import Override

from accelsweep.config.grid import GridPoint, axis_name, plan_config_of
from accelsweep.config.hydra import Composer, Grid
from accelsweep.config.hydra_errors import dotted_keys
from accelsweep.config.setting import PLAN_KEYS
from accelsweep.devices import kinds
from accelsweep.errors import InputError, nearest
from accelsweep.plain_json import MISSING, canonical_json, look_up
from accelsweep.planning.axis_targets import (
    VARIABLE,
    AxisTarget,
    device_name,
    launcher_variables,
    script_target,
)
from accelsweep.planning.entry_point import PROJECT_FILE, Project, option_for
from accelsweep.planning.project_config import Composed, ProjectConfigs
from accelsweep.records.plan import UNKNOWN_BATCH_SIZE, BatchMeaning, Quality, TrialFindings
from accelsweep.redaction import without_secrets
from accelsweep.run_config import ENTRY_AXES, PER_RUN, PLACEHOLDER

DEFAULT_AXES = frozenset({"batch_size", "precision", "devices", "num_nodes"})
"""Axes that replace the default ones: if one of them or a key of the project is typed, no axis is added."""

DEFAULT_MINUTES = 10.0
"""Approximate duration of a sweep for which no axis was typed."""

_DEFAULT_REPEATS = 3

_LEAST_RUN_SECONDS = 5.0
"""Rough duration of a run outside its window: the project's imports, loading data, the warm-up and the probe pass."""

OURS, THEIRS = "sweep.", "project."
"""Prefixes that say which config an override belongs to."""

QUALITY = "quality="
"""Begins an override that contains a metric or a regular expression, which Hydra's grammar cannot read."""

ARGUMENT = "arg."
"""Prefix of options that are passed to a script without looking for them in its source."""

_LIGHTNING_PRECISIONS = {"16": "16-mixed", "bf16": "bf16-mixed", "32": "32-true", "64": "64-true"}
"""Lightning's former names for precisions -> its current ones."""

_TRAINER_OPTIONS = {"batch_size": ("batch_size", "train_batch_size", "bs"), "devices": ("devices", "gpus")}
"""Axis -> the names of options that may set it, for a script that builds a Trainer; by default the axis itself."""


@dataclass(frozen=True)
class SplitOverrides:
    """Overrides as typed, divided between accelsweep and the project."""

    ours: tuple[str, ...]
    theirs: tuple[str, ...]


@dataclass(frozen=True)
class Passed:
    """What is passed to the project: arguments, replacements of the Trainer's arguments, and environment variables."""

    arguments: list[str] = field(default_factory=list)
    trainer: dict[str, Any] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)

    def with_axis(self, other: Passed) -> Passed:
        """Return this with what passes a further axis."""
        return Passed(self.arguments + other.arguments, self.trainer | other.trainer, self.variables | other.variables)


_TRAINER_ARGUMENT = AxisTarget(how="replaces the Trainer's argument")


@dataclass
class ProjectGrid:
    """The project's side of a grid: where overrides and axes go, and the config of each point.

    `trial` is what a trial of the script has shown; None if there was none. `kept` are values of the environment that
    an earlier plan of the sweep found. `untyped` collects the axes whose values come from the project. `found` collects
    the values that this plan uses, and `today` what the resolvers return today. `quality_pattern` finds the quality in
    what the script prints; None if it is not printed.
    """

    project: Project
    configs: ProjectConfigs | None
    minutes: float | None
    trial: TrialFindings | None = None
    kept: Mapping[str, Any] = field(default_factory=dict)
    auto: str = "cpu"
    notes: list[str] = field(default_factory=list)
    defaults: list[str] = field(default_factory=list)
    untyped: dict[str, Any] = field(default_factory=dict)
    found: dict[str, Any] = field(default_factory=dict)
    today: dict[str, Any] = field(default_factory=dict)
    quality_pattern: str | None = None

    @cached_property
    def base(self) -> Composed:
        """The project's own config, without overrides; empty for a script."""
        return self._compose(())

    def _compose(self, arguments: Sequence[str]) -> Composed:
        if self.configs is None:
            return Composed(dict(self.project.options), {}, {})
        return self.configs.compose(arguments, self.kept)

    def _keep_values(self, composed: Composed) -> dict[str, Any]:
        """Return the values of the environment that a setting's runs shall get.

        URLs with passwords are not kept, because others can read the manifest, nor are paths in the project, which may
        be moved.
        """
        home, kept = str(self.project.home), {}
        for call, today in composed.values.items():
            value = self.kept.get(call, today)
            if without_secrets([call, value]) == [call, value] and not f"{value}/".startswith(f"{home}/"):
                kept[call] = value
                self.today[call] = today
        self.found |= kept
        return kept

    def _note_values(self) -> None:
        different = {call: today for call, today in self.today.items() if today != self.found[call]}
        for call, today in different.items():
            self.notes.append(
                f"${{{call}}} is {today} today but was {self.found[call]} when this sweep was planned, and its runs "
                f"keep using {self.found[call]}: to use today's value, choose another --name"
            )
        if kept := [f"${{{call}}}={value}" for call, value in self.found.items() if call not in different]:
            self.notes.append(f"kept for all runs of this sweep: {', '.join(kept)}")

    @property
    def torch(self) -> str | None:
        """The version of torch in the project's own environment; None if runs use accelsweep's."""
        return self.project.measured.software.get("torch")

    @cached_property
    def batch_meaning(self) -> BatchMeaning | None:
        """What the script's batch size means on several ranks; None if unknown."""
        return self.project.file.batch_is or (None if self.trial is None else self.trial.batch_is)

    # Overrides

    def split(self, composer: Composer, overrides: Sequence[str], known: Sequence[str]) -> SplitOverrides:
        """Divide overrides; `known` are the top-level keys and groups of accelsweep's config.

        Raises InputError for a key that neither config has, or that both have, and for a command whose steps cannot be
        watched.
        """
        if self.project.entry.kind == "command" and not self.project.whole_process:
            raise InputError(
                f"the steps of `{self.project.command}` cannot be watched, because it is not of the form `python "
                "SCRIPT`: add measure.scope=process to compare the time of the whole process"
            )
        ours: list[str] = []
        theirs: list[str] = []
        for line in overrides:
            if line.startswith(QUALITY):
                if self.project.whole_process:
                    raise InputError(f"{line}: measure.scope=process reads no quality, only the time of the process")
                ours += self._quality_overrides(line)
                continue
            override = composer.parse(line)
            key = override.key_or_group
            if line == "batch_size=auto" or (key == "task" and line != "task=train_throughput"):
                remedy = "set batch_size to numbers" if key == "batch_size" else "only task=train_throughput is"
                raise InputError(f"{line} is not possible with a script of your own: {remedy}")
            if key.startswith(OURS):
                ours.append(line.replace(OURS, "", 1))
            elif key.startswith(THEIRS):
                theirs.append(line.replace(THEIRS, "", 1))
            elif key.startswith(ARGUMENT) and self.project.entry.kind in ("script", "command"):
                theirs.append(line.replace(ARGUMENT, "", 1))
            elif key in ENTRY_AXES or override.is_hydra_override():
                ours.append(line)
            else:
                self._assign(line, override, known, ours, theirs)
        if theirs:
            self.notes.append(f"passed on to {self.project.entry.name}: {' '.join(theirs)}")
        return SplitOverrides(tuple(ours), tuple(theirs))

    def _assign(self, line: str, override: Override, known: Sequence[str], ours: list[str], theirs: list[str]) -> None:
        key = override.key_or_group
        is_ours = key.partition(".")[0].partition("/")[0] in known
        is_theirs = self._has(override, is_ours)
        if is_ours and is_theirs:
            raise InputError(
                f"{line}: both accelsweep and the project have the key '{key}': write {OURS}{line} or {THEIRS}{line}"
            )
        if not is_ours and not is_theirs:
            words = [*known, *ENTRY_AXES, *self._their_keys]
            hint = nearest(key, words)
            add = {
                "hydra": f"; to add a key to the project's config, write +{line}",
                "script": f"; to pass it on as --{key} in any case, write {ARGUMENT}{line}",
                "command": f"; to pass it on as an option, write {ARGUMENT}{line}, or put {{{key}}} into the command",
            }.get(self.project.entry.kind, "")
            raise InputError(f"{line}: neither accelsweep nor {self.project.entry.name} has the key '{key}'{hint}{add}")
        adds = key.startswith(VARIABLE) and not override.is_add() and not override.is_force_add()
        (ours if is_ours else theirs).append(f"+{line}" if is_ours and adds else line)

    def _has(self, override: Override, is_ours: bool) -> bool:
        key = override.key_or_group
        if self.project.entry.kind in ("script", "command"):
            return key in self.placeholders or option_for(self.project.options, key) is not None
        if key in self.base.choices or look_up(self.base.config, key) is not MISSING:
            return True
        adds = override.is_add() or override.is_force_add() or override.is_delete() or "/" in key
        return adds and not is_ours  # `+prices.devices.cuda=2` adds to a mapping of accelsweep's

    @cached_property
    def _their_keys(self) -> list[str]:
        return [*dotted_keys(self.base.config), *self.base.choices, *sorted(self.project.options)]

    @cached_property
    def quality(self) -> Quality | None:
        """The quality metric and its direction, or None if nothing names one.

        They come from `accelsweep.yaml`, or else from the `ModelCheckpoint` or `EarlyStopping` of the config or of the
        trial's Trainer, or else from `optimized_metric`, whose direction is guessed from its name.
        """
        if self.project.file.quality is not None:
            return self.project.file.quality
        config = self.base.config
        for name in ("ModelCheckpoint", "EarlyStopping"):
            for _, node in _mappings(config):
                target = str(node.get("_target_", node.get("class_path", "")))
                given = node.get("init_args", node)
                if target.endswith(f".{name}") and isinstance(given, Mapping) and given.get("monitor"):
                    mode = given.get("mode") or "min"
                    return Quality(metric=str(given["monitor"]), better="max" if mode == "max" else "min")
        if self.trial is not None and self.trial.quality is not None:
            return self.trial.quality
        metric = config.get("optimized_metric")
        if not isinstance(metric, str):
            return None
        return Quality(metric=metric, better="min" if "loss" in metric or "error" in metric else "max")

    def quality_overrides(self, typed: Sequence[str]) -> list[str]:
        """Return the `measure` overrides for the project's quality metric; empty if `typed` names a metric itself."""
        if self.project.whole_process:
            self.notes.append(
                "measure.scope=process: each run is timed as a whole, from the start of the command to its exit; its "
                "steps, quality and effective settings are not seen"
            )
            return ["measure.quality_samples=null", "measure.quality_metric=null", "measure.min_seconds=0"]
        if self.project.package is None:
            return self._script_quality(typed)
        if any(line.startswith("measure.quality_metric=") for line in typed):
            return []
        if self.quality is None:
            if "measure.quality_samples=null" in typed:
                return ["measure.quality_metric=null"]
            self.notes.append(
                "quality is not measured, because no ModelCheckpoint, EarlyStopping or optimized_metric names a "
                "metric: set quality=METRIC to one that the validation logs"
                if self.trial is not None
                else "quality: the config names no metric; before a run on this machine, the trial looks for a "
                "ModelCheckpoint or EarlyStopping that the script builds in code; elsewhere, set quality=METRIC"
            )
            return ["measure.quality_samples=null", "measure.quality_metric=null"]
        self.notes.append(f"quality: {self.quality.metric} ({self.quality.better} is better), from the project")
        return [f"measure.quality_metric='{self.quality.metric}'", f"measure.quality_better={self.quality.better}"]

    def _quality_overrides(self, line: str) -> list[str]:
        """Return the `measure` overrides for `quality=METRIC` or `quality=PATTERN`, each perhaps with `:min`."""
        metric, better = line.removeprefix(QUALITY), "max"
        if len(metric) > 1 and metric[0] == metric[-1] and metric[0] in "'\"":
            metric = metric[1:-1]
        if metric.endswith((":min", ":max")):
            metric, _, better = metric.rpartition(":")
        if not metric or (":" in metric and "(" not in metric):
            raise InputError(f"{line}: write quality=METRIC, or quality=METRIC:min if lower values are better")
        return self._metric_overrides(line, metric, better)

    def _metric_overrides(self, where: str, metric: str, better: str) -> list[str]:
        if "(" in metric:
            if self.project.package is not None:
                raise InputError(
                    f"{where}: with a Lightning Trainer, quality is a metric that the validation logs, not a pattern"
                )
            self.quality_pattern = metric
            try:
                groups = re.compile(metric).groups
            except re.error as error:
                raise InputError(f"{where} is not a valid regular expression: {error}") from None
            if groups != 1:
                raise InputError(f"{where}: the regular expression needs one group, around the number")
            words = re.search(r"[^\W\d][\w/]*( [\w/]+)*", re.sub(r"\\.", " ", metric.partition("(")[0]))
            metric = "quality" if words is None else words[0]
        return [f"measure.quality_metric='{metric}'", f"measure.quality_better={better}"]

    def _script_quality(self, typed: Sequence[str]) -> list[str]:
        """Return the overrides for a script whose quality is read at its own end, if it names a metric."""
        given = [line for line in typed if line.startswith("measure.quality_metric=")]
        stated = self.project.file.quality
        if not given and stated is not None:
            given = self._metric_overrides(f"quality in {PROJECT_FILE}", stated.metric, stated.better)
        elif not given:
            self.notes.append(
                "quality is not measured, because the script's validation cannot be called from outside: to read it at "
                "the script's own end, set quality=METRIC or, for what it prints, quality='accuracy: ([0-9.]+)'"
            )
            return ["measure.quality_samples=null", "measure.quality_metric=null"]
        what = "of its evaluation or accelsweep.quality"
        if self.quality_pattern is not None:
            what = f"of what it prints, {self.quality_pattern!r}"
        self.notes.append(f"quality: the last value {what}; each run trains to the script's own end for it")
        return ["measure.quality_samples=null", *(line for line in given if line not in typed)]

    # Axes

    @cached_property
    def targets(self) -> dict[str, AxisTarget | str]:
        """Where each axis goes, or, for an axis that cannot be passed to the project, the reason."""
        return {axis: self._target(axis) for axis in ENTRY_AXES}

    def _target(self, axis: str) -> AxisTarget | str:
        given = self.project.file.values.get(axis, {})
        if (key := self.project.file.axes.get(axis)) is not None:
            if key.startswith(VARIABLE):
                return AxisTarget(variable=key.removeprefix(VARIABLE), values=given or None)
            return self._existing_or_added(key.lstrip("-"))
        if axis in self.placeholders:
            return AxisTarget(how=f"replaces {{{axis}}} in the command")
        options = self.project.options
        if self.project.whole_process:
            found = script_target(axis, options, given, None, starts_ranks=True)
            return found or self._unmapped(axis, [])
        if self.project.entry.kind == "script" and self.project.package is None:
            found = script_target(axis, options, given, self.project.entry.launcher)
            return found or self._unmapped(axis, [])
        if self.project.entry.kind == "script":
            option = option_for(options, *_TRAINER_OPTIONS.get(axis, (axis,)))
            if option is None:
                return self._unmapped(axis, []) if axis == "batch_size" else _TRAINER_ARGUMENT
            return AxisTarget(option)
        if axis == "batch_size":
            return self._batch_size_target()
        node = self._trainer_node
        return _TRAINER_ARGUMENT if node is None else self._existing_or_added(f"{node}.{axis}")

    def _existing_or_added(self, key: str) -> AxisTarget:
        return AxisTarget(key, added=look_up(self.base.config, key) is MISSING)

    @cached_property
    def _trainer_node(self) -> str | None:
        """The dotted key of the Trainer's arguments in the project's config; None if there is none."""
        config = self.base.config
        nodes = [key for key, value in _mappings(config) if str(value.get("_target_", "")).endswith(".Trainer")]
        if not nodes:
            nodes = [key for key, value in _mappings(config) if {"max_epochs", "accelerator"} <= {*value}]
        if not nodes and isinstance(config.get("trainer"), Mapping):
            nodes = ["trainer"]
        return nodes[0] if nodes else None

    def _batch_size_target(self) -> AxisTarget | str:
        keys = [
            key
            for key in dotted_keys(self.base.config)
            if key.rpartition(".")[2] in ("batch_size", "train_batch_size", "batch_size_train")
            and isinstance(look_up(self.base.config, key), int)
        ]
        train = [key for key in keys if not {"val", "test", "eval", "valid", "predict"} & {*key.split(".")}]
        preferred = [key for key in train if key.split(".")[0] in ("data", "datamodule", "dataset", "dataloader")]
        for candidates in (preferred, train):
            if len(candidates) == 1:
                return AxisTarget(candidates[0])
        return self._unmapped("batch_size", preferred or train)

    def _unmapped(self, axis: str, candidates: Sequence[str]) -> str:
        script = self.project.entry.kind in ("script", "command")
        found = f"several keys match ({', '.join(candidates)})" if candidates else "no key matches"
        if script:
            options = ", ".join(f"--{option}" for option in self.project.options)
            found = f"its options are {options}" if options else "it declares no options"
        example = candidates[0] if candidates else "train-batch" if script else "data.batch_size"
        if self.project.entry.kind == "command":
            found = f"the command has no placeholder {{{axis}}}"
        elif (named := next((word for word in self.project.entry.command if f"{{{axis}}}" in word), None)) is not None:
            found = f"{{{axis}}} in its command is replaced only with measure.scope=process"
            example = named.partition("=")[0].lstrip("-") if "=" in named else example
        if axis == "precision":
            return (
                f"cannot tell how {self.project.entry.name} is told its precision, because {found}: write its "
                f"flags into {PROJECT_FILE}, for example `values: {{precision: {{32-true: '', bf16-mixed: --bf16}}}}`"
            )
        return (
            f"cannot tell which argument of {self.project.entry.name} sets {axis}, because {found}: write it into "
            f"{PROJECT_FILE}, for example `axes: {{{axis}: {example}}}`"
        )

    def value_of(self, axis: str, config: Mapping[str, Any]) -> Any:
        """Return the value of an axis in the project's composed config, in accelsweep's terms; None if unset."""
        target = self.targets[axis]
        if isinstance(target, str) or target.key is None:
            return None
        value = look_up(config, target.key)
        return None if value is MISSING or value in ("???", PER_RUN) else self._in_our_words(axis, value)

    def _in_our_words(self, axis: str, value: Any) -> Any:
        target = self.targets[axis]
        known = target.values if axis == "precision" and isinstance(target, AxisTarget) and target.values else {}
        stated = {**known, **self.project.file.values.get(axis, {})}
        ours = {canonical_json(theirs): word for word, theirs in stated.items()}
        if (word := ours.get(canonical_json(value))) is not None:
            return int(word) if axis in ("devices", "num_nodes", "batch_size") else word
        if axis == "accelerator":
            if value == "auto" or (value == "gpu" and self.auto != "cpu"):
                return self.auto
            return "cpu" if value is None else {"gpu": "cuda"}.get(str(value), str(value))
        if axis == "devices":
            if isinstance(value, str) and "," in value:
                value = [part for part in value.split(",") if part.strip()]
            if isinstance(value, Sequence) and not isinstance(value, str):
                return len(value)
            return None if value in ("auto", -1, "-1") else int(value)
        if axis == "precision":
            return "32-true" if value is None else _LIGHTNING_PRECISIONS.get(str(value), str(value))
        return value

    def passed(self, axis: str, value: Any) -> Passed | str:
        """Return how an axis value is passed to the project, or the reason why it cannot be."""
        target = self.targets[axis]
        if isinstance(target, str):
            return target
        word = str(value).partition(":")[0] if axis == "accelerator" else str(value)
        theirs: Any = value
        if axis == "accelerator" and target.values is None:
            theirs = device_name(word, target.key or target.variable or axis)
        given = {**(target.values or {}), **self.project.file.values.get(axis, {})}
        if str(value) in given or word in given:
            theirs = given.get(str(value), given.get(word))
        elif target.values is not None:
            return (
                f"cannot tell how {self.project.entry.name} is told {axis}={value}: write its own word for it under "
                f"`values` in {PROJECT_FILE}; known are {', '.join(target.values)}"
            )
        if target.variable is not None:
            return Passed(variables={target.variable: str(theirs)})
        if target.key is None:
            return Passed(shlex.split(theirs)) if target.values is not None else self._replaced(axis, theirs)
        if self.project.entry.kind == "hydra":
            return Passed([f"{'++' if target.added else ''}{target.key}={_hydra_text(theirs)}"])
        return Passed([f"--{target.key}={theirs}"])

    def _replaced(self, axis: str, value: Any) -> Passed:
        return Passed(trainer={} if self.project.package is None else {axis: value})

    @cached_property
    def placeholders(self) -> frozenset[str]:
        """The names in braces in the command, if they are replaced: axes, and keys of the user's own."""
        words = self.project.entry.command if self.project.whole_process else ()
        return frozenset(name for word in words for name in PLACEHOLDER.findall(word)) - {"run_dir", "seed"}

    def filling(self, axis: str, value: Any) -> str:
        """Return what replaces an axis's placeholder. Raises InputError if the command's own word is unknown."""
        theirs = self.project.file.values.get(axis, {})
        word = str(value).partition(":")[0] if axis == "accelerator" else str(value)
        if word in theirs:
            return str(theirs[word])
        if axis in ("accelerator", "precision"):
            raise InputError(
                f"{{{axis}}} in the command would become {word}, which is accelsweep's own word: write the command's "
                f"word for it under values in {PROJECT_FILE}, for example `values: {{{axis}: {{{word}: "
                f"{word.partition('-')[0]}}}}}`"
            )
        if value is None:
            raise InputError(f"{{{axis}}} in the command has no value: type {axis}=NUMBER")
        return word

    def _fillings(self, typed: Mapping[str, Any], own: Sequence[str]) -> dict[str, str]:
        """Return what replaces each placeholder at one point. Raises InputError for a mistyped one."""
        texts = {line.partition("=")[0]: line.partition("=")[2] for line in own}
        fillings = {}
        for name in sorted(self.placeholders):
            if name in texts:
                fillings[name] = texts[name]
            elif name in ENTRY_AXES:
                value = typed.get(name, self._default(name))
                fillings[name] = self.filling(name, self.auto if value == "auto" else value)
            elif hint := nearest(name, (*ENTRY_AXES, "run_dir", "seed", *texts)):
                raise InputError(f"{{{name}}} in the command stands for nothing{hint}")
        return fillings

    def own_argument(self, line: str, override: Override) -> list[str]:
        """Return the argument that passes a single-valued override to the project."""
        if self.project.entry.kind == "hydra":
            return [line]
        key = override.key_or_group
        if key in self.placeholders:
            return []
        value = line.partition("=")[2]
        return [f"--{option_for(self.project.options, key) or key}={value}"]

    def run_arguments(self) -> tuple[str, ...]:
        """Return templates for the arguments that differ between runs."""
        templates = []
        seed = self.project.file.axes.get("seed", "").lstrip("-")
        if self.project.entry.kind == "hydra":
            templates += ["hydra.mode=RUN", "hydra.run.dir='{folder}'"]
            if seed or "seed" in self.base.config:
                templates.append(f"{seed or 'seed'}={{seed}}")
        elif self.project.entry.kind == "lightning_cli":
            if seed or "seed_everything" in self.base.config:
                templates.append(f"--{seed or 'seed_everything'}={{seed}}")
        elif option := seed or option_for(self.project.options, "seed"):
            templates.append(f"--{option}={{seed}}")
        return tuple(templates)

    # A sweep without axes

    def default_axes(self) -> list[str]:
        """Return the overrides for a sweep without typed axes: default axes, and windows short enough for `minutes`.

        The project's own values come first, which makes them the baseline.
        """
        assert self.minutes is not None, "the caller has checked"
        minutes = self.minutes
        axes: dict[str, list[Any]] = {
            "batch_size": self._default_batch_sizes(),
            "precision": self._default_precisions(),
        }
        axes["devices"] = self._default_devices()
        axes = {axis: values for axis, values in axes.items() if len(values) > 1}
        left_out = []
        budget = 60 * minutes
        while math.prod(map(len, axes.values())) * _DEFAULT_REPEATS * _LEAST_RUN_SECONDS > budget:
            longest = max(axes, key=lambda axis: len(axes[axis]))
            if len(axes[longest]) == 1:
                break
            left_out.append(f"{longest}={axes[longest].pop()}")
        runs = (math.prod(map(len, axes.values())) + 1) * _DEFAULT_REPEATS
        window = min(5.0, max(1.0, round(budget / runs - _LEAST_RUN_SECONDS, 1)))
        self.notes.append(
            f"no axis was given: varying {', '.join(axes)} around the project's own values for about {minutes:g} "
            "minutes (--minutes)" + (f"; left out: {', '.join(left_out)}" if left_out else "")
        )
        chosen = [f"{axis}={','.join(map(str, values))}" for axis, values in axes.items()]
        return [*chosen, f"repeats={_DEFAULT_REPEATS}", f"measure.min_seconds={window}", "measure.min_steps=20"]

    def _default_batch_sizes(self) -> list[int]:
        size = self.value_of("batch_size", self.base.config)
        return [size, 2 * size, 4 * size] if isinstance(size, int) else []

    def _default_precisions(self) -> list[str]:
        own = self.value_of("precision", self.base.config) or "32-true"
        if isinstance(self.targets["precision"], str):
            return [own]
        return [own, *(other for other in ("32-true", "bf16-mixed") if other != own)]

    def _default_devices(self) -> list[int]:
        kind = self.value_of("accelerator", self.base.config) or self.auto
        own = self.value_of("devices", self.base.config) or 1
        if kind == "cpu" or self.project.package is None:
            return [own]
        count = sum(device.count for device in kinds.inventory(self.torch) if device.accelerator == kind)
        return [own, *(other for other in (1, count) if other not in (own, 0))]

    # Points

    def points(self, composer: Composer, grid: Grid, theirs: Sequence[str]) -> Iterator[GridPoint]:
        """Yield the grid's points: every job of accelsweep's grid with every combination of the project's values."""
        from omegaconf import OmegaConf

        own = [composer.parse(line) for line in theirs]
        values = [_single_values(line, override) for line, override in zip(theirs, own, strict=True)]
        swept = [index for index, override in enumerate(own) if override.is_sweep_override()]
        for job in grid.jobs:
            config: Any = composer.compose_for_grid(job)
            keys = [key for key in config if key != "hydra"]
            base: Any = OmegaConf.to_container(OmegaConf.masked_copy(config, keys), resolve=True)
            ours = {key: value for key, value in base.items() if key not in PLAN_KEYS}
            plan_config = plan_config_of(composer, job)
            typed = {composer.parse(line).key_or_group: composer.parse(line).value() for line in job}
            for combination in itertools.product(*values):
                axes = {
                    axis_name(composer.parse(job[index])): typed[composer.parse(job[index]).key_or_group]
                    for index in grid.swept
                }
                axes |= {axis_name(own[index]): composer.parse(combination[index]).value() for index in swept}
                yield self._point(composer, ours, typed, combination, axes, plan_config)
        self._note_values()
        if self.untyped:
            untyped = ", ".join(f"{axis}={value}" for axis, value in self.untyped.items())
            self.notes.append(f"not typed, so the project's own values are used: {untyped}")

    def _point(
        self,
        composer: Composer,
        ours: Mapping[str, Any],
        typed: Mapping[str, Any],
        own: Sequence[str],
        axes: dict[str, Any],
        plan_config: dict[str, Any],
    ) -> GridPoint:
        """Return the point of a job with accelsweep's part of the config, `ours`, which the job's points share."""
        scientific = dict(ours)
        if (scientific["measure"]["scope"] == "process") != self.project.whole_process:
            raise InputError("measure.scope: steps and whole processes have no rate in common: type one of them, once")
        passed = Passed(
            [word for line in own for word in self.own_argument(line, composer.parse(line))],
            variables={} if self.project.whole_process else launcher_variables(self.project.entry.launcher),
        )
        reasons = []
        for axis in ENTRY_AXES:
            if axis not in typed:
                continue
            value = self.auto if typed[axis] == "auto" else typed[axis]
            scientific[axis] = value
            found = self.passed(axis, value)
            if isinstance(found, str):
                reasons.append(found)
            else:
                passed = passed.with_axis(found)
        composed = self._compose(passed.arguments)
        for axis in ENTRY_AXES:
            if axis not in typed:
                found = self.value_of(axis, composed.config)
                scientific[axis] = self._default(axis) if found is None else found
                if found is None and axis == "batch_size" and self.project.whole_process:
                    scientific[axis] = 1  # the command's own, which nothing depends on
                elif found is None and axis == "batch_size":
                    tried = None if self.trial is None else self.trial.batch_size
                    scientific[axis] = 1 if tried is None else tried
                    reasons += [UNKNOWN_BATCH_SIZE] if tried is None else []
                elif found is not None:
                    self.untyped[axis] = found
        if self.project.package is None:
            scientific["loop"] = "script"
        if self.batch_meaning == "tokens":
            scientific["batch_unit"] = "tokens"
        scientific["entry"] = {
            "kind": self.project.entry.kind,
            "command": list(self.project.entry.command),
            "arguments": passed.arguments,
            "run_arguments": list(self.run_arguments()),
            "trainer": passed.trainer,
            "variables": passed.variables,
            "targets": {
                axis: target.names
                for axis, target in self.targets.items()
                if not isinstance(target, str) and target.names
            },
            "config": None if self.configs is None else composed.config,
            "package": self.project.package,
            "kept_values": self._keep_values(composed),
            "quality_pattern": self.quality_pattern,
            "placeholders": self._fillings(typed, own),
        }
        reasons += [] if reasons else filter(None, [self._divide_batch(scientific)])
        stated = self.project.file.samples_per_step
        scientific["entry"]["samples_per_step"] = scientific["batch_size"] if stated == "batch_size" else stated
        unsupported = "; ".join(reasons) or None
        return GridPoint(axes, scientific, plan_config, composed.choices, frozenset(), unsupported)

    def _default(self, axis: str) -> Any:
        return {"accelerator": self.auto, "devices": 1, "num_nodes": 1, "precision": "32-true"}.get(axis)

    def _divide_batch(self, scientific: dict[str, Any]) -> str | None:
        """Convert a global batch size to one per rank; return the reason if that is impossible."""
        ranks, batch = scientific["devices"] * scientific["num_nodes"], scientific["batch_size"]
        if self.project.whole_process:
            return None
        if self.batch_meaning != "global" or ranks == 1:
            return None
        scientific["entry"]["global_batch"] = batch
        if batch % ranks:
            return f"batch_size={batch} is this project's global batch size, which {ranks} ranks cannot divide evenly"
        scientific["batch_size"] = batch // ranks
        return None


def _mappings(value: Any, prefix: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    if prefix and isinstance(value, Mapping):
        yield prefix, value
    items = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from _mappings(item, f"{prefix}.{key}" if prefix else str(key))


def _single_values(line: str, override: Override) -> list[str]:
    """Split an override with several values into one override per value."""
    if not override.is_sweep_override():
        return [line]
    key = line.partition("=")[0]
    return [f"{key}={value}" for value in override.sweep_string_iterator()]


def _hydra_text(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)
