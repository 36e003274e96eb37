"""Residual networks: ResNet-50 for ImageNet (25.6 M parameters) and ResNet-56 for CIFAR-10 (0.85 M).

Source: K. He et al., "Deep Residual Learning for Image Recognition" (2015). ResNet-50 halves the image in the 3x3
convolution of a block instead of its first 1x1. This variant is known as v1.5, and vendors publish its rates. It has as
many parameters. ResNet-56 has the paper's parameter-free shortcuts (option A).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

import torch
from torch import Tensor, nn
from torch.nn import functional

from accelsweep.workloads.building.classifier import Classifier
from accelsweep.workloads.building.network_module import Execution


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
