"""What one forward pass of ResNet-50 on a picture of 224 x 224 is made of: the counts that projections start from."""

from __future__ import annotations

from accelsweep.results import Traits

RESNET50 = Traits(
    flops_convolution=8.2e9,
    flops_grouped=0,
    flops_product=4.1e6,
    flops_attention=0,
    activations=1.11e7,
    others=2.3e7,
    kernels=175,
    parameters=2.56e7,
)
