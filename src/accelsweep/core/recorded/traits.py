"""The work of one forward pass of a model, per sample: the operations and the numbers that it writes, by kind.

Traits are counted on the meta device, see `measure.metrics.traits`. Projections onto other devices start from them.
"""

from __future__ import annotations

from enum import StrEnum

from accelsweep.base.documents import Frozen


class NetworkFamily(StrEnum):
    """A kind of network, named by the modules that do most of its work."""

    convolution = "convolutions"
    depthwise = "depthwise convolutions"
    hybrid = "convolutions and attention"
    attention = "attention"
    dense = "dense layers"
    recurrent = "recurrent"


class Traits(Frozen):
    """Counts of one forward pass, per sample unless said otherwise. An addition is an operation.

    The four `flops_` are those of convolutions, of grouped and depthwise convolutions, of matrix products, and of fused
    attention. `activations` are the numbers that these four write, `others` those that everything else writes.
    `kernels` counts operations of a step, whatever its batch. `unknown` are the numbers written by operations of which
    the counter cannot tell how much work they are, and `unknown_names` says which. `recurrent` says whether the model
    holds a recurrent layer.
    """

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
        """Operations of one sample's forward pass."""
        return self.flops_convolution + self.flops_grouped + self.flops_product + self.flops_attention

    @property
    def unknown_share(self) -> float:
        """Share of the written numbers that comes from operations of unknown cost."""
        written = self.activations + self.others + self.unknown
        return self.unknown / written if written else 0.0
