"""Residual networks: ResNet-50 for ImageNet (25.6 M parameters) and ResNet-56 for CIFAR-10 (0.85 M).

Source: K. He et al., "Deep Residual Learning for Image Recognition" (2015). ResNet-50 halves the image in the 3x3
convolution of a block instead of its first 1x1. This variant is known as v1.5, and vendors publish its rates. It has as
many parameters. ResNet-56 has the paper's parameter-free shortcuts (option A).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Unpack

import torch
from torch import Tensor, nn
from torch.nn import functional

from accelsweep.workloads.lightning_modules import Classifier, Execution


class ResNet50(Classifier):
    """Stages of 3, 4, 6 and 3 bottleneck blocks."""

    def __init__(
        self,
        channels: int = 3,
        classes: int = 1000,
        blocks: Sequence[int] = (3, 4, 6, 3),
        width: int = 64,
        **execution: Unpack[Execution],
    ) -> None:
        """`width` is the number of channels after the first convolution; images may have any size from 32 pixels."""
        layers: list[nn.Module] = [
            nn.Conv2d(channels, width, kernel_size=7, stride=2, padding=3, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(kernel_size=3, stride=2, padding=1),
        ]
        incoming = width
        for stage, count in enumerate(blocks):
            narrow = width * 2**stage
            for block in range(count):
                layers.append(Bottleneck(incoming, narrow, stride=2 if stage > 0 and block == 0 else 1))
                incoming = narrow * Bottleneck.EXPANSION
        super().__init__(nn.Sequential(*layers, *_head(incoming, classes)), **execution)


class Bottleneck(nn.Module):
    """1x1, 3x3 and 1x1 convolutions beside a shortcut; the last one widens by `EXPANSION`."""

    EXPANSION = 4

    def __init__(self, incoming: int, narrow: int, stride: int) -> None:
        """`narrow` is the number of channels of the 3x3 convolution, which has the `stride`."""
        super().__init__()
        outgoing = narrow * self.EXPANSION
        self.residual = nn.Sequential(
            nn.Conv2d(incoming, narrow, kernel_size=1, bias=False),
            nn.BatchNorm2d(narrow),
            nn.ReLU(inplace=True),
            nn.Conv2d(narrow, narrow, kernel_size=3, stride=stride, padding=1, bias=False),
            nn.BatchNorm2d(narrow),
            nn.ReLU(inplace=True),
            nn.Conv2d(narrow, outgoing, kernel_size=1, bias=False),
            nn.BatchNorm2d(outgoing),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or incoming != outgoing:
            projection = nn.Conv2d(incoming, outgoing, kernel_size=1, stride=stride, bias=False)
            self.shortcut = nn.Sequential(projection, nn.BatchNorm2d(outgoing))

    def forward(self, images: Tensor) -> Tensor:
        """Return (samples, narrow * EXPANSION, height / stride, width / stride)."""
        return functional.relu(self.residual(images) + self.shortcut(images))


class ResNetCifar(Classifier):
    """A 3x3 convolution and three stages of `blocks_per_stage` = n blocks: 6n + 2 layers with weights, 56 for n = 9."""

    def __init__(
        self,
        blocks_per_stage: int = 9,
        channels: int = 3,
        classes: int = 10,
        width: int = 16,
        **execution: Unpack[Execution],
    ) -> None:
        """`width` is the number of channels of the first stage; images may have any size from 4 pixels."""
        layers: list[nn.Module] = [
            nn.Conv2d(channels, width, kernel_size=3, padding=1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
        ]
        incoming = width
        for stage in range(3):
            outgoing = width * 2**stage
            for block in range(blocks_per_stage):
                layers.append(PlainShortcutBlock(incoming, outgoing, stride=2 if stage > 0 and block == 0 else 1))
                incoming = outgoing
        super().__init__(nn.Sequential(*layers, *_head(incoming, classes)), **execution)


class PlainShortcutBlock(nn.Module):
    """Two 3x3 convolutions beside a shortcut without parameters: every other pixel, new channels zero (option A)."""

    def __init__(self, incoming: int, outgoing: int, stride: int) -> None:
        """The first convolution has the `stride`."""
        super().__init__()
        self.residual = nn.Sequential(
            nn.Conv2d(incoming, outgoing, kernel_size=3, stride=stride, padding=1, bias=False),
            nn.BatchNorm2d(outgoing),
            nn.ReLU(inplace=True),
            nn.Conv2d(outgoing, outgoing, kernel_size=3, padding=1, bias=False),
            nn.BatchNorm2d(outgoing),
        )
        self.stride, self.new_channels = stride, outgoing - incoming

    def forward(self, images: Tensor) -> Tensor:
        """Return (samples, outgoing, height / stride, width / stride)."""
        shortcut = images[:, :, :: self.stride, :: self.stride]
        if self.new_channels:
            before = self.new_channels // 2
            shortcut = functional.pad(shortcut, (0, 0, 0, 0, before, self.new_channels - before))
        return torch.relu(self.residual(images) + shortcut)


def _head(incoming: int, classes: int) -> tuple[nn.Module, ...]:
    return nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(incoming, classes)


# AlexNet as benchmarks have it: for ImageNet's 224x224 images (62.4 M parameters), and for CIFAR's 32x32 (85 k).


class AlexNet(Classifier):
    """Five convolutions (96, 256, 384, 384, 256 channels) and three linear layers; 224x224 images give 6x6 features."""

    def __init__(
        self,
        channels: int = 3,
        classes: int = 1000,
        hidden: int = 4096,
        dropout: float = 0.0,
        **execution: Unpack[Execution],
    ) -> None:
        """`hidden` is the number of units of the linear layers.

        Images are at least 63 pixels wide; another size than 224 is pooled to the same 6x6 features.
        """
        features = nn.Sequential(
            *_convolution(channels, 96, kernel=11, stride=4, padding=2),
            nn.MaxPool2d(kernel_size=3, stride=2),
            *_convolution(96, 256, kernel=5, padding=2),
            nn.MaxPool2d(kernel_size=3, stride=2),
            *_convolution(256, 384, kernel=3, padding=1),
            *_convolution(384, 384, kernel=3, padding=1),
            *_convolution(384, 256, kernel=3, padding=1),
            nn.MaxPool2d(kernel_size=3, stride=2),
            nn.AdaptiveAvgPool2d(6),
        )
        classifier = nn.Sequential(
            nn.Flatten(),
            nn.Dropout(dropout),
            nn.Linear(256 * 6 * 6, hidden),
            nn.ReLU(inplace=True),
            nn.Dropout(dropout),
            nn.Linear(hidden, hidden),
            nn.ReLU(inplace=True),
            nn.Linear(hidden, classes),
        )
        super().__init__(nn.Sequential(features, classifier), **execution)


class AlexNetCifar(Classifier):
    """Three 5x5 convolutions (32, 32, 64 channels), each pooled 3x3 by 2, and one linear layer; for 32x32 images."""

    def __init__(self, channels: int = 3, classes: int = 10, **execution: Unpack[Execution]) -> None:
        """Images have 32x32 pixels."""
        layers = nn.Sequential(
            *_convolution(channels, 32, kernel=5, padding=2),
            nn.MaxPool2d(kernel_size=3, stride=2),
            *_convolution(32, 32, kernel=5, padding=2),
            nn.MaxPool2d(kernel_size=3, stride=2),
            *_convolution(32, 64, kernel=5, padding=2),
            nn.AvgPool2d(kernel_size=3, stride=2),
            nn.Flatten(),
            nn.Linear(64 * 3 * 3, classes),
        )
        super().__init__(layers, **execution)


def _convolution(incoming: int, outgoing: int, kernel: int, padding: int, stride: int = 1) -> tuple[nn.Module, ...]:
    return nn.Conv2d(incoming, outgoing, kernel, stride, padding), nn.ReLU(inplace=True)


# Fully connected networks with sigmoids: FCN-5 and FCN-8, the plainest of the deep-learning benchmarks.


class FCN(Classifier):
    """Linear layers with a sigmoid after each but the last, on vectors or flattened images."""

    def __init__(
        self,
        features: int = 26752,
        hidden: Sequence[int] = (2048, 2048, 2048),
        classes: int = 26752,
        **execution: Unpack[Execution],
    ) -> None:
        """`features` is the length of an input, `hidden` the units of each hidden layer."""
        sizes = [features, *hidden, classes]
        layers: list[nn.Module] = [nn.Flatten()]
        for incoming, outgoing in pairwise(sizes):
            layers += [nn.Linear(incoming, outgoing), nn.Sigmoid()]
        super().__init__(nn.Sequential(*layers[:-1]), **execution)


# Networks: a small convolutional one and a multilayer perceptron, for square images of any size.


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


# VGG16: thirteen 3x3 convolutions and three linear layers (138.4 M parameters for 1000 classes).

STAGES = ((2, 1), (2, 2), (3, 4), (3, 8), (3, 8))
"""Convolutions of each stage of configuration D, and its channels as a multiple of the first stage's."""


class VGG16(Classifier):
    """Configuration D; 224x224 images give 7x7 features."""

    def __init__(
        self,
        channels: int = 3,
        classes: int = 1000,
        width: int = 64,
        hidden: int = 4096,
        dropout: float = 0.5,
        **execution: Unpack[Execution],
    ) -> None:
        """`width` is the number of channels of the first stage, `hidden` the units of the linear layers.

        Images are at least 32 pixels wide; another size than 224 is pooled to the same 7x7 features.
        """
        features: list[nn.Module] = []
        for convolutions, multiple in STAGES:
            for _ in range(convolutions):
                features += [nn.Conv2d(channels, width * multiple, kernel_size=3, padding=1), nn.ReLU(inplace=True)]
                channels = width * multiple
            features.append(nn.MaxPool2d(kernel_size=2))
        classifier = nn.Sequential(
            nn.AdaptiveAvgPool2d(7),
            nn.Flatten(),
            nn.Linear(channels * 7 * 7, hidden),
            nn.ReLU(inplace=True),
            nn.Dropout(dropout),
            nn.Linear(hidden, hidden),
            nn.ReLU(inplace=True),
            nn.Dropout(dropout),
            nn.Linear(hidden, classes),
        )
        super().__init__(nn.Sequential(nn.Sequential(*features), classifier), **execution)
