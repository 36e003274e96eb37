"""LightningModules that wrap a network: `Classifier` for built-in models, `Supervised` for any torch.nn.Module."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import lightning.pytorch as pl
from torch import Tensor, nn
from torch.nn import functional

from accelsweep.errors import InputError


@runtime_checkable
class SeesDataAhead(Protocol):
    """A module that accesses the training data before training starts."""

    def around_data(self, data: pl.LightningDataModule) -> None:
        """Change how the data module serves its training batches."""


class NetworkModule(pl.LightningModule):
    """A network; subclasses add the steps."""

    def __init__(self, network: nn.Module) -> None:
        """Keep the network, whose inputs are those of `forward`."""
        super().__init__()
        self.network = network

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the network's outputs for `inputs` (samples, ...)."""
        outputs: Tensor = self.network(inputs)
        return outputs


class Classifier(NetworkModule):
    """A network that maps inputs (samples, ...) to logits (samples, ..., classes), trained with cross-entropy.

    A language model classifies each token: inputs and targets both have shape (samples, sequence).
    """

    def training_step(self, batch: tuple[Tensor, Tensor], _batch_idx: int) -> Tensor:
        """Return the mean cross-entropy, in nats, for a batch (inputs, targets); targets have shape (samples, ...)."""
        inputs, targets = batch
        return _cross_entropy(self(inputs), targets)

    def validation_step(self, batch: tuple[Tensor, Tensor], _batch_idx: int) -> None:
        """Log `val_loss` and `val_accuracy`, averaged over the samples on all ranks."""
        inputs, targets = batch
        logits = self(inputs)
        self.log("val_loss", _cross_entropy(logits, targets), batch_size=len(targets), sync_dist=True)
        accuracy = (logits.argmax(dim=-1) == targets).float().mean()
        self.log("val_accuracy", accuracy, batch_size=len(targets), sync_dist=True)


def _cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    return functional.cross_entropy(logits.flatten(0, -2), targets.flatten())


class Supervised(NetworkModule):
    """`model=supervised`: any torch.nn.Module with any loss, without writing a LightningModule.

    A batch is `(inputs..., target)` or a mapping; strings and other non-tensors in it are ignored. Validation logs
    `val_loss` and, if targets are classes, `val_accuracy`.
    """

    def __init__(
        self,
        network: nn.Module,
        loss: nn.Module | None = None,
        inputs: str | Sequence[str] | None = None,
        target: str = "labels",
    ) -> None:
        """`loss(outputs, target)` returns a scalar; it is None if the network returns its own loss, as in transformers.

        If a batch is a mapping, the network receives the values of the keys `inputs`, in order. If `inputs` is None, it
        receives all values by name, except `target` if there is a loss.
        """
        if not isinstance(network, nn.Module):
            raise InputError(f"model.network is a {type(network).__name__}; it must be a torch.nn.Module")
        super().__init__(network)
        self.loss = loss
        self._inputs = [inputs] if isinstance(inputs, str) else inputs
        self._target = target

    def training_step(self, batch: Any, _batch_idx: int) -> Tensor:
        """Return the loss of a batch."""
        _, loss, _ = self._evaluate(batch)
        return loss

    def validation_step(self, batch: Any, _batch_idx: int) -> None:
        """Log `val_loss` and, if targets are classes, `val_accuracy`, averaged over all samples.

        A network that returns its own loss may compare shifted sequences, so its accuracy is only logged if there is
        one target per sample.
        """
        outputs, loss, target = self._evaluate(batch)
        size = len(outputs) if target is None else len(target)
        self.log("val_loss", loss, batch_size=size, sync_dist=True)
        if target is None or (self.loss is None and target.dim() > 1):
            return
        if (classes := _predicted_classes(outputs, target)) is not None:
            self.log("val_accuracy", classes.eq(target).float().mean(), batch_size=size, sync_dist=True)

    def _evaluate(self, batch: Any) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return the outputs (samples, ...), the loss, and the target if the batch contains one."""
        inputs, named, target = self._split_mapping(batch) if isinstance(batch, Mapping) else self._split(batch)
        returned = self.network(*inputs, **named)
        outputs = _outputs_in(returned)
        if self.loss is None:
            return outputs, _loss_in(returned), target
        if target is None:
            raise InputError(
                "the batch contains no target for model.loss: the data set must return (inputs, target), or a mapping "
                f"with the key {self._target!r} (model.target). If the network returns its loss, set model.loss=null"
            )
        return outputs, self.loss(outputs, target), target

    def _split(self, batch: Any) -> tuple[list[Any], dict[str, Any], Tensor | None]:
        if isinstance(batch, Tensor):  # for an autoencoder, the input is also the target
            return [batch], {}, batch if self.loss is not None else None
        tensors = [part for part in batch if isinstance(part, Tensor)]
        if len(tensors) > 1 and self.loss is not None:
            return tensors[:-1], {}, tensors[-1]
        return tensors, {}, None

    def _split_mapping(self, batch: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any], Tensor | None]:
        target = batch.get(self._target)
        if self._inputs is not None:
            if missing := [key for key in self._inputs if key not in batch]:
                raise InputError(f"model.inputs={missing[0]}: the batch has no such key; it has {', '.join(batch)}")
            return [batch[key] for key in self._inputs], {}, target
        named = {key: value for key, value in batch.items() if isinstance(value, Tensor)}
        if self.loss is not None:
            named.pop(self._target, None)
        return [], named, target


def _outputs_in(returned: Any) -> Tensor:
    """Return the tensor in a network's output: the output itself, its `logits`, or the first of several tensors."""
    if isinstance(returned, Tensor):
        return returned
    outputs = returned.get("logits") if isinstance(returned, Mapping) else getattr(returned, "logits", None)
    if outputs is None and isinstance(returned, tuple | list):
        outputs = next((part for part in returned if isinstance(part, Tensor)), None)
    if not isinstance(outputs, Tensor):
        raise InputError(f"the network returned a {type(returned).__name__} that contains neither a tensor nor logits")
    return outputs


def _loss_in(returned: Any) -> Tensor:
    loss = returned.get("loss") if isinstance(returned, Mapping) else getattr(returned, "loss", returned)
    if not isinstance(loss, Tensor) or loss.numel() != 1:
        raise InputError(
            "model.loss is null, but the network returned no scalar loss: include the labels in the batch, or choose a "
            "loss, e.g. model.loss._target_=torch.nn.CrossEntropyLoss"
        )
    return loss


def _predicted_classes(outputs: Tensor, target: Tensor) -> Tensor | None:
    """Return the most likely class from (samples, ..., classes) or (samples, classes, ...).

    Returns None if the targets are not classes.
    """
    if target.is_floating_point() or outputs.dim() != target.dim() + 1:
        return None
    return outputs.argmax(dim=-1 if outputs.shape[:-1] == target.shape else 1)
