"""AlexNet as benchmarks have it: for ImageNet's 224x224 images (62.4 M parameters), and for CIFAR's 32x32 (85 k).

The original splits the convolutions over two GPUs (61.0 M) and normalises local responses (A. Krizhevsky et al.,
"ImageNet Classification with Deep Convolutional Neural Networks", 2012). S. Shi et al., arXiv 1608.07249 (2016), do
neither, and their definitions are used here. The small one has the layers of cuda-convnet's 18 % network for CIFAR-10,
likewise unnormalised.
"""

from __future__ import annotations

from typing import Unpack

from torch import nn

from accelsweep.workloads.building.classifier import Classifier
from accelsweep.workloads.building.network_module import Execution


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
