"""A run's results: outcome, doubts, step breakdown, model traits, effective settings and fingerprint.

These are plain frozen dataclasses because the worker creates them in other people's environments. Pydantic models in
`records/` and in features use them as fields, and validate and serialise them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import Enum
from itertools import accumulate
from pathlib import Path
from typing import Any, Literal

from accelsweep.files import write_json
from accelsweep.metrics import Metric
from accelsweep.plain_json import NO_OTHER_FIELDS
from accelsweep.run_environment import HardwareKind


class Outcome(str, Enum):
    """How a run ended. `decided` and `not_run` are derived during collection and never recorded."""

    measured = "measured"
    """The run finished with its metrics."""
    out_of_memory = "out_of_memory"
    """The device or the machine ran out of memory."""
    diverged = "diverged"
    """The loss became infinite or NaN."""
    unsupported = "unsupported"
    """The config, device or model does not support it."""
    timed_out = "timed_out"
    """It reached `limits.run_seconds`, or did not finish a step for `limits.silence_seconds`."""
    crashed = "crashed"
    """It ended with an error, or died without an error message."""
    decided = "decided"
    """It was left out, because earlier repeats have shown that its setting is much slower than the baseline."""
    not_run = "not_run"
    """It is planned but has not started."""

    def __str__(self) -> str:
        return self.value

    @property
    def settled(self) -> bool:
        """Whether the outcome counts as an answer, so that the same command does not repeat the run."""
        return self in _SETTLED


_SETTLED = {Outcome.measured, Outcome.out_of_memory, Outcome.diverged, Outcome.unsupported, Outcome.decided}


DISTURBING = frozenset({"busy_cpu", "clock_gap", "foreign_process", "processes_stopped", "swap", "throttled"})
"""Doubts about a disturbed window: other load on the machine, a throttled device, or a stopped run."""

KNOWN_WITHOUT_RATE = DISTURBING - {"processes_stopped"}
"""Disturbances that are read from counters, clocks and devices.

Only these may decide that a run is measured again: repeating runs for stalls, which are found in their step times,
would select runs by their rates.
"""

MAX_DISTURBED_SHARE = 0.5
"""The largest share of disturbed runs at which a setting still receives a verdict."""


@dataclass(frozen=True)
class Doubt:
    """An automatically detected reason to distrust a number, reported wherever the number is.

    `code` is short and stable (`throttled`, `short_window`); `remedy` describes how to avoid the doubt.
    """

    __pydantic_config__ = NO_OTHER_FIELDS

    code: str
    message: str
    remedy: str

    @property
    def disturbing(self) -> bool:
        """Whether other load or the device's limits affected the measurement."""
        return self.code in DISTURBING


PARTS = ("data_wait", "host_to_device", "forward", "backward", "optimizer", "communication", "overhead")
"""The parts of a step, in order; `overhead` is the time that the loop itself spends between them."""

COMPUTE = ("forward", "backward", "optimizer")

BEHIND = 0.5
"""An asynchronous device is considered to be waiting for the host if it lags behind the host at the end of less than
this share of steps."""

SUBSTANTIAL = 0.3
"""The verdict also names the second-largest part if it accounts for at least this share of the step."""

MAJORITY = 0.5
"""If the bottleneck accounts for less than this share of the step, the evidence mentions this."""


@dataclass(frozen=True)
class Breakdown:
    """Seconds per step and the shares of `PARTS`, averaged over `steps` steps and all ranks.

    `device_behind` is the share of steps that ended before the device had finished the previous step; None if the
    device is the host. `shares` omits `communication` if communication could not be separated.
    """

    __pydantic_config__ = NO_OTHER_FIELDS

    steps: int
    step_seconds: float
    shares: dict[str, float]
    device_behind: float | None
    verdict: str
    evidence: str


def bottleneck(shares: Mapping[str, float], device_behind: float | None = None) -> tuple[str, str]:
    """Return the verdict on these shares, and the evidence for it as a sentence.

    The verdict is `input-bound`, `transfer-bound`, `communication-bound`, `compute-bound` or `overhead-bound`. The
    largest part of the step determines it; forward, backward and optimizer together count as compute. Compute on an
    asynchronous device that waits for the host (`BEHIND`) counts as `overhead-bound`: the time is spent launching
    kernels. A second part that is `SUBSTANTIAL` is appended: `compute-bound and input-bound`. If communication could
    not be separated, compute includes it, and the verdict on compute is `compute-bound or communication-bound`.
    """
    is_separate = "communication" in shares
    computing = "compute-bound" if is_separate else "compute-bound or communication-bound"
    compute = "forward, backward and optimizer" + ("" if is_separate else ", any exchange between ranks included,")
    parts = {
        computing: (compute, sum(shares.get(part, 0.0) for part in COMPUTE)),
        "input-bound": ("waiting for data", shares.get("data_wait", 0.0)),
        "transfer-bound": ("moving batches to the device", shares.get("host_to_device", 0.0)),
        "communication-bound": ("exchanging gradients", shares.get("communication", 0.0)),
        "overhead-bound": ("the loop around the model", shares.get("overhead", 0.0)),
    }
    verdict, rest = sorted(parts, key=lambda name: -parts[name][1])[:2]
    description, share = parts[verdict]
    evidence = f"{description} took {_percent(share)} of a step"
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
    """Counts for one forward pass, per sample unless stated otherwise. An addition counts as one operation.

    The four `flops_` fields count convolutions, grouped and depthwise convolutions, matrix products, and fused
    attention. `activations` counts the elements written by these four kinds of operation, and `others` counts those
    written by all other operations. `kernels` counts operations per step, regardless of the batch size. `unknown`
    counts elements written by operations of unknown cost, which `unknown_names` lists. `recurrent` is set if the model
    has a recurrent layer.
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
        """Operations per sample of a forward pass."""
        return self.flops_convolution + self.flops_grouped + self.flops_product + self.flops_attention

    @property
    def unknown_share(self) -> float:
        """The share of written elements that come from operations of unknown cost."""
        written = self.activations + self.others + self.unknown
        return self.unknown / written if written else 0.0


UNSEEN_PRECISION = "unknown"
"""The effective precision of a script's loop whose arithmetic is not torch's."""


@dataclass(frozen=True)
class Effective:
    """The effective settings, read back from Lightning and torch rather than taken from the config.

    `global_batch_size` is the number of samples per optimiser step in the window, over all ranks. It is None if step
    sizes vary by more than short batches can explain, or if there was no step; the doubt `optimizer_batch` indicates
    which.
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
    compiled: tuple[str, ...] = ()
    checkpointed_modules: int = 0
    numa_node: int | None = None


@dataclass(frozen=True)
class Fingerprint:
    """The hardware, software and sources that must be identical for an existing record to be reused for a new run.

    `hardware` contains the device model, driver and host model. `software` contains the public versions of torch and
    lightning, and `builds` contains their build tags. `sources` are the digests of the user's own packages. `links`
    maps config keys whose paths contain symbolic links to the links' targets, because the same path may lead to a
    different disk.
    """

    __pydantic_config__ = NO_OTHER_FIELDS

    hardware: dict[str, str]
    software: dict[str, str]
    builds: dict[str, str]
    sources: dict[str, str]
    links: dict[str, str] = field(default_factory=dict)

    @property
    def hardware_kind(self) -> HardwareKind:
        """`hardware` as a `HardwareKind`, which can be compared and named."""
        return HardwareKind.of(self.hardware)

    def matches(self, other: Fingerprint) -> bool:
        """Return whether two fingerprints are identical except for build tags."""
        return replace(self, builds={}) == replace(other, builds={})


MAX_CURVE_POINTS = 100
"""Maximum number of points of a training curve; consecutive steps are averaged."""


@dataclass(frozen=True)
class LearningPoint:
    """A value after so many training samples, over all ranks; `seconds` of training if they were timed."""

    __pydantic_config__ = NO_OTHER_FIELDS

    samples: int
    value: float
    seconds: float | None = None


@dataclass(frozen=True)
class LearningCurve:
    """How a model learned, in the quality phase or on the way to a target.

    `losses` are training losses of rank 0, averaged over consecutive steps, and `validations` the values of the quality
    metric. Values that are not finite are left out.
    """

    __pydantic_config__ = NO_OTHER_FIELDS

    losses: tuple[LearningPoint, ...] = ()
    validations: tuple[LearningPoint, ...] = ()

    @classmethod
    def of_steps(
        cls,
        samples: Sequence[int],
        losses: Sequence[float | None],
        validations: Sequence[LearningPoint],
        seconds: Sequence[float] = (),
    ) -> LearningCurve:
        """Return the curve of a training, given each step's samples and loss, and its seconds if they were timed."""
        seen, elapsed = list(accumulate(samples)), list(accumulate(seconds))
        stride = max(1, -(-len(seen) // MAX_CURVE_POINTS))
        points = []
        for start in range(0, len(seen), stride):
            known = [loss for loss in losses[start : start + stride] if loss is not None and math.isfinite(loss)]
            last = min(start + stride, len(seen)) - 1
            if known:
                when = elapsed[last] if last < len(elapsed) else None
                points.append(LearningPoint(seen[last], sum(known) / len(known), when))
        return cls(tuple(points), tuple(point for point in validations if math.isfinite(point.value)))


ErrorKind = Literal["none", "out_of_memory", "diverged", "user_exception", "collective", "unsupported"]
"""The reason why a rank ended. If ranks differ, the run is assigned the first of their reasons in `PRECEDENCE`."""

PRECEDENCE: tuple[ErrorKind, ...] = (
    "out_of_memory",
    "diverged",
    "unsupported",
    "user_exception",
    "collective",
    "none",
)
"""Root causes come first: the peers of a failing rank only report a collective error."""

ANY_FAILURE: frozenset[ErrorKind] = frozenset({"none", "out_of_memory", "unsupported", "user_exception", "collective"})
"""Failures after the window that do not invalidate its rate. `none` means that no error was raised, as after a kill or
timeout.

A NaN loss is not included, because a diverged run is an answer in its own right.
"""


@dataclass(frozen=True)
class ScriptTrainer:
    """The Trainer that the user's own script built.

    `monitor` is the metric that its first ModelCheckpoint or else EarlyStopping watches, if any, and `better` the
    direction in which it improves. `left_out` names the callbacks that the measured Trainer lacks.
    """

    __pydantic_config__ = NO_OTHER_FIELDS

    monitor: str | None = None
    better: Literal["max", "min"] = "min"
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True)
class RankResult:
    """The result of one rank of a run.

    Rank 0's `metrics` and `effective` are used for the run, because they already include the values gathered from all
    ranks (rate, skew, memory). `reason` is None if and only if `outcome` is `measured`. `traceback` shows the user's
    code and omits our own frames unless there are no others. `window_is_valid` means that the window's results are
    valid even though something failed later, at `user_location` in the user's code. `extra` is the result of a run that
    does something other than measure, such as profiling. `files` are those below the working directory that the user's
    own script had read when its training began, and `trainer` describes that script's Trainer. `phases` maps each phase
    that took place to its start and its end, in seconds of the monotonic clock.
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
    files: tuple[str, ...] = ()
    trainer: ScriptTrainer | None = None
    phases: dict[str, tuple[float, float]] = field(default_factory=dict)
    learning: LearningCurve | None = None

    def write(self, path: Path) -> None:
        """Write the result as JSON, atomically (`records.run_files.read_rank_result` reads and validates it)."""
        write_json(path, asdict(self))
