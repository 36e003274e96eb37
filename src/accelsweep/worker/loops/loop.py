"""Protocols for the objects that drive the steps of a run, and code shared by the training loops.

A `Driver` performs steps until its listener stops it. A `Loop` is a driver that trains a fresh module each time and can
validate it during or after training. All are built from a `RunSpec`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from accelsweep.devices.clock import Clock, monotonic
from accelsweep.errors import InputError
from accelsweep.worker.error_classification import message_of

if TYPE_CHECKING:
    import lightning.pytorch as pl
    import torch

    from accelsweep.measure.breakdown import PhaseTimer
    from accelsweep.worker.loops.execution import ModuleExecution
    from accelsweep.worker.loops.sample_count import OptimizerSteps
    from accelsweep.worker.loops.token_count import TokenCounter
    from accelsweep.worker.loops.trainer_replacement import LossScale
    from accelsweep.worker.run_spec import RunSpec


@dataclass(frozen=True)
class TrainingLength:
    """The maximum length of a phase, in batches per rank or in samples across all ranks; unbounded if both are None."""

    batches: int | None = None
    samples: int | None = None


class StepListener(Protocol):
    """Determines when a phase ends, such as after the timed window or a given number of samples."""

    def begin(self) -> None:
        """Called before the first batch is fetched."""

    def step_done(self, samples: int, loss: Any) -> bool:
        """Called after a step with `samples` samples on this rank; returning True ends the phase."""


class ValidationListener(Protocol):
    """Receives the results of validations between training steps."""

    every_steps: int
    """Steps (batches) between two validations. The last step is also followed by a validation."""

    def validated(self, logged: dict[str, float]) -> bool:
        """Called on every rank with the logged values; returning True ends training.

        All ranks must return the same value.
        """


class Driver(Protocol):
    """Performs steps on this rank.

    Attributes are read back from the running objects, not copied from the config.
    """

    name: str
    device: torch.device
    precision: str
    strategy: str
    optimizer: str
    accumulate: int
    epoch_ends: list[int]

    @property
    def execution(self) -> ModuleExecution | None:
        """How the modules are executed; None if the steps call no module."""

    @property
    def tokens(self) -> TokenCounter | None:
        """The tokens of each step; None if they are not counted."""

    @property
    def optimizer_steps(self) -> OptimizerSteps | None:
        """The optimiser steps; None if each batch counts as a separate step, or nothing is trained."""

    def drive(self, listener: StepListener) -> None:
        """Perform steps until `listener` ends them. Raises errors from the user's code."""


class ModuleDriver(Driver, Protocol):
    """A driver whose steps run a LightningModule."""

    @property
    def module(self) -> pl.LightningModule:
        """The module, available from the listener's `begin` onwards."""


class Loop(ModuleDriver, Protocol):
    """A training loop: each step is a training step."""

    @property
    def example(self) -> Any:
        """The first batch as empty tensors on the meta device, for counting operations; None before the first batch."""

    @property
    def logged(self) -> dict[str, float]:
        """The values logged by the module, averaged over the phase. May wait for the device."""

    def time_phases(self, timer: PhaseTimer) -> None:
        """Report the phases of all further steps to `timer`."""

    def disable_gradient_sync(self) -> bool:
        """Stop exchanging gradients, starting with the next step; return False if the strategy cannot do so."""

    @property
    def epoch_samples(self) -> int | None:
        """Samples in one pass over the training data, across all ranks; None if unknown."""

    @property
    def learning_rate(self) -> float | None:
        """The learning rate of the first parameter group when training ended, or None."""

    @property
    def loss_scale(self) -> LossScale:
        """The loss scale and skipped steps since training began."""

    @property
    def data(self) -> Any:
        """The data module; None before training."""

    @property
    def teardown_error(self) -> BaseException | None:
        """An error raised by the user's code after the last step of `drive`, when all results were available."""

    def drive(self, listener: StepListener, validation: ValidationListener | None = None, data: Any = None) -> None:
        """Train a fresh module, using the run's seed, until one of the listeners ends the phase.

        `data` is another loop's data module to reuse; None builds the one in the config. Raises errors from the user's
        code, and InputError if there is a validation listener but no validation loop.
        """

    def validate(self) -> dict[str, float] | None:
        """Return the values that the trained module logs on the validation set; None if there is no validation set."""


class Measured(BaseException):
    """Ends the user's script once its run has been measured. Not an `Exception`, because scripts catch those."""


def check_first_batch(spec: RunSpec, samples: int) -> None:
    """Raise InputError if a script's first batch on one rank has another size than the plan expects."""
    config = spec.config
    assert config.entry is not None, "the caller checks"
    if config.first_batch_size in (samples, None) or spec.any_batch_size or config.entry.samples_per_step:
        return
    given = config.entry.global_batch or config.batch_size
    if config.world_size == 1:
        raise InputError(
            f"batch_size={given} gave a first batch of {samples} samples: in accelsweep.yaml, name the option that "
            "sets the batch size under axes, or set samples_per_step"
        )
    raise InputError(
        f"batch_size={given} gave each of {config.world_size} ranks a first batch of {samples} samples, but the "
        f"plan expects {config.batch_size}: set batch_is to global or per_device in accelsweep.yaml"
    )


NO_LOSS = (
    "training_step returned no loss at any step, so nothing was trained: return the loss, or set "
    "self.automatic_optimization = False and step the optimiser yourself"
)


def invalid_loss(output: Any) -> str | None:
    """Describe what is wrong with a training step's output; None if the output contains a loss or is None."""
    loss = output.get("loss") if hasattr(output, "get") else output
    if loss is None or (hasattr(loss, "detach") and loss.numel() == 1):
        return None
    if hasattr(loss, "detach"):
        what = f"a tensor of shape {tuple(loss.shape)} as its loss: reduce it to a scalar, for example with loss.mean()"
    elif isinstance(loss, list | tuple):
        parts = ", ".join(type(part).__name__ for part in loss)
        what = f"a {type(loss).__name__} ({parts}): return the loss alone, or a mapping with the key 'loss'"
    else:
        what = f"a {type(loss).__name__}: return the loss as a scalar tensor"
    return f"training_step returned {what}"


NO_VALIDATION = (
    "the data or the module has no validation loop, so measure.target cannot be checked: define "
    "val_dataloader and validation_step"
)

VALIDATION_SHARE = 1 / 3
"""The share of a run's time limit after which a validation loader without a length is considered endless."""


class ValidationTimeout:
    """Stops validation with a possibly endless loader before the run's time limit, to preserve the run's results."""

    def __init__(self, run_seconds: float | None, clock: Clock = monotonic) -> None:
        """Start the clock. `run_seconds` is the run's time limit, or None."""
        self._limit = None if run_seconds is None else VALIDATION_SHARE * run_seconds
        self._clock, self._began = clock, clock()

    def check(self, batches: int, owner: Any, position: int | None = None, remedy: str = "") -> None:
        """Raise InputError if the loader has taken too long. Only call this for a loader without a length.

        `owner` defines the loader, at `position` if there are several; `remedy` describes how to bound it.
        """
        seconds = self._clock() - self._began
        if self._limit is None or seconds < self._limit:
            return
        which = "" if position is None else f"[{position}]"
        raise InputError(
            f"val_dataloader{which} of {type(owner).__name__} has no length, and yielded {batches:,} batches in "
            f"{seconds:.0f} s without ending: {remedy}make it finite, or disable validation with "
            "measure.quality_samples=null"
        )


def first_learning_rate(optimizers: Sequence[torch.optim.Optimizer]) -> float | None:
    """Return the current learning rate of the first parameter group, or None."""
    groups = [group for optimizer in optimizers for group in optimizer.param_groups]
    return float(groups[0]["lr"]) if groups and "lr" in groups[0] else None


class NoExample(NamedTuple):
    """Placeholder for a batch that cannot be copied to the meta device; `reason` explains why."""

    reason: str


def to_meta(batch: Any) -> Any:
    """Return `batch` with its tensors on the meta device and floating-point tensors as float32.

    Containers are rebuilt with their own types. Returns a `NoExample` for a batch that cannot be copied,
    such as one with a nested tensor or a container that cannot be rebuilt.
    """
    import torch
    from lightning_utilities.core.apply_func import apply_to_collection

    def empty(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.is_nested:
            raise TypeError("a nested tensor has no shape")
        dtype = torch.float32 if tensor.is_floating_point() else tensor.dtype
        return torch.empty(tensor.shape, dtype=dtype, device="meta")

    try:
        return apply_to_collection(batch, torch.Tensor, empty)
    except Exception as error:  # noqa: BLE001  rebuilding a user's container may raise anything
        cause = f"{type(error).__name__}: {message_of(error)}"[:200]
        return NoExample(f"a {type(batch).__name__} batch cannot be copied to the meta device ({cause})")


def extract_loss(output: Any) -> Any:
    """Return the loss in a training step's output, not detached: the tensor, the mapping's `loss`, or None."""
    loss = output.get("loss") if hasattr(output, "get") else output
    return loss if hasattr(loss, "detach") and loss.numel() == 1 else None
