"""`model=supervised`: any torch.nn.Module with any loss, trained without writing a LightningModule.

A batch is `(inputs..., target)` or a mapping. Where the network returns its loss itself, as those of transformers do
when they are given `labels`, `model.loss` is null. Strings and other things that are no tensors are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypedDict

import lightning.pytorch as pl
import torch
from torch import Tensor, nn
from torch.nn import functional

from accelsweep.errors import InputError, Unsupported

# The LightningModule around a network, and how the network is executed: as written or compiled, in which layout.

AUTO = "auto"


class Execution(TypedDict, total=False):
    """The keys of `NetworkModule` that every model hands on."""

    compile: bool | str
    channels_last: bool | str


class NetworkModule(pl.LightningModule):
    """A network with its execution; subclasses add the steps."""

    def __init__(
        self,
        network: nn.Module,
        compile: bool | str = False,  # noqa: A002  the name that PyTorch's users know
        channels_last: bool | str = False,
    ) -> None:
        """`compile` is True or a mode of torch.compile; `channels_last` stores images and convolutions as NHWC.

        Raises Unsupported for `channels_last` where no weight of `network` has four dimensions: nothing would change.
        `auto` does so where there is such a weight, and nothing elsewhere.
        """
        super().__init__()
        self.network = network
        self._channels_last = _decided(channels_last, network)
        if self._channels_last:
            network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        mode = compile if isinstance(compile, str) else None
        self._call: Callable[..., Any] = torch.compile(_call, mode=mode) if compile else _call

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the network's answer to `inputs` (samples, ...)."""
        outputs: Tensor = self.called(inputs)
        return outputs

    def called(self, *inputs: Any, **named: Any) -> Any:
        """Return the answer of the network, executed as asked for, to any arguments; images are laid out first."""
        return self._call(
            self.network, *map(self._laid_out, inputs), **{k: self._laid_out(v) for k, v in named.items()}
        )

    def _laid_out(self, value: Any) -> Any:
        if self._channels_last and isinstance(value, Tensor) and value.dim() == 4:
            return value.contiguous(memory_format=torch.channels_last)
        return value


def _call(network: nn.Module, *inputs: Any, **named: Any) -> Any:
    """Call `network`. This is what is compiled: `network.compile()` skips an `nn.Sequential` silently (torch 2.13)."""
    return network(*inputs, **named)


def _decided(channels_last: bool | str, network: nn.Module) -> bool:
    """Return whether to store images as NHWC; raise Unsupported where that is asked for and would change nothing."""
    possible = any(parameter.dim() == 4 for parameter in network.parameters())
    if channels_last == AUTO:
        return possible
    if channels_last and not possible:
        raise Unsupported(
            "model.channels_last=true would change nothing: no weight of the network is a convolution of images"
        )
    return bool(channels_last)


class Supervised(NetworkModule):
    """A network and its loss; validation logs `val_loss` and, where targets are classes, `val_accuracy`."""

    def __init__(
        self,
        network: nn.Module,
        loss: nn.Module | None = None,
        inputs: str | Sequence[str] | None = None,
        target: str = "labels",
        compile: bool | str = False,  # noqa: A002  the name that PyTorch's users know
        channels_last: bool | str = False,
    ) -> None:
        """`loss(outputs, target)` is a scalar; None means that the network returns it.

        If a batch is a mapping, the network gets the values of the keys `inputs`, in order. If that is None, it gets
        everything by name, but `target` where there is a loss.
        """
        if not isinstance(network, nn.Module):
            raise InputError(f"model.network gave a {type(network).__name__}; it must be a torch.nn.Module")
        super().__init__(network, compile=compile, channels_last=channels_last)
        self.loss = loss
        self._inputs = [inputs] if isinstance(inputs, str) else inputs
        self._target = target

    def training_step(self, batch: Any, _batch_idx: int) -> Tensor:
        """Return the loss of a batch."""
        _, loss, _ = self._evaluated(batch)
        return loss

    def validation_step(self, batch: Any, _batch_idx: int) -> None:
        """Log `val_loss` and perhaps `val_accuracy` (the share of right classes), averaged over all samples.

        A network with a loss of its own may compare shifted sequences, so accuracy is then only for a class per sample.
        """
        outputs, loss, target = self._evaluated(batch)
        size = len(outputs) if target is None else len(target)
        self.log("val_loss", loss, batch_size=size, sync_dist=True)
        if target is None or (self.loss is None and target.dim() > 1):
            return
        if (classes := _classes(outputs, target)) is not None:
            right = classes.eq(target).float().mean()
            self.log("val_accuracy", right, batch_size=size, sync_dist=True)

    def _evaluated(self, batch: Any) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return outputs (samples, ...), the loss and the target, where the batch has one."""
        arguments, named, target = self._parts(batch)
        returned = self.called(*arguments, **named)
        outputs = _outputs_in(returned)
        if self.loss is None:
            return outputs, _loss_in(returned), target
        if target is None:
            raise InputError(
                "the batch holds no target for model.loss: let the data set give (inputs, target), or a mapping with "
                f"the key {self._target!r} (model.target). Or set model.loss=null, if the network returns its loss"
            )
        return outputs, self.loss(outputs, target), target

    def _parts(self, batch: Any) -> tuple[list[Any], dict[str, Any], Tensor | None]:
        if isinstance(batch, Mapping):
            return self._parts_of_mapping(batch)
        if isinstance(batch, Tensor):
            return [batch], {}, batch if self.loss is not None else None
        tensors = [part for part in batch if isinstance(part, Tensor)]
        if len(tensors) > 1 and self.loss is not None:
            return tensors[:-1], {}, tensors[-1]
        return tensors, {}, None

    def _parts_of_mapping(self, batch: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any], Tensor | None]:
        target = batch.get(self._target)
        if self._inputs is not None:
            if missing := [key for key in self._inputs if key not in batch]:
                raise InputError(f"model.inputs={missing[0]}: the batch has no such key; it has {', '.join(batch)}")
            return [batch[key] for key in self._inputs], {}, target
        kept = {key for key, value in batch.items() if isinstance(value, Tensor)}
        kept -= {self._target} if self.loss is not None else set()
        return [], {key: value for key, value in batch.items() if key in kept}, target


def _outputs_in(returned: Any) -> Tensor:
    """Return the tensor among what a network returns: itself, its `logits`, or the first of several."""
    if isinstance(returned, Tensor):
        return returned
    found = returned.get("logits") if isinstance(returned, Mapping) else getattr(returned, "logits", None)
    if found is None and isinstance(returned, tuple | list):
        found = next((part for part in returned if isinstance(part, Tensor)), None)
    if not isinstance(found, Tensor):
        raise InputError(f"the network returned a {type(returned).__name__} without a tensor or logits in it")
    return found


def _loss_in(returned: Any) -> Tensor:
    loss = returned.get("loss") if isinstance(returned, Mapping) else getattr(returned, "loss", returned)
    if not isinstance(loss, Tensor) or loss.numel() != 1:
        raise InputError(
            "model.loss is null, but the network returned no scalar loss: give it the labels in the batch, or choose a "
            "loss, e.g. model.loss._target_=torch.nn.CrossEntropyLoss"
        )
    return loss


def _classes(outputs: Tensor, target: Tensor) -> Tensor | None:
    """Return the likeliest classes where `target` holds classes: (samples, ..., classes) or (samples, classes, ...)."""
    if target.is_floating_point() or outputs.dim() != target.dim() + 1:
        return None
    return outputs.argmax(dim=-1 if outputs.shape[:-1] == target.shape else 1)


# The training of our models: the right class of each sample, or of each token of a text (a language model).


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
