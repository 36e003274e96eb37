"""The record of a run. Frozen, versioned, written once, atomically, validated on read."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field, model_validator

from accelsweep.config.schema import CellConfig
from accelsweep.devices.memory_limits import MemoryLimit
from accelsweep.errors import DamagedFile
from accelsweep.files import sha256_file
from accelsweep.json_documents import Document, Frozen
from accelsweep.records.run_environment import Checkout, HardwareKind, Surroundings

# The time of a step by part, and the bottleneck that follows from it. One rule serves a run and a cell.

PARTS = ("data_wait", "host_to_device", "forward", "backward", "optimizer", "communication", "overhead")
"""The parts of a step, in the order in which they happen; `overhead` is the loop's own time between them."""

COMPUTE = ("forward", "backward", "optimizer")

BEHIND = 0.5
"""An asynchronous device that is behind the host at the end of fewer steps than this share waits for the host."""

SUBSTANTIAL = 0.3
"""A second part that takes this share of the step is named in the verdict too: without it the first reads as all."""

MAJORITY = 0.5
"""A bottleneck that takes a smaller share of the step is said to take no majority of it."""


class Breakdown(Frozen):
    """The parts of a step: seconds per step and shares by `PARTS`, averaged over `steps` steps and all ranks.

    `device_behind` is the share of steps at whose end the device had not yet finished the step before. It is None where
    the host and the device are one. `communication` is absent from `shares` where it could not be told apart.
    """

    steps: int
    step_seconds: float
    shares: dict[str, float]
    device_behind: float | None
    verdict: str
    evidence: str


def bottleneck(shares: Mapping[str, float], device_behind: float | None = None) -> tuple[str, str]:
    """Return the verdict on these shares and its evidence in words.

    The verdict is `input-bound`, `transfer-bound`, `communication-bound`, `compute-bound` or `overhead-bound`. The
    largest part of the step decides; forward, backward and optimizer count together as compute. Compute on an
    asynchronous device that waits for the host (`BEHIND`) is `overhead-bound`: its time is that of launching the work.
    A second part that is `SUBSTANTIAL` is named after the first: `compute-bound and input-bound`. Where communication
    could not be told apart, it is in compute, and the verdict on that says `compute-bound or communication-bound`.
    """
    told_apart = "communication" in shares
    computing = "compute-bound" if told_apart else "compute-bound or communication-bound"
    compute = "forward, backward and optimizer" + ("" if told_apart else ", any exchange between ranks included,")
    parts = {
        computing: (compute, sum(shares.get(part, 0.0) for part in COMPUTE)),
        "input-bound": ("waiting for data", shares.get("data_wait", 0.0)),
        "transfer-bound": ("moving batches to the device", shares.get("host_to_device", 0.0)),
        "communication-bound": ("exchanging gradients", shares.get("communication", 0.0)),
        "overhead-bound": ("the loop around the model", shares.get("overhead", 0.0)),
    }
    verdict, rest = sorted(parts, key=lambda name: -parts[name][1])[:2]
    words, share = parts[verdict]
    evidence = f"{words} took {_percent(share)} of a step"
    if verdict == computing and device_behind is not None and device_behind < BEHIND:
        behind = f"the device was behind the host at the end of only {_percent(device_behind)} of the steps"
        return "overhead-bound", f"{evidence}, but {behind}, so it waits for work to be launched"
    if share < MAJORITY:
        evidence += ", less than half of it"
    both = f"{verdict} and {rest}" if parts[rest][1] >= SUBSTANTIAL else verdict
    return both, f"{evidence}; next came {parts[rest][0]} with {_percent(parts[rest][1])}"


def _percent(share: float) -> str:
    return f"{share * 100:.0f} %"


# The memory frontier of one run: the tries, the batch at which memory ended, and what a sample costs.

SEARCH_CONFIDENCE = 0.95
"""Of the intervals of a search, each by itself."""


class Try(Frozen):
    """One batch size that was tried. `peak_bytes` is that of the fullest rank; None where too large, or not known."""

    batch_size: int
    fits: bool
    seconds: float
    peak_bytes: int | None = None
    reason: str | None = None


class Coefficient(Frozen):
    """A coefficient of the line through the peaks, in bytes; without a value, or an interval, it has a reason."""

    value: float | None
    low: float | None = None
    high: float | None = None
    reason: str | None = None


class Frontier(Frozen):
    """The result of a search. `largest` fits, `too_large` does not; it is None where `measure.max_batch` fits too.

    `headroom` is the share of the free memory that was kept free. It left `limit_bytes` to each rank, by the tightest
    `limit`. `rows` are those of the training set on all ranks, None where it has no length.
    """

    largest: int
    too_large: int | None
    limit: MemoryLimit
    limit_bytes: int | None
    headroom: float
    tries: tuple[Try, ...]
    bytes_per_sample: Coefficient
    fixed_bytes: Coefficient
    rows: int | None = None


# The outcomes of a run, and which of them settle it.


class Outcome(StrEnum):
    """The ending of a run. `not_run` is derived by collect and never written by a run."""

    measured = "measured"
    """The run has its numbers."""
    out_of_memory = "out_of_memory"
    """The device or the machine had too little memory for it."""
    diverged = "diverged"
    """The loss became infinite or no number."""
    unsupported = "unsupported"
    """It cannot be done with this config, on this device or with this model."""
    timed_out = "timed_out"
    """It reached `limits.run_seconds`, or had no step for `limits.silence_seconds`."""
    crashed = "crashed"
    """It ended with an error, or without a message."""
    not_run = "not_run"
    """It is planned and not begun yet."""

    @property
    def settled(self) -> bool:
        """Whether the ending is an answer, so that the same command does not try the run again."""
        return self in _SETTLED


_SETTLED = {Outcome.measured, Outcome.out_of_memory, Outcome.diverged, Outcome.unsupported}


# The work of one forward pass of a model, per sample: the operations and the numbers that it writes, by kind.


class NetworkFamily(StrEnum):
    """A kind of network, named by the modules that do most of its work."""

    convolution = "convolutions"
    depthwise = "depthwise convolutions"
    hybrid = "convolutions and attention"
    attention = "attention"
    dense = "dense layers"
    recurrent = "recurrent"


class Traits(Frozen):
    """Counts of one forward pass, per sample unless said otherwise. An addition is an operation.

    The four `flops_` are those of convolutions, of grouped and depthwise convolutions, of matrix products, and of fused
    attention. `activations` are the numbers that these four write, `others` those that everything else writes.
    `kernels` counts operations of a step, whatever its batch. `unknown` are the numbers written by operations of which
    the counter cannot tell how much work they are, and `unknown_names` says which. `recurrent` says whether the model
    holds a recurrent layer.
    """

    flops_convolution: float
    flops_grouped: float
    flops_product: float
    flops_attention: float
    activations: float
    others: float
    kernels: float
    parameters: float
    unknown: float = 0.0
    unknown_names: tuple[str, ...] = ()
    recurrent: bool = False

    @property
    def flops(self) -> float:
        """Operations of one sample's forward pass."""
        return self.flops_convolution + self.flops_grouped + self.flops_product + self.flops_attention

    @property
    def unknown_share(self) -> float:
        """Share of the written numbers that comes from operations of unknown cost."""
        written = self.activations + self.others + self.unknown
        return self.unknown / written if written else 0.0


def now() -> str:
    """Return the present time in UTC, ISO 8601, to the millisecond."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


class Metric(Frozen):
    """One measured number with its unit, or the reason why there is none. Never 0 for "unknown".

    `scope` names the part that the number covers (`GPU board`, `CPU package`, `process group`), `provenance` its source
    (`counter`, `integrated`, `modelled`, `clock`, `device events`).
    """

    value: float | None
    unit: str
    reason: str | None = None
    scope: str | None = None
    provenance: str | None = None

    @model_validator(mode="after")
    def _value_or_reason(self) -> Metric:
        if (self.value is None) == (self.reason is None):
            raise ValueError("a metric has either a value or the reason why it has none")
        return self


DISTURBING = frozenset({"busy_cpu", "clock_gap", "foreign_process", "processes_stopped", "swap", "throttled"})
"""Doubts of a disturbed window: others used the machine too, the device was held back, or the run was halted."""


class Doubt(Frozen):
    """A machine-found reason to distrust a number. It travels with the number everywhere.

    `code` is stable and short (`throttled`, `short_window`); `remedy` says how to avoid it.
    """

    code: str
    message: str
    remedy: str

    @property
    def disturbing(self) -> bool:
        """Whether others, or the device's limits, took part in the measurement."""
        return self.code in DISTURBING


class Effective(Frozen):
    """The settings that were really in force, read back from Lightning and torch rather than from the config.

    `global_batch_size` is how many samples an optimiser step of the window held, on all ranks. It is None where the
    steps differ in more than their short batches, or where there was none: the doubt `optimizer_batch` says which.
    """

    accelerator: str
    device_names: tuple[str, ...]
    world_size: int
    num_nodes: int
    precision: str
    strategy: str
    loop: str
    launcher: str
    threads_per_rank: int
    batch_size: int
    global_batch_size: int | None
    warmup_steps: int
    window_steps: int
    optimizer: str
    deterministic: bool = False
    matmul_precision: str = "highest"


class Fingerprint(Frozen):
    """The hardware, software and sources that must be equal for an old record to stand for a new run.

    `hardware` is device model, driver and host model. `software` holds the public versions of torch and lightning;
    their build tags are in `builds`. `sources` are the digests of the user's own packages. `links` says where the
    symbolic links in the config's paths led, by key: what lies behind the same path may be another disk. It is empty
    where no path goes through a link.
    """

    hardware: dict[str, str]
    software: dict[str, str]
    builds: dict[str, str]
    sources: dict[str, str]
    links: dict[str, str] = Field(default_factory=dict, exclude_if=lambda links: not links)

    @property
    def hardware_kind(self) -> HardwareKind:
        """The `hardware` as one kind, to compare and to name."""
        return HardwareKind.of(self.hardware)

    def matches(self, other: Fingerprint) -> bool:
        """Return whether two fingerprints are equal in everything but the build tags."""
        mine, theirs = self.model_dump(exclude={"builds"}), other.model_dump(exclude={"builds"})
        return bool(mine == theirs)


class Record(Document):
    """All data of one run.

    `metrics` maps names that carry unit and scope (`samples_per_second`, `host_pss_bytes`) to their values or reasons.
    `environment` holds the state of the machine `before` and `after`. Times are UTC in ISO 8601. `breakdown` is None
    where no probe pass ran; `steps_sha256` is that of `steps.parquet`, None without one and in old records. `traits`
    are the counts of a forward pass, or the reason why there are none; None in old records. `frontier` is what a search
    for the largest batch found, None in any other run.
    """

    kind: ClassVar[str] = "record"

    sweep: str
    block: str
    run: str
    cell: str
    repeat: int
    seed: int
    position: int
    attempt: int
    axes: dict[str, Any]
    config: CellConfig
    outcome: Outcome
    reason: str | None
    started_at: str
    finished_at: str
    wall_seconds: float
    effective: Effective | None
    metrics: dict[str, Metric]
    fingerprint: Fingerprint
    environment: dict[str, dict[str, Any]]
    git: dict[str, Any]
    doubts: tuple[Doubt, ...]
    breakdown: Breakdown | None = None
    steps_sha256: str | None = None
    traits: Traits | str | None = Field(default=None, exclude_if=lambda traits: traits is None)
    frontier: Frontier | None = Field(default=None, exclude_if=lambda frontier: frontier is None)

    @model_validator(mode="after")
    def _reason_for_every_failure(self) -> Record:
        if self.outcome is Outcome.not_run:
            raise ValueError("not_run is derived by collect, never recorded")
        if (self.outcome is Outcome.measured) != (self.reason is None):
            raise ValueError("every outcome but `measured` has a reason, and `measured` has none")
        return self

    @property
    def surroundings(self) -> Surroundings:
        """The `environment`, read by attribute."""
        return Surroundings(self.environment)

    @property
    def checkout(self) -> Checkout:
        """The `git`, read by attribute."""
        return Checkout.of(self.git)


def steps_damage(record: Record, steps: Path) -> DamagedFile | None:
    """Return the damage of the file of raw steps that `record` seals, or None if the file is unchanged."""
    if record.steps_sha256 is None:
        return None
    try:
        whole = sha256_file(steps) == record.steps_sha256
    except FileNotFoundError:
        return DamagedFile(steps, "it is missing")
    except DamagedFile as error:
        return error
    return None if whole else DamagedFile(steps, "its contents do not match the checksum in its record")


# The doubts in a few plain words. The code stays beside them, because it is what one searches for.

WORDS = {
    "bad_teardown": "a run did not end well",
    "baseline_drift": "the baseline drifted",
    "build_differs": "builds differ",
    "busy_cpu": "other work kept the processor busy",
    "clock_gap": "the machine slept while timing, or its clock was set",
    "cpu_governor": "the processor's clock follows the load",
    "epoch_boundary": "the data began again while timing",
    "few_repeats": "few repeats",
    "fewer_repeats": "some repeats are missing",
    "foreign_process": "other processes used the device",
    "load_refused": "some repeats kept the latency at no load",
    "memory_grows": "memory grew while timing",
    "mixed_hosts": "several machines",
    "no_steps": "the single steps were not kept",
    "noisy_baseline": "the baseline is noisier than the rest",
    "optimizer_batch": "optimiser steps held another batch than was asked for",
    "outlier": "one repeat lies far from the others",
    "page_faults": "data came from disk while timing",
    "power_capped": "the device was at its power limit",
    "processes_stopped": "all processes stood still while timing",
    "shared_timing": "two runs were timed at once",
    "short_window": "the timed window was short",
    "sources_changed": "sources changed during a run",
    "sources_differ": "sources differ",
    "stall": "a step took far longer than the others",
    "swap": "the machine swapped while timing",
    "target_missed": "some repeats missed the target",
    "temperature_drift": "the device warmed up while timing",
    "threads_differ": "repeats had different numbers of threads",
    "throttled": "the device was slowed down",
    "two_levels": "the rate has two levels",
    "uneven_noise": "it is noisier than the rest",
    "unpaired": "compared without common blocks",
    "unlike_nodes": "compared across unlike nodes",
    "unsteady_window": "speed changed while timing",
}
"""Code -> words, for each doubt that accelsweep raises."""


def doubt_in_words(doubt: Doubt) -> str:
    """Return a doubt in a few words; one that this version does not know is its code with blanks."""
    return WORDS.get(doubt.code, doubt.code.replace("_", " "))
