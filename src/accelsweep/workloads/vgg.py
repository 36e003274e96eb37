"""VGG16: thirteen 3x3 convolutions and three linear layers (138.4 M parameters for 1000 classes).

Source: K. Simonyan and A. Zisserman, "Very Deep Convolutional Networks for Large-Scale Image Recognition" (2015),
configuration D.
"""

from __future__ import annotations

from typing import Unpack

from torch import nn

from accelsweep.workloads.building.classifier import Classifier
from accelsweep.workloads.building.network_module import Execution

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
