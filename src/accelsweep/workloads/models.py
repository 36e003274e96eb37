"""Networks: a small convolutional one and a multilayer perceptron, for square images of any size."""

from __future__ import annotations

from typing import Unpack

from torch import nn

from accelsweep.workloads.building.classifier import Classifier
from accelsweep.workloads.building.network_module import Execution


class SmallCNN(Classifier):
    """Convolution (3x3), batch normalisation and ReLU, `depth` times, doubling the channels; then pooling and a layer.

    Every stage but the first halves the image as long as it is larger than 2 pixels. So 8x8 digits work as well as
    larger images.
    """

    def __init__(
        self,
        width: int = 32,
        depth: int = 3,
        image_size: int = 8,
        channels: int = 1,
        classes: int = 10,
        **execution: Unpack[Execution],
    ) -> None:
        """`width` is the number of channels of the first stage."""
        layers: list[nn.Module] = []
        incoming, size = channels, image_size
        for stage in range(depth):
            outgoing = width * 2**stage
            stride = 2 if stage > 0 and size > 2 else 1
            layers += [
                nn.Conv2d(incoming, outgoing, kernel_size=3, stride=stride, padding=1, bias=False),
                nn.BatchNorm2d(outgoing),
                nn.ReLU(inplace=True),
            ]
            incoming, size = outgoing, -(-size // stride)
        layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(incoming, classes)]
        super().__init__(nn.Sequential(*layers), **execution)


class MLP(Classifier):
    """`depth` hidden layers of `width` units with ReLU, on vectors or flattened images."""

    def __init__(
        self,
        width: int = 256,
        depth: int = 2,
        image_size: int = 8,
        channels: int = 1,
        classes: int = 10,
        features: int | None = None,
        **execution: Unpack[Execution],
    ) -> None:
        """`image_size` is the side of a square image in pixels; `features`, if given, is the length of a vector."""
        layers: list[nn.Module] = [nn.Flatten()]
        incoming = channels * image_size**2 if features is None else features
        for _ in range(depth):
            layers += [nn.Linear(incoming, width), nn.ReLU(inplace=True)]
            incoming = width
        layers.append(nn.Linear(incoming, classes))
        super().__init__(nn.Sequential(*layers), **execution)
