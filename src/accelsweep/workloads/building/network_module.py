"""The LightningModule around a network, and how the network is executed: as written or compiled, in which layout.

Both are axes of every built-in model (`model.compile`, `model.channels_last`). They change the speed, not the result.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypedDict

import lightning.pytorch as pl
import torch
from torch import Tensor, nn

from accelsweep.base.errors import Unsupported

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
