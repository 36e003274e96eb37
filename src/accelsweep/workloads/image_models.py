"""Image classifiers and fully connected networks in plain torch.

The published networks, with parameter counts that a test checks against their sources:

* ResNet-50 (25.6 M) and ResNet-56 for CIFAR-10 (0.85 M): K. He et al., "Deep Residual Learning for Image Recognition"
  (2015). ResNet-50 is v1.5, the variant for which vendors publish rates: a block's stride is applied in its 3x3
  convolution instead of its first 1x1 convolution. ResNet-56 uses the paper's parameter-free shortcuts (option A).
* AlexNet as defined by benchmarks (62.4 M), without groups or local response normalisation. AlexNetCifar (85 k) is the
  small variant for 32x32 images.
* VGG16 (138.4 M): configuration D of K. Simonyan and A. Zisserman (2015).
* FCN-5 and FCN-8: fully connected networks with sigmoids, from S. Shi et al. (2016).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from accelsweep.workloads.lightning_modules import Classifier


class SmallCNN(Classifier):
    """`depth` stages of 3x3 convolution, batch norm and ReLU, doubling the channels; then pooling and a linear layer.

    Every stage except the first halves the image while it is larger than 2 pixels, so 8x8 digits also work.
    """

    def __init__(
        self,
        width: int = 32,
        depth: int = 3,
        image_size: int = 8,
        channels: int = 1,
        classes: int = 10,
    ) -> None:
        """`width` is the number of channels in the first stage."""
        layers: list[nn.Module] = []
        for stage in range(depth):
            stride = 2 if stage > 0 and image_size > 2 else 1
            layers += _conv_bn_relu(channels, width * 2**stage, kernel=3, stride=stride)
            channels, image_size = width * 2**stage, -(-image_size // stride)
        super().__init__(nn.Sequential(*layers, *_pool_and_classify(channels, classes)))


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
    ) -> None:
        """`image_size` is the side length of a square image in pixels; `features`, if set, is a vector's length."""
        layers: list[nn.Module] = [nn.Flatten()]
        in_features = channels * image_size**2 if features is None else features
        for _ in range(depth):
            layers += [nn.Linear(in_features, width), nn.ReLU(inplace=True)]
            in_features = width
        super().__init__(nn.Sequential(*layers, nn.Linear(in_features, classes)))


class FCN(Classifier):
    """Linear layers with a sigmoid after each one except the last, on vectors or flattened images."""

    def __init__(
        self,
        features: int = 26752,
        hidden: Sequence[int] = (2048, 2048, 2048),
        classes: int = 26752,
    ) -> None:
        """`features` is the length of each input, and `hidden` is the number of units in each hidden layer."""
        layers: list[nn.Module] = [nn.Flatten()]
        for in_features, out_features in pairwise([features, *hidden, classes]):
            layers += [nn.Linear(in_features, out_features), nn.Sigmoid()]
        super().__init__(nn.Sequential(*layers[:-1]))


class AlexNet(Classifier):
    """Five convolutions (96, 256, 384, 384, 256 channels) and three linear layers.

    Images of 224x224 pixels yield 6x6 features.
    """

    def __init__(
        self,
        channels: int = 3,
        classes: int = 1000,
        hidden: int = 4096,
        dropout: float = 0.0,
    ) -> None:
        """`hidden` is the number of units in the linear layers.

        Images must be at least 63 pixels wide; sizes other than 224 are pooled to the same 6x6 features.
        """
        features = nn.Sequential(
            *_conv_relu(channels, 96, kernel=11, stride=4, padding=2),
            nn.MaxPool2d(kernel_size=3, stride=2),
            *_conv_relu(96, 256, kernel=5, padding=2),
            nn.MaxPool2d(kernel_size=3, stride=2),
            *_conv_relu(256, 384, kernel=3, padding=1),
            *_conv_relu(384, 384, kernel=3, padding=1),
            *_conv_relu(384, 256, kernel=3, padding=1),
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
        super().__init__(nn.Sequential(features, classifier))


class AlexNetCifar(Classifier):
    """Three 5x5 convolutions (32, 32, 64 channels) and a linear layer, for 32x32 images.

    Each convolution is followed by 3x3 pooling with stride 2.
    """

    def __init__(self, channels: int = 3, classes: int = 10) -> None:
        """Images must be 32x32 pixels."""
        layers = nn.Sequential(
            *_conv_relu(channels, 32, kernel=5, padding=2),
            nn.MaxPool2d(kernel_size=3, stride=2),
            *_conv_relu(32, 32, kernel=5, padding=2),
            nn.MaxPool2d(kernel_size=3, stride=2),
            *_conv_relu(32, 64, kernel=5, padding=2),
            nn.AvgPool2d(kernel_size=3, stride=2),
            nn.Flatten(),
            nn.Linear(64 * 3 * 3, classes),
        )
        super().__init__(layers)


class VGG16(Classifier):
    """Thirteen 3x3 convolutions and three linear layers; 224x224 images yield 7x7 features."""

    STAGES = ((2, 1), (2, 2), (3, 4), (3, 8), (3, 8))
    """Each stage's number of convolutions, and its channels as a multiple of the first stage's."""

    def __init__(
        self,
        channels: int = 3,
        classes: int = 1000,
        width: int = 64,
        hidden: int = 4096,
        dropout: float = 0.5,
    ) -> None:
        """`width` is the number of channels in the first stage, and `hidden` the number of units in the linear layers.

        Images must be at least 32 pixels wide; sizes other than 224 are pooled to the same 7x7 features.
        """
        features: list[nn.Module] = []
        for convolutions, multiple in self.STAGES:
            for _ in range(convolutions):
                features += _conv_relu(channels, width * multiple, kernel=3, padding=1)
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
        super().__init__(nn.Sequential(nn.Sequential(*features), classifier))


class ResNet50(Classifier):
    """Stages of 3, 4, 6 and 3 bottleneck blocks."""

    def __init__(
        self,
        channels: int = 3,
        classes: int = 1000,
        blocks: Sequence[int] = (3, 4, 6, 3),
        width: int = 64,
    ) -> None:
        """`width` is the number of channels after the first convolution; images must be at least 32 pixels wide."""
        layers = [*_conv_bn_relu(channels, width, kernel=7, stride=2), nn.MaxPool2d(kernel_size=3, stride=2, padding=1)]
        in_channels = width
        for stage, count in enumerate(blocks):
            narrow = width * 2**stage
            for block in range(count):
                stride = 2 if stage > 0 and block == 0 else 1
                layers.append(Bottleneck(in_channels, narrow, stride))
                in_channels = narrow * Bottleneck.EXPANSION
        super().__init__(nn.Sequential(*layers, *_pool_and_classify(in_channels, classes)))


class Bottleneck(nn.Module):
    """1x1, 3x3 and 1x1 convolutions in parallel with a shortcut; the last convolution widens by `EXPANSION`."""

    EXPANSION = 4

    def __init__(self, in_channels: int, narrow: int, stride: int) -> None:
        """`narrow` is the number of channels in the 3x3 convolution, to which `stride` applies."""
        super().__init__()
        out_channels = narrow * self.EXPANSION
        self.residual = nn.Sequential(
            *_conv_bn_relu(in_channels, narrow, kernel=1),
            *_conv_bn_relu(narrow, narrow, kernel=3, stride=stride),
            *_conv_bn(narrow, out_channels, kernel=1),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or in_channels != out_channels:
            self.shortcut = nn.Sequential(*_conv_bn(in_channels, out_channels, kernel=1, stride=stride))

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
    ) -> None:
        """`width` is the number of channels in the first stage; images must be at least 4 pixels wide."""
        layers = _conv_bn_relu(channels, width, kernel=3)
        in_channels = width
        for stage in range(3):
            out_channels = width * 2**stage
            for block in range(blocks_per_stage):
                stride = 2 if stage > 0 and block == 0 else 1
                layers.append(PlainShortcutBlock(in_channels, out_channels, stride))
                in_channels = out_channels
        super().__init__(nn.Sequential(*layers, *_pool_and_classify(in_channels, classes)))


class PlainShortcutBlock(nn.Module):
    """Two 3x3 convolutions and a parameter-free shortcut (option A): subsampled pixels, and zeros in new channels."""

    def __init__(self, in_channels: int, out_channels: int, stride: int) -> None:
        """`stride` applies to the first convolution."""
        super().__init__()
        self.residual = nn.Sequential(
            *_conv_bn_relu(in_channels, out_channels, kernel=3, stride=stride),
            *_conv_bn(out_channels, out_channels, kernel=3),
        )
        self.stride, self.new_channels = stride, out_channels - in_channels

    def forward(self, images: Tensor) -> Tensor:
        """Return (samples, out_channels, height / stride, width / stride)."""
        shortcut = images[:, :, :: self.stride, :: self.stride]
        if self.new_channels:
            before = self.new_channels // 2
            shortcut = functional.pad(shortcut, (0, 0, 0, 0, before, self.new_channels - before))
        return torch.relu(self.residual(images) + shortcut)


def _conv_relu(in_channels: int, out_channels: int, kernel: int, padding: int, stride: int = 1) -> list[nn.Module]:
    return [nn.Conv2d(in_channels, out_channels, kernel, stride, padding), nn.ReLU(inplace=True)]


def _conv_bn(in_channels: int, out_channels: int, kernel: int, stride: int = 1) -> list[nn.Module]:
    convolution = nn.Conv2d(in_channels, out_channels, kernel, stride, padding=kernel // 2, bias=False)
    return [convolution, nn.BatchNorm2d(out_channels)]


def _conv_bn_relu(in_channels: int, out_channels: int, kernel: int, stride: int = 1) -> list[nn.Module]:
    return [*_conv_bn(in_channels, out_channels, kernel, stride), nn.ReLU(inplace=True)]


def _pool_and_classify(channels: int, classes: int) -> list[nn.Module]:
    return [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes)]
