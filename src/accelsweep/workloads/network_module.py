"""The LightningModule around a network, and how the network is executed: as written or compiled, in which layout.

Both are axes of every built-in model (`model.compile`, `model.channels_last`); they change speed, not what is computed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypedDict

import lightning.pytorch as pl
import torch
from torch import Tensor, nn

from accelsweep.core.errors import Unsupported


class Execution(TypedDict, total=False):
    """The keys of `NetworkModule` that every model hands on."""

    compile: bool | str
    channels_last: bool


class NetworkModule(pl.LightningModule):
    """A network with its execution; subclasses add the steps."""

    def __init__(
        self,
        network: nn.Module,
        compile: bool | str = False,  # noqa: A002  the name that PyTorch's users know
        channels_last: bool = False,
    ) -> None:
        """`compile` is True or a mode of torch.compile; `channels_last` stores images and convolutions as NHWC.

        Raises Unsupported for `channels_last` where no weight of `network` has four dimensions: nothing would change.
        """
        super().__init__()
        self.network = network
        self._channels_last = channels_last
        if channels_last:
            _check_layout(network)
            network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        mode = compile if isinstance(compile, str) else None
        self._call: Callable[[nn.Module, Tensor], Tensor] = torch.compile(_call, mode=mode) if compile else _call

    def forward(self, inputs: Tensor) -> Tensor:
        """Return what the network makes of `inputs` (samples, ...)."""
        if self._channels_last and inputs.dim() == 4:
            inputs = inputs.contiguous(memory_format=torch.channels_last)
        return self._call(self.network, inputs)


def _call(network: nn.Module, inputs: Tensor) -> Tensor:
    """Call `network`. This is what is compiled: `network.compile()` skips an `nn.Sequential` silently (torch 2.13)."""
    outputs: Tensor = network(inputs)
    return outputs


def _check_layout(network: nn.Module) -> None:
    if all(parameter.dim() != 4 for parameter in network.parameters()):
        raise Unsupported(
            "model.channels_last=true would change nothing: no weight of the network is a convolution of images"
        )
