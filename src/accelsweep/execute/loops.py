"""What a training loop is to the rest of a run, whoever wrote the loop: Lightning, or the bare one beside it.

A loop is built from a `RunSpec`, trains a fresh module until its listener says that it is enough, then may validate.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from accelsweep.core.errors import InputError
from accelsweep.execute.spec import RunSpec
from accelsweep.measure.samples import samples_in

if TYPE_CHECKING:
    import torch

    from accelsweep.measure.breakdown import PhaseTimer


class Listener(Protocol):
    """Who decides when training ends: the timed window, or a number of samples."""

    def begin(self) -> None:
        """Training is about to fetch its first batch."""

    def step_done(self, samples: int, loss: Any) -> bool:
        """A step processed `samples` samples on this rank; True ends the training."""


class Loop(Protocol):
    """A training loop on this rank. Attributes are facts read back, not wishes from the config."""

    device: torch.device
    precision: str
    strategy: str
    optimizer: str
    accumulate: int
    epoch_ends: list[int]

    @property
    def example(self) -> Any:
        """The first batch as empty tensors on the meta device, for whoever counts operations; None before it came."""

    @property
    def logged(self) -> dict[str, float]:
        """What the module logged while it trained or validated, averaged by phase. May wait for the device."""

    def watch(self, timer: PhaseTimer) -> None:
        """Tell `timer` about the phases of every step to come."""

    def stop_exchange(self) -> bool:
        """Exchange no gradients from the next step on; return whether this strategy can do that."""

    def train(self, listener: Listener) -> None:
        """Train a fresh module, seeded by the run, until `listener` has enough. Raises what the user's code raises."""

    def validate(self) -> dict[str, float] | None:
        """Return what the trained module logs over the validation set; None where the data has none."""


def make_loop(spec: RunSpec) -> Loop:
    """Return the loop that the config asks for. Raises Unsupported where this machine cannot run it."""
    name = spec.config["loop"]
    if name == "lightning":
        from accelsweep.execute.trainer import LightningLoop

        return LightningLoop(spec)
    if name == "raw":
        from accelsweep.execute.raw_loop import RawLoop

        return RawLoop(spec)
    raise InputError(f"loop={name!r} is not known: use lightning or raw")


def count_samples(batch: Any, first: bool, batch_size: int) -> int:
    """Return the samples in `batch`; raise InputError if the `first` one shows that the data ignores `batch_size`."""
    samples = samples_in(batch)
    if samples is None:
        raise InputError(
            f"cannot tell how many samples a {type(batch).__name__} batch holds: put a tensor (samples, ...) into it"
        )
    if first and samples != batch_size:
        raise InputError(
            f"the data's first batch holds {samples} samples although batch_size={batch_size}: "
            "give the data module's batch_size to its DataLoader"
        )
    return samples


def on_meta(batch: Any) -> Any:
    """Return `batch` with every tensor as an empty one of its shape on the meta device; floating ones as float32."""
    import torch
    from lightning_utilities.core.apply_func import apply_to_collection

    def emptied(tensor: torch.Tensor) -> torch.Tensor:
        kind = torch.float32 if tensor.is_floating_point() else tensor.dtype
        return torch.empty(tensor.shape, dtype=kind, device="meta")

    return apply_to_collection(batch, torch.Tensor, emptied)


def loss_in(output: Any) -> Any:
    """Return the loss in what a training step gave: the tensor itself, the mapping's `loss`, or None. Not detached."""
    loss = output.get("loss") if hasattr(output, "get") else output
    return loss if hasattr(loss, "detach") and loss.numel() == 1 else None
