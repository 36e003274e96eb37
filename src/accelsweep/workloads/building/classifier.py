"""The training of our models: the right class of each sample, or of each token of a text (a language model).

Nothing is logged in training, because `self.log` in a training step costs more than a small model's whole forward pass.
The config's `optimizer` takes the place of `configure_optimizers`.
"""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional

from accelsweep.workloads.building.network_module import NetworkModule


class Classifier(NetworkModule):
    """A network from inputs (samples, ...) to logits (samples, ..., classes), trained with cross-entropy.

    A language model is one whose inputs and targets both have shape (samples, sequence): each token's class is the next
    token.
    """

    def training_step(self, batch: tuple[Tensor, Tensor], _batch_idx: int) -> Tensor:
        """Return the mean cross-entropy in nats of a batch (inputs, targets); targets have shape (samples, ...)."""
        inputs, targets = batch
        return _cross_entropy(self(inputs), targets)

    def validation_step(self, batch: tuple[Tensor, Tensor], _batch_idx: int) -> None:
        """Log `val_loss` and `val_accuracy` (the share of right answers), averaged over all samples of all ranks."""
        inputs, targets = batch
        logits = self(inputs)
        size = len(targets)
        self.log("val_loss", _cross_entropy(logits, targets), batch_size=size, sync_dist=True)
        right = (logits.argmax(dim=-1) == targets).float().mean()
        self.log("val_accuracy", right, batch_size=size, sync_dist=True)


def _cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    return functional.cross_entropy(logits.flatten(0, -2), targets.flatten())
