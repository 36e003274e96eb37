"""The drivers of a run's phases: a driver of steps; and a training loop, Lightning's or the raw one beside it.

Both are built from a `RunSpec` and do steps until their listener stops them. A loop trains a fresh module each time,
and may validate it, afterwards or in between.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from accelsweep.devices.clock import Clock, monotonic
from accelsweep.errors import InputError
from accelsweep.worker.errors import said

if TYPE_CHECKING:
    import lightning.pytorch as pl
    import torch

    from accelsweep.measure.breakdown import PhaseTimer
    from accelsweep.worker.loops.raw_parts import LossScale
    from accelsweep.worker.loops.sample_count import OptimizerSteps


@dataclass(frozen=True)
class Length:
    """The most that a phase may train: batches of a rank, or samples of all ranks. Neither where nothing bounds it."""

    batches: int | None = None
    samples: int | None = None


class Listener(Protocol):
    """Decides when the steps end: the timed window, or a number of samples."""

    def begin(self) -> None:
        """Note that the first batch is about to be fetched."""

    def step_done(self, samples: int, loss: Any) -> bool:
        """Note that a step processed `samples` samples on this rank; True ends the phase."""


class Examiner(Protocol):
    """Looks at the model while it trains."""

    every_steps: int
    """Steps (batches) between two validations. There is one after the last step, too."""

    def examined(self, logged: dict[str, float]) -> bool:
        """Look at the logged values of validation; True ends the training. Every rank is asked, and they must agree."""


class Driver(Protocol):
    """Does steps on this rank. Attributes are facts read back, not wishes from the config."""

    name: str
    device: torch.device
    precision: str
    strategy: str
    optimizer: str
    accumulate: int
    epoch_ends: list[int]

    @property
    def optimizer_steps(self) -> OptimizerSteps | None:
        """The steps that optimisers made; None where each batch is a step of its own, or where nothing is trained."""

    def drive(self, listener: Listener) -> None:
        """Do steps until `listener` has enough. Raises the errors of the user's code."""


class ModuleDriver(Driver, Protocol):
    """A driver whose steps are a module's."""

    @property
    def module(self) -> pl.LightningModule:
        """The module at work, from the listener's `begin` on."""


class Loop(ModuleDriver, Protocol):
    """A training loop: each step trains."""

    @property
    def example(self) -> Any:
        """The first batch as empty tensors on the meta device, for counting operations; None before it came."""

    @property
    def logged(self) -> dict[str, float]:
        """The values that the module logged in training or validation, averaged by phase. May wait for the device."""

    def watch(self, timer: PhaseTimer) -> None:
        """Tell `timer` about the phases of every step to come."""

    def stop_exchange(self) -> bool:
        """Exchange no gradients from the next step on; return whether this strategy can do that."""

    @property
    def epoch_samples(self) -> int | None:
        """Samples of one pass over the training data, on all ranks together; None where nothing tells."""

    @property
    def learning_rate(self) -> float | None:
        """That of the first parameter group when training ended, scaled and warmed up; None where there is none."""

    @property
    def loss_scale(self) -> LossScale:
        """The results of loss scaling since training began."""

    @property
    def data(self) -> Any:
        """The data module of the training; None before there was one."""

    @property
    def late_error(self) -> BaseException | None:
        """What the user's code raised after the last step of `drive`, which had all that it was for by then."""

    def drive(self, listener: Listener, examiner: Examiner | None = None, data: Any = None) -> None:
        """Train a fresh module, seeded by the run, until `listener` or `examiner` has enough.

        `data` is that of another loop, to be used again; None builds the config's. Raises the errors of the user's
        code; InputError where there is an examiner and nothing to validate with.
        """

    def validate(self) -> dict[str, float] | None:
        """Return the values that the trained module logs over the validation set; None where the data has none."""


NO_LOSS = (
    "training_step returned no loss at any step, so nothing was trained: return it, or set "
    "self.automatic_optimization = False and step the optimiser yourself"
)
"""The message where a module trains nothing."""


def not_a_loss(output: Any) -> str | None:
    """Return what is wrong with what a training step gave, where it is neither a loss nor None."""
    loss = output.get("loss") if hasattr(output, "get") else output
    if loss is None or (hasattr(loss, "detach") and loss.numel() == 1):
        return None
    if hasattr(loss, "detach"):
        what = f"a tensor of shape {tuple(loss.shape)} as its loss: reduce it to one number, as loss.mean() does"
    elif isinstance(loss, list | tuple):
        parts = ", ".join(type(part).__name__ for part in loss)
        what = f"a {type(loss).__name__} ({parts}): return the loss alone, or a mapping with the key 'loss'"
    else:
        what = f"a {type(loss).__name__}: return the loss, a tensor of one number"
    return f"training_step returned {what}"


NO_VALIDATION = (
    "the data or the module has no validation loop, so nobody can tell when measure.target is reached: define "
    "val_dataloader and validation_step"
)
"""The message where an examiner has no validation to look at."""


LONG_VALIDATION = 1 / 3
"""The share of a run's time limit after which a validation loader that states no length is taken for an endless one."""


class ValidationTime:
    """Watches one validation, whose loaders may never end, so that its run keeps what it has measured."""

    def __init__(self, run_seconds: float | None, clock: Clock = monotonic) -> None:
        """`run_seconds` is the time limit of the run; None bounds nothing."""
        self._most = None if run_seconds is None else LONG_VALIDATION * run_seconds
        self._clock, self._began = clock, clock()

    def look(self, batches: int, owner: Any, position: int | None = None, instead: str = "") -> None:
        """Raise InputError where a loader without a length still gives batches after a share of the run's time.

        `owner` has the loader, which is at `position` of several; `instead` is how to bound it, if that is possible.
        """
        seconds = self._clock() - self._began
        if self._most is None or seconds < self._most:
            return
        which = "" if position is None else f"[{position}]"
        raise InputError(
            f"val_dataloader{which} of {type(owner).__name__} states no length, and gave {batches:,} batches in "
            f"{seconds:.0f} s without an end: {instead}make it finite, or leave validation out with "
            "measure.quality_samples=null"
        )


def learning_rate_of(optimizers: Sequence[torch.optim.Optimizer]) -> float | None:
    """Return the learning rate of the first parameter group now, or None where there is none."""
    groups = [group for optimizer in optimizers for group in optimizer.param_groups]
    return float(groups[0]["lr"]) if groups and "lr" in groups[0] else None


class NoExample(NamedTuple):
    """What stands for an emptied batch where one cannot be made; `reason` says why."""

    reason: str


def on_meta(batch: Any) -> Any:
    """Return `batch` with every tensor as an empty one of its shape on the meta device; floating ones as float32.

    A `NoExample` where that is impossible: a batch may be of any type, and its containers are made anew by their type.
    """
    import torch
    from lightning_utilities.core.apply_func import apply_to_collection

    def emptied(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.is_nested:
            raise TypeError("a nested tensor has no shape")
        kind = torch.float32 if tensor.is_floating_point() else tensor.dtype
        return torch.empty(tensor.shape, dtype=kind, device="meta")

    try:
        return apply_to_collection(batch, torch.Tensor, emptied)
    except Exception as error:  # noqa: BLE001  the user's containers may raise anything when they are made anew
        why = f"{type(error).__name__}: {said(error)}"[:200]
        return NoExample(f"a {type(batch).__name__} batch has no copy on the meta device ({why})")


def loss_in(output: Any) -> Any:
    """Return the loss in a training step's answer: the tensor itself, the mapping's `loss`, or None. Not detached."""
    loss = output.get("loss") if hasattr(output, "get") else output
    return loss if hasattr(loss, "detach") and loss.numel() == 1 else None
