"""A setting's frozen config as typed dataclasses, with derived values and every key that accelsweep itself reads.

These are plain dataclasses because the worker uses them in other people's environments. Config keys are declared only
here: `config.schema` derives the validating pydantic models from these classes. The keys of a model, data set,
optimiser or Trainer are checked when that object is built.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, fields
from typing import Annotated, Any, Literal, NamedTuple, get_args

from accelsweep.errors import InputError
from accelsweep.plain_json import NO_OTHER_FIELDS
from accelsweep.tasks import task_of


@dataclass(frozen=True)
class Strict:
    """A field that only accepts values of its exact type (a float also accepts an int) within these bounds."""

    ge: float | None = None
    lt: float | None = None

    def __get_pydantic_core_schema__(self, source: Any, handler: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
        """Add the bounds to pydantic's schema for the type."""
        bounds = {name: bound for name, bound in vars(self).items() if bound is not None}
        finite = {"allow_inf_nan": False} if source is float else {}
        return {**handler(source), "strict": True, **finite, **bounds}


Count = Annotated[int, Strict(ge=1)]
Natural = Annotated[int, Strict(ge=0)]
Seed = Annotated[int, Strict(ge=0, lt=2**31)]
Seconds = Annotated[float, Strict(ge=0)]
Share = Annotated[float, Strict(ge=0, lt=1)]
Number = Annotated[float, Strict()]
Text = Annotated[str, Strict()]
Flag = Annotated[bool, Strict()]

Node = dict[str, Any]
"""A part of the config that is passed unchanged to the user's class or to the Trainer."""

Scaling = Literal["none", "linear", "sqrt"]


@dataclass(frozen=True)
class LearningRate:
    """How the learning rate depends on the batch size: keys of `optimizer` that are not passed to its class.

    `optimizer.lr` applies to a global batch of `base_batch_size` samples, and `lr_scaling` adapts it to other sizes.
    The rate is warmed up over the first `warmup_steps` optimiser steps. None has the same effect as omitting the key.
    """

    lr_scaling: Scaling | None = None
    base_batch_size: Count | None = None
    warmup_steps: Natural | None = None


LEARNING_RATE_KEYS = tuple(key.name for key in fields(LearningRate))


_SHORTEST_LIMIT_SECONDS = 3.0
"""Windows of a few milliseconds, as for trying things out, are not cut short by a hiccup of the machine."""


@dataclass(frozen=True)
class Measure:
    """How a run is measured. Lengths are given in steps, in training samples across all devices, or in seconds.

    None omits a phase (`probe_steps`, `matmul_steps`, `quality_samples`) or removes a bound (`max_samples`,
    `rank_memory_bytes`). `headroom` is the share of free memory that a search for the largest batch leaves unused. The
    search ends at `max_batch`, or once the batch size is known to within the relative `batch_resolution`. All three
    apply per rank. If `scope` is `process`, the user's own command is timed from its start to its exit. For the meaning
    of `max_seconds`, see `longest_seconds`.
    """

    warmup_steps: Natural
    min_steps: Count
    min_seconds: Seconds
    max_steps: Count
    max_seconds: Seconds | None = None
    scope: Literal["steps", "process"] = "steps"
    concurrency: Count = 1
    probe_steps: Count | None = None
    matmul_steps: Count | None = None
    fake_loader: Flag = False
    quality_samples: Count | None = None
    quality_metric: Text | None = None
    quality_better: Literal["max", "min"] | None = "max"
    target: Number | None = None
    validate_every_samples: Count | None = None
    max_samples: Count | None = None
    scenario: Literal["offline", "single_stream", "multi_stream", "server"] = "offline"
    headroom: Share = 0.1
    max_batch: Count = 65536
    batch_resolution: Share = 0.01
    rank_memory_bytes: Count | None = None

    @property
    def longest_seconds(self) -> float:
        """The seconds after which warm-up and window end, even if steps are missing; infinite if only steps count."""
        if self.max_seconds is not None:
            return self.max_seconds
        return max(3.0 * self.min_seconds, _SHORTEST_LIMIT_SECONDS) if self.min_seconds else math.inf

    @property
    def better(self) -> Literal["max", "min"]:
        """Whether a higher or a lower `quality_metric` is better; `max` if the config does not set it."""
        return self.quality_better or "max"

    @property
    def shared(self) -> bool:
        """Whether concurrent runs may share a machine while they are timed."""
        return self.concurrency > 1


@dataclass(frozen=True)
class CompileOptions:
    """Arguments of torch.compile, apart from its mode. If `dynamic` is None, torch decides after a first change."""

    dynamic: Flag | None = None
    fullgraph: Flag = False


@dataclass(frozen=True)
class LoaderOptions:
    """Arguments that replace those with which a DataLoader is built; None leaves an argument as it is."""

    num_workers: Natural | None = None
    prefetch_factor: Count | None = None
    pin_memory: Flag | None = None
    persistent_workers: Flag | None = None

    @property
    def replaced(self) -> dict[str, Any]:
        """The arguments that are replaced."""
        return {name: value for name, value in vars(self).items() if value is not None}


CompileMode = Literal["default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"]

MatmulPrecision = Literal["highest", "high", "medium"]

EVERY_BLOCK = "blocks"
"""The value of `activation_checkpointing` that stands for every block of a model, whatever its class."""

VERSION = "version"
"""The axis and config key that identify a version."""

TREE_VARIABLE = "ACCELSWEEP_TREE"
"""The environment variable that specifies the tree from which a run must import its modules (`worker.rank_setup`)."""

VersionKind = Literal["commit", "files", "environment"]


class Identity(NamedTuple):
    """The part of a setting's config that identifies its version."""

    kind: VersionKind
    digest: str

    @property
    def id(self) -> str:
        """The version's ID, 12 hexadecimal digits, which also names its folder."""
        return self.digest[:12]


ENTRY_AXES = ("accelerator", "devices", "num_nodes", "batch_size", "precision")
"""Axes that are written as arguments of the user's own script."""

LightningPackage = Literal["lightning", "pytorch_lightning"]

EntryKind = Literal["hydra", "lightning_cli", "script", "command"]
"""How an entry point takes its arguments: as Hydra overrides, as LightningCLI options, or in a way of its own.

A `command` is a program of any kind, of which only the time of the whole process is measured.
"""

PLACEHOLDER = re.compile(r"(?<!\$)\{(\w+)\}")
"""A placeholder in the user's command, such as `{batch_size}`; `${NAME}` is left to a shell."""


@dataclass(frozen=True)
class EntryPoint:
    """The user's own training script, as a setting runs it.

    `command` is the script's path or `-m` and a module, followed by the arguments that never change; `arguments` select
    this setting, and so do the `placeholders`, which map names in the command to their text. `run_arguments` are
    templates for each run, with `{seed}` and `{folder}`, the folder for its output. `trainer` contains arguments that
    replace those with which the script builds its Trainer. `variables` are environment variables for the script alone.
    `targets` maps axes to the keys or flags that set them, or to `env.VARIABLE`. `config` is the project's own composed
    config; None if the script has none. `global_batch` is the batch size that the script divides among its ranks; None
    if it is the batch size of each rank. `package` is the one whose Trainer the script uses; None if it uses none.
    `kept_values` maps calls of resolvers, such as `oc.env:DATA`, to what they return in all runs. `samples_per_step` is
    the number of samples in one batch of one rank; None if batches are counted. `quality_pattern` is a regular
    expression for a printed line, whose group is the quality; None if it is not printed.
    """

    kind: EntryKind
    command: tuple[str, ...]
    arguments: tuple[str, ...] = ()
    run_arguments: tuple[str, ...] = ()
    trainer: Node = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)
    targets: dict[str, list[str]] = field(default_factory=dict)
    config: Node | None = None
    global_batch: Count | None = None
    package: LightningPackage | None = "lightning"
    kept_values: dict[str, Any] = field(default_factory=dict)
    samples_per_step: Count | None = None
    quality_pattern: Text | None = None
    placeholders: dict[str, str] = field(default_factory=dict)

    @classmethod
    def from_json(cls, written: Mapping[str, Any]) -> EntryPoint:
        """Return the entry point from the output of `dataclasses.asdict`."""
        lists = ("command", "arguments", "run_arguments")
        return cls(**{**written, **{name: tuple(written[name]) for name in lists}})

    @property
    def shell_command(self) -> str:
        """The command that trains like this setting, without accelsweep."""
        variables = [f"{name}={shlex.quote(value)}" for name, value in self.variables.items()]
        command = [*(() if self.kind == "command" else ("python",)), *self.words()]
        return " ".join([*variables, shlex.join(command)])

    def words(self, **values: str) -> list[str]:
        """Return the command with its arguments; `values` replace placeholders that differ between runs.

        A word that is nothing but a placeholder becomes as many words as its text has, such as none or several flags.
        """
        known = {**self.placeholders, **values}
        words: list[str] = []
        for word in (*self.command, *self.arguments):
            name = match[1] if (match := PLACEHOLDER.fullmatch(word)) else None
            if name in self.placeholders:
                words += shlex.split(self.placeholders[name])
            else:
                words.append(PLACEHOLDER.sub(lambda match: known.get(match[1], match[0]), word))
        return words

    @property
    def trainer_call(self) -> str | None:
        """The Trainer that the script must build for this setting, if its arguments do not determine it."""
        given = ", ".join(f"{key}={value!r}" for key, value in self.trainer.items())
        return f"Trainer({given})" if given else None

    def fixed_arguments(self, axes: Collection[str]) -> dict[str, str]:
        """Return this setting's arguments by key, apart from those of the swept `axes`."""
        swept = {*axes, *(name for axis in axes for name in self.targets.get(axis, ()))}
        pairs = (argument.lstrip("+~-").partition("=") for argument in self.arguments)
        variables = {f"env.{name}": value for name, value in self.variables.items()}
        arguments = {**{key: value for key, _, value in pairs}, **variables, **self.trainer, **self.placeholders}
        return {key: str(value) for key, value in arguments.items() if key not in swept}


THREADS_VARIABLE = "OMP_NUM_THREADS"
"""The environment variable from which torch and Lightning take their number of CPU threads."""

PER_RUN = "{run}"
"""Stands for values that differ between runs of the same setting, such as `${now:}` and the output folder."""

MODULE_DATA = "accelsweep.workloads.data_module.ModuleData"
"""The `_target_` of `data=module`."""


@dataclass(frozen=True, eq=False)
class SettingConfig:
    """A setting's scientific config, which determines how its runs are measured.

    `raw` is the mapping as written, with the user's own keys, and must not be modified; configs with equal `raw` are
    equal. `devices` is the number of ranks per node, `batch_size` is per rank, `threads` is the number of CPU threads
    per rank (None: chosen on the machine), and `env` contains the run's environment variables. `batch_size` counts
    samples or, if the data fills its batches up to a budget, tokens (`batch_unit`).

    `matmul_precision` to `numa` apply to any module and loader. `activation_checkpointing` is `blocks` or the names of
    classes, and `gradient_accumulation` the number of batches in an optimiser step; None leaves both as they are.
    """

    raw: Mapping[str, Any]
    accelerator: str
    devices: Count
    batch_size: Count
    precision: str
    seed: Seed
    loop: Literal["lightning", "raw", "entry", "script"]
    measure: Measure
    model: Node = field(default_factory=dict)
    data: Node = field(default_factory=dict)
    entry: EntryPoint | None = None
    num_nodes: Count = 1
    launcher: Literal["fork", "spawn"] = "fork"
    threads: Count | None = None
    batch_unit: Literal["samples", "tokens"] = "samples"
    env: dict[str, str] = field(default_factory=dict)
    matmul_precision: MatmulPrecision | None = None
    compile: CompileMode | None = None
    compile_options: CompileOptions = field(default_factory=CompileOptions)
    channels_last: Flag | Literal["auto"] = False
    activation_checkpointing: Text | tuple[Text, ...] | None = None
    gradient_accumulation: Count | None = None
    loader: LoaderOptions = field(default_factory=LoaderOptions)
    numa: Natural | Literal["auto"] | None = None
    task: Text = "train_throughput"
    optimizer: Node | None = None
    trainer: Node = field(default_factory=dict)

    @classmethod
    def from_json(cls, written: Mapping[str, Any]) -> SettingConfig:
        """Return the config from the output of `dataclasses.asdict`, which has already been validated."""
        entry = written.get("entry")
        nested = {
            "measure": Measure(**written["measure"]),
            "entry": entry and EntryPoint.from_json(entry),
            "compile_options": CompileOptions(**written["compile_options"]),
            "loader": LoaderOptions(**written["loader"]),
        }
        return cls(**{**written, **nested})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SettingConfig) and self.raw == other.raw

    __hash__ = None  # type: ignore[assignment]  # key order does not affect equality

    @property
    def version(self) -> Identity | None:
        """The measured version, if the sweep compares versions; a user-defined key of the same name is ignored."""
        value = self.raw.get(VERSION)
        if not isinstance(value, Mapping) or len(value) != 1:
            return None
        ((kind, digest),) = value.items()
        return Identity(kind, digest) if kind in get_args(VersionKind) and isinstance(digest, str) else None

    @property
    def version_id(self) -> str | None:
        """The ID of the measured version, which also names its folder."""
        return self.version.id if self.version else None

    @property
    def task_name(self) -> str:
        """The name under which the task's rates are listed: `task` itself, or the variant selected by the config."""
        return task_of(self.task, self.raw).name

    @property
    def world_size(self) -> int:
        """The number of ranks in a run, across all nodes."""
        return self.devices * self.num_nodes

    @property
    def whole_process(self) -> bool:
        """Whether the time of the user's whole command is measured, which starts any further processes itself."""
        return self.measure.scope == "process"

    @property
    def ranks(self) -> int:
        """The number of processes that the executor starts."""
        return 1 if self.whole_process else self.world_size

    @property
    def options_from_outside(self) -> dict[str, Any]:
        """The options that are applied to modules and loaders from outside, as their keys and values."""
        names = ("matmul_precision", "compile", "activation_checkpointing", "gradient_accumulation", "numa")
        stated = {name: getattr(self, name) for name in names}
        loader = {f"loader.{name}": value for name, value in self.loader.replaced.items()}
        options = {**stated, "channels_last": self.channels_last or None, **loader}
        return {name: value for name, value in options.items() if value is not None}

    @property
    def accumulate(self) -> int:
        """The batches in each optimiser step, as far as the config determines them."""
        return self.gradient_accumulation or int(self.trainer.get("accumulate_grad_batches") or 1)

    @property
    def first_batch_size(self) -> int | None:
        """The samples that the first batch of each rank must contain; None if their number varies."""
        return self.batch_size if self.batch_unit == "samples" else None

    @property
    def samples_per_step(self) -> int:
        """The samples in one batch across all ranks; an optimiser step may accumulate several batches."""
        return self.batch_size * self.world_size

    @property
    def fixed_threads(self) -> int | None:
        """The CPU threads of each rank according to `threads` or `env.OMP_NUM_THREADS`; None if neither is set."""
        stated = self.env.get(THREADS_VARIABLE)
        return int(stated) if stated is not None else self.threads

    @property
    def divided_batch_size(self) -> int | None:
        """`data.batch_size` if the data divides it among several ranks, so that it is the global batch size."""
        batch_size = self.data.get("batch_size")
        return batch_size if self.world_size > 1 and batch_size == self.samples_per_step else None

    @property
    def device_model(self) -> str | None:
        """The part of the accelerator after the colon (`cuda:a100`): a node kind, or part of the device's name."""
        return str(self.raw["accelerator"]).partition(":")[2] or None

    @property
    def on_gpu(self) -> bool:
        """Whether the setting runs on something other than CPU cores."""
        return self.accelerator != "cpu"

    @property
    def learning_rate(self) -> LearningRate:
        """The keys of `optimizer` that accelsweep itself uses, including defaults."""
        stated = self.optimizer or {}
        return LearningRate(**{key: stated[key] for key in LEARNING_RATE_KEYS if key in stated})

    @property
    def model_target(self) -> str:
        """The dotted name of the model's class; empty if the config specifies none."""
        return str(self.model.get("_target_") or "")

    @property
    def data_target(self) -> str:
        """The dotted name of the data's class; empty if the config specifies none."""
        return str(self.data.get("_target_") or "")

    @property
    def data_from_module(self) -> bool:
        """Whether the module provides its own data, in which case all of `model` determines the data."""
        return self.data_target == MODULE_DATA

    @property
    def recomputed_classes(self) -> tuple[str, ...]:
        """The names of the classes, or `EVERY_BLOCK`, whose activations are recomputed in the backward pass."""
        stated = self.activation_checkpointing
        return (stated,) if isinstance(stated, str) else tuple(stated or ())

    @property
    def all_folds(self) -> bool:
        """Whether each fold of built-in data is held out in turn (`data.fold=all`)."""
        return self.data.get("fold") == "all"

    @property
    def class_column(self) -> str | None:
        """The column that contains the classes (`data.target`) of tabular data."""
        target = self.data.get("target")
        return None if target is None else str(target)


class RunName(NamedTuple):
    """The parts of a run's name: the setting's name and the zero-based repeat number."""

    setting: str
    repeat: int


@dataclass(frozen=True, slots=True)
class Run:
    """One repeat of one setting, which is the unit of measurement.

    `seed` is the setting's seed plus the number of its earlier blocks, which usually equals the repeat number. Runs of
    a setting in the same block share a seed.
    """

    __pydantic_config__ = NO_OTHER_FIELDS

    name: str
    setting: str
    repeat: int
    seed: int

    @classmethod
    def of(cls, setting: str, repeat: int, seed: int) -> Run:
        """Return the run for repeat `repeat` (zero-based) of `setting`, given the seed of repeat 0."""
        return cls(name=f"{setting}-r{repeat}", setting=setting, repeat=repeat, seed=seed + repeat)

    @staticmethod
    def parse(name: str) -> RunName:
        """Parse a run's name into setting and repeat. Raises InputError for any other text."""
        setting, _, repeat = name.rpartition("-r")
        if not setting or not (repeat.isascii() and repeat.isdecimal()):
            raise InputError(f"{name!r} is not a run name: run names have the form SETTING-rK for repeat K")
        return RunName(setting, int(repeat))
