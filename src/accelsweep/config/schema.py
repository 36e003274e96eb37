"""The config of a cell, typed: every key that accelsweep itself reads, with its derived values.

Plain mappings become a `CellConfig` where they enter: a plan's grid, a block's file, a run's spec, a record. After that
no code reads a key of ours by its name as text. The keys of a model, a data set, an optimizer or the Trainer are not
typed here. They are nodes of the mapping, and they are checked where they are built.

A record or a block of an older version may lack keys that came later, or hold some that are gone. The defaults stand
here, once, and unknown keys are ignored. The plan is strict where it checks new configs (`planning.config_validation`).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    PrivateAttr,
    StrictBool,
    StrictStr,
    model_serializer,
    model_validator,
)

from accelsweep.config.tasks import task_of, tasks
from accelsweep.config.versions import Identity, identity_in
from accelsweep.devices.kinds import Accelerator
from accelsweep.errors import nearest
from accelsweep.json_documents import Amount, Count, Natural, StrictShareFrom0, canonical_json, sha256_text

# The keys of `optimizer` that are ours: they set the learning rate, and are not handed to the optimiser's class.

Scaling = Literal["none", "linear", "sqrt"]


class LearningRate(BaseModel):
    """The way the learning rate follows the batch. The optimiser's own keys beside these are ignored.

    `optimizer.lr` is meant for a global batch of `base_batch_size` samples, and `lr_scaling` makes it fit another. It
    grows to its value over the first `warmup_steps` optimiser steps. None is the same as leaving the key out.
    """

    model_config = ConfigDict(frozen=True)

    lr_scaling: Scaling | None = None
    base_batch_size: Count | None = None
    warmup_steps: Natural | None = None


# Values that are read from a mapping, typed, and written back as that very mapping.


class Verbatim(BaseModel):
    """A frozen value with typed fields that also keeps the mapping it was read from, and is equal where those are."""

    model_config = ConfigDict(frozen=True, protected_namespaces=())

    _raw: dict[str, Any] = PrivateAttr(default_factory=dict)

    @property
    def raw(self) -> dict[str, Any]:
        """The mapping as it was written, keys of the user's own included. It must not be changed."""
        return self._raw

    def changed(self, **values: Any) -> Self:
        """Return it with other values of these keys, or with keys more, read anew."""
        return type(self).model_validate({**self._raw, **values})

    @model_validator(mode="wrap")
    @classmethod
    def _kept(cls, value: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        found = handler(value)
        if isinstance(value, Mapping):
            found._raw = dict(value)
        return found

    @model_serializer(mode="plain")
    def _as_written(self) -> dict[str, Any]:
        return self._raw

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self)) and self._raw == other._raw

    __hash__ = None  # type: ignore[assignment]  # it holds mappings, and equal ones may differ in their keys' order


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

_PRECISION_ALIASES = {"16": "16-mixed", "32": "32-true", "64": "64-true", "bf16": "bf16-mixed"}


def _precision(value: str) -> str:
    if value not in PRECISIONS:
        alias = _PRECISION_ALIASES.get(value)
        hint = f" (did you mean '{alias}'?)" if alias else nearest(value, PRECISIONS)
        raise ValueError(f"is none of Lightning's precisions{hint}; they are: {', '.join(PRECISIONS)}")
    return value


def _task(value: str) -> str:
    known = list(dict.fromkeys(task.task for task in tasks()))
    if value not in known:
        raise ValueError(f"is no task{nearest(value, known)}; they are: {', '.join(known)}")
    return value


def _text(value: Any) -> Any:
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


def _batch(value: Any) -> Any:
    if isinstance(value, str):
        raise ValueError("must be a number of samples, or auto, which searches for the largest")
    return value


def _kind(value: Any) -> Any:
    kind, _, model = value.partition(":") if isinstance(value, str) else (value, "", "")
    return kind if model.strip() else value


def _empty_for_none(value: Any) -> Any:
    return {} if value is None else value


def _variable(name: str) -> str:
    if not name or "=" in name or "\0" in name:
        raise ValueError("is not usable as the name of an environment variable")
    return name


def _no_nul(value: str) -> str:
    if "\0" in value:
        raise ValueError("holds a NUL character, which no environment variable can")
    return value


Text = Annotated[StrictStr, BeforeValidator(_text)]

Node = dict[str, Any]
"""A part of the config that belongs to the user: its content is handed to a class of theirs, or to the Trainer."""


class Measure(BaseModel):
    """The way a run is measured. Sizes are steps, training samples on all devices together, and seconds.

    None leaves a phase out (`probe_steps`, `matmul_steps`, `quality_samples`) or removes a bound (`max_samples`,
    `rank_memory_bytes`).
    `headroom` is the share of the free memory that a search for the largest batch keeps free. The search ends at
    `max_batch`, or where it knows the batch to `batch_resolution`, a share of it. All three are per rank.
    """

    model_config = ConfigDict(frozen=True)

    concurrency: Count = 1
    warmup_steps: Natural
    min_steps: Count
    min_seconds: Amount
    max_steps: Count
    probe_steps: Count | None = None
    matmul_steps: Count | None = None
    fake_loader: StrictBool = False
    quality_samples: Count | None = None
    quality_metric: StrictStr | None = None
    quality_better: Literal["max", "min"] | None = "max"
    target: Annotated[float, Field(allow_inf_nan=False, strict=True)] | None = None
    validate_every_samples: Count | None = None
    max_samples: Count | None = None
    scenario: Literal["offline", "single_stream", "multi_stream", "server"] = "offline"
    headroom: StrictShareFrom0 = 0.1
    max_batch: Count = 65536
    batch_resolution: StrictShareFrom0 = 0.01
    rank_memory_bytes: Count | None = None

    @property
    def better(self) -> Literal["max", "min"]:
        """Whether more or less of `quality_metric` is better, where one of both has to be."""
        return self.quality_better or "max"

    @property
    def shared(self) -> bool:
        """Whether runs of this cell may share a machine while they are timed."""
        return self.concurrency > 1


def global_batch_of(config: CellConfig) -> int | None:
    """Return `data.batch_size` where it is the batch of all of several ranks, for data that divides it among them."""
    stated = config.data.get("batch_size")
    return stated if config.world_size > 1 and stated == config.samples_per_step else None


class CellConfig(Verbatim):
    """The scientific config of a cell, which decides the measurement of its runs. The user's own keys stand in `raw`.

    `devices` are ranks per node, `batch_size` is per rank. `threads` are CPU threads of each rank; None leaves them to
    the machine. `env` are environment variables of the run.
    """

    accelerator: Annotated[Accelerator, BeforeValidator(_kind)]
    devices: Count
    num_nodes: Count = 1
    batch_size: Annotated[Count, BeforeValidator(_batch)]
    precision: Annotated[Text, AfterValidator(_precision)]
    seed: Annotated[Natural, Field(lt=2**31)]
    loop: Literal["lightning", "raw"]
    launcher: Literal["fork", "spawn"] = "fork"
    threads: Count | None = None
    env: dict[Annotated[str, AfterValidator(_variable)], Annotated[Text, AfterValidator(_no_nul)]] = Field(
        default_factory=dict
    )
    task: Annotated[StrictStr, AfterValidator(_task)] = "train_throughput"
    model: Node
    data: Node
    optimizer: Node | None = None
    trainer: Annotated[Node, BeforeValidator(_empty_for_none)] = Field(default_factory=dict)
    measure: Measure

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of the mapping, which names the blocks that hold it."""
        return sha256_text(canonical_json(self.raw))

    @property
    def version(self) -> Identity | None:
        """The version that is measured, where the sweep compares versions."""
        return identity_in(self.raw)

    @property
    def version_id(self) -> str | None:
        """The id of that version, by which its folder is called."""
        return self.version.id if self.version else None

    @property
    def work(self) -> str:
        """The name under which rates are listed: the task, or another word where its keys choose among several."""
        return task_of(self.task, self.raw).name

    @property
    def world_size(self) -> int:
        """The ranks of a run, on all nodes together."""
        return self.devices * self.num_nodes

    @property
    def samples_per_step(self) -> int:
        """The samples of one batch on all ranks together; an optimiser step may accumulate several."""
        return self.batch_size * self.world_size

    @property
    def device_model(self) -> str | None:
        """The part behind the accelerator (`cuda:a100`): a kind of node, or words of the device's name."""
        return str(self.raw["accelerator"]).partition(":")[2] or None

    @property
    def on_gpu(self) -> bool:
        """Whether the cell trains on something else than CPU cores."""
        return self.accelerator != "cpu"

    @property
    def learning_rate(self) -> LearningRate:
        """Our keys of `optimizer`, each at its default where there is none."""
        return LearningRate.model_validate(self.optimizer or {})

    @property
    def model_target(self) -> str:
        """The dotted name of the model's class; empty where the config names none."""
        return str(self.model.get("_target_") or "")

    @property
    def data_target(self) -> str:
        """The dotted name of the data's class; empty where the config names none."""
        return str(self.data.get("_target_") or "")

    @property
    def compiles(self) -> bool:
        """Whether the model is compiled (`model.compile`), where it is one of ours."""
        return bool(self.model.get("compile"))

    @property
    def each_fold(self) -> bool:
        """Whether each part of the data is held out in turn (`data.fold=all`), where the data is one of ours."""
        return self.data.get("fold") == "all"

    @property
    def class_column(self) -> str | None:
        """The column of the classes (`data.target`), where the data has columns."""
        target = self.data.get("target")
        return None if target is None else str(target)
