"""What a run reports: its outcome, doubts, step breakdown, model traits, effective settings and fingerprint.

Plain frozen dataclasses, because the worker makes them in other people's environments. The pydantic models of
`records/` and of features have them as fields, and validate and serialise them as they do their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import Any, Literal

from accelsweep.files import write_json
from accelsweep.metrics import Metric
from accelsweep.plain_json import NO_OTHER_FIELDS
from accelsweep.run_environment import HardwareKind


class Outcome(str, Enum):
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

    def __str__(self) -> str:
        return self.value

    @property
    def settled(self) -> bool:
        """Whether the ending is an answer, so that the same command does not try the run again."""
        return self in _SETTLED


_SETTLED = {Outcome.measured, Outcome.out_of_memory, Outcome.diverged, Outcome.unsupported}


DISTURBING = frozenset({"busy_cpu", "clock_gap", "foreign_process", "processes_stopped", "swap", "throttled"})
"""Doubts of a disturbed window: others used the machine too, the device was held back, or the run was halted."""


@dataclass(frozen=True)
class Doubt:
    """A machine-found reason to distrust a number. It travels with the number everywhere.

    `code` is stable and short (`throttled`, `short_window`); `remedy` says how to avoid it.
    """

    __pydantic_config__ = NO_OTHER_FIELDS

    code: str
    message: str
    remedy: str

    @property
    def disturbing(self) -> bool:
        """Whether others, or the device's limits, took part in the measurement."""
        return self.code in DISTURBING


PARTS = ("data_wait", "host_to_device", "forward", "backward", "optimizer", "communication", "overhead")
"""The parts of a step, in the order in which they happen; `overhead` is the loop's own time between them."""

COMPUTE = ("forward", "backward", "optimizer")

BEHIND = 0.5
"""An asynchronous device that is behind the host at the end of fewer steps than this share waits for the host."""

SUBSTANTIAL = 0.3
"""A second part that takes this share of the step is named in the verdict too: without it the first reads as all."""

MAJORITY = 0.5
"""A bottleneck that takes a smaller share of the step is said to take no majority of it."""


@dataclass(frozen=True)
class Breakdown:
    """The parts of a step: seconds per step and shares by `PARTS`, averaged over `steps` steps and all ranks.

    `device_behind` is the share of steps at whose end the device had not yet finished the step before. It is None where
    the host and the device are one. `communication` is absent from `shares` where it could not be told apart.
    """

    __pydantic_config__ = NO_OTHER_FIELDS

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


@dataclass(frozen=True)
class Traits:
    """Counts of one forward pass, per sample unless said otherwise. An addition is an operation.

    The four `flops_` are those of convolutions, of grouped and depthwise convolutions, of matrix products, and of fused
    attention. `activations` are the numbers that these four write, `others` those that everything else writes.
    `kernels` counts operations of a step, whatever its batch. `unknown` are the numbers written by operations of which
    the counter cannot tell how much work they are, and `unknown_names` says which. `recurrent` says whether the model
    holds a recurrent layer.
    """

    __pydantic_config__ = NO_OTHER_FIELDS

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


@dataclass(frozen=True)
class Effective:
    """The settings that were really in force, read back from Lightning and torch rather than from the config.

    `global_batch_size` is how many samples an optimiser step of the window held, on all ranks. It is None where the
    steps differ in more than their short batches, or where there was none: the doubt `optimizer_batch` says which.
    """

    __pydantic_config__ = NO_OTHER_FIELDS

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


@dataclass(frozen=True)
class Fingerprint:
    """The hardware, software and sources that must be equal for an old record to stand for a new run.

    `hardware` is device model, driver and host model. `software` holds the public versions of torch and lightning;
    their build tags are in `builds`. `sources` are the digests of the user's own packages. `links` says where the
    symbolic links in the config's paths led, by key: what lies behind the same path may be another disk. It is empty
    where no path goes through a link.
    """

    __pydantic_config__ = NO_OTHER_FIELDS

    hardware: dict[str, str]
    software: dict[str, str]
    builds: dict[str, str]
    sources: dict[str, str]
    links: dict[str, str] = field(default_factory=dict)

    @property
    def hardware_kind(self) -> HardwareKind:
        """The `hardware` as one kind, to compare and to name."""
        return HardwareKind.of(self.hardware)

    def matches(self, other: Fingerprint) -> bool:
        """Return whether two fingerprints are equal in everything but the build tags."""
        return replace(self, builds={}) == replace(other, builds={})


ErrorKind = Literal["none", "out_of_memory", "diverged", "user_exception", "collective", "unsupported"]
"""The cause of a rank's end. Where ranks disagree, the first in `PRECEDENCE` is the run's."""

PRECEDENCE: tuple[ErrorKind, ...] = (
    "out_of_memory",
    "diverged",
    "unsupported",
    "user_exception",
    "collective",
    "none",
)
"""The order of ranks' endings that explain the run: the peers of a failing rank see a collective error."""

ANY_FAILURE: frozenset[ErrorKind] = frozenset({"none", "out_of_memory", "unsupported", "user_exception", "collective"})
"""The failures after a window that its rate survives. `none` are those without a word: a death, a limit of time.

A loss that is no number is another answer to the same question, not a failure.
"""


@dataclass(frozen=True)
class RankResult:
    """The result of one rank of a run.

    `metrics` and `effective` of rank 0 are the run's: values of all ranks (rate, skew, memory) were gathered before.
    `reason` is None if and only if `outcome` is `measured`. `traceback` shows the user's code, without our own frames
    if there are others. `window_is_valid` says that the window's results hold although something failed later, at
    `user_location` in the user's code. `extra` is the result of what ran in place of a measurement.
    """

    __pydantic_config__ = NO_OTHER_FIELDS

    rank: int
    outcome: Outcome
    reason: str | None
    error_kind: ErrorKind
    traceback: str | None = None
    window_is_valid: bool = False
    user_location: str | None = None
    effective: Effective | None = None
    metrics: dict[str, Metric] = field(default_factory=dict)
    environment: dict[str, dict[str, Any]] = field(default_factory=dict)
    doubts: tuple[Doubt, ...] = ()
    breakdown: Breakdown | None = None
    traits: Traits | str | None = None
    extra: dict[str, Any] | None = None

    def write(self, path: Path) -> None:
        """Write the result as JSON, atomically (`records.run_files.read_rank_result` reads and validates it)."""
        write_json(path, asdict(self))
