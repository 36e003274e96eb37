"""A module whose parts take a programmed time of the simulated device, and whose parts may take too much memory."""

from __future__ import annotations

from typing import Any

import lightning.pytorch as pl
import torch
from torch import Tensor, nn

from accelsweep.testing.simulator import current

WAITS: list[int] = []
"""How often somebody had waited for the device as each training step of the run began. The window's come first."""
COPIES: list[int] = []
"""Copies between host and device until then."""


def work(seconds: float) -> None:
    """Let the device work."""
    if seconds:
        current().launch(seconds, lambda: None)


class _Backward(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, loss: Tensor, seconds: float, size: int) -> Tensor:
        context.programmed = seconds, size
        return loss.clone()

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> Any:
        seconds, size = context.programmed
        work(seconds)
        _held(size)
        return gradients[0], None, None


def _held(size: int) -> Tensor:
    return torch.empty(size, dtype=torch.uint8, device="simulated")


class _Sgd(torch.optim.SGD):
    def __init__(self, parameters: Any, seconds: float, size: int) -> None:
        super().__init__(parameters, lr=1e-3)
        self.seconds, self.size = seconds, size

    def step(self, closure: Any = None) -> Any:
        loss = super().step(closure)
        work(self.seconds)
        _held(self.size)
        return loss


class Worked(pl.LightningModule):
    """`forward`, `backward` and `optimizer` are seconds of the device; `bytes_in` is what each part takes beside them.

    The parts of `bytes_in` are these three and `validation`. `kept` bytes more are kept of each step. Of `small`
    operations each is launched by itself. `each` sample takes so many bytes until its step ends.
    """

    def __init__(
        self,
        forward: float = 0.0,
        backward: float = 0.0,
        optimizer: float = 0.0,
        bytes_in: dict[str, int] | None = None,
        kept: int = 0,
        small: int = 0,
        each: int = 0,
    ) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))
        self._seconds = {"forward": forward, "backward": backward, "optimizer": optimizer}
        self._bytes, self._kept, self._small, self._each = bytes_in or {}, kept, small, each
        self._all: list[Tensor] = []

    def training_step(self, batch: Any, _number: int) -> Tensor:
        """Work, log, and return a loss that the weight decides."""
        WAITS.append(len(current().waits))
        COPIES.append(current().copies)
        images = batch[0] if isinstance(batch, list | tuple) else batch
        work(self._seconds["forward"])
        _held(self._bytes.get("forward", 0))
        held = _held(self._each * len(images))
        self._all += [_held(self._kept)] if self._kept else []
        loss = (self.weight * images.float().mean()).sum() ** 2
        for _ in range(self._small):
            loss = loss + 0.0
        self.log("train_loss", loss)
        programmed: Any = _Backward.apply  # torch gives it no types
        made: Tensor = programmed(loss, self._seconds["backward"], self._bytes.get("backward", 0))
        del held
        return made

    def validation_step(self, batch: Any, _number: int) -> None:
        """Log the weight as `val_accuracy`."""
        _held(self._bytes.get("validation", 0))
        images = batch[0] if isinstance(batch, list | tuple) else batch
        self.log("val_accuracy", self.weight.detach().sum(), batch_size=len(images))

    def configure_optimizers(self) -> Any:
        """Return SGD that works."""
        return _Sgd(self.parameters(), self._seconds["optimizer"], self._bytes.get("optimizer", 0))
