"""Preprocessing of images of bytes: random crop and flip, then normalisation; the same code on the CPU and on a device.

The random numbers are drawn with the order of the rows, on the host, and travel with the batch. So the place of the
work and the number of loader processes change its duration, and never the training.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional


@dataclass(frozen=True)
class Preprocess:
    """The preprocessing of images (samples, channels, height, width) in uint8.

    `full_scale` is the byte that means 1. The result is `(image / full_scale - mean) / std`; `mean` and `std` are for
    all channels, or one for each. An image gets a border of `crop_padding` black pixels. Then a part of its former size
    is cut out at random. `flip` mirrors every second image, at random.
    """

    full_scale: float = 255.0
    mean: float | tuple[float, ...] = 0.0
    std: float | tuple[float, ...] = 1.0
    crop_padding: int = 0
    flip: bool = False

    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        """Return for `count` samples the top and left of the crop and whether to mirror: int64 (count, 3)."""
        corners = torch.randint(2 * self.crop_padding + 1, (count, 2), generator=generator)
        mirrored = torch.randint(2 if self.flip else 1, (count, 1), generator=generator)
        return torch.cat((corners, mirrored), dim=1)

    def __call__(self, batch: Any, dtype: torch.dtype = torch.float32) -> Any:
        """Return (images, targets) for (images, targets) or (images, targets, draws); as it is if it holds no bytes.

        Images become `dtype`. Without draws they are normalised only, as a validation set is.
        """
        images, targets, *draws = batch
        if images.dtype is not torch.uint8:
            return batch
        if draws and (self.crop_padding or self.flip):
            images = self._cropped(images, draws[0])
        return self.normalised(images, dtype), targets

    def normalised(self, images: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
        """Return `images` as numbers of `dtype`; computed in float32."""
        scaled = images.to(torch.float32) / self.full_scale
        return ((scaled - _per_channel(self.mean, scaled)) / _per_channel(self.std, scaled)).to(dtype)

    def _cropped(self, images: Tensor, draws: Tensor) -> Tensor:
        count, channels, height, width = images.shape
        top, left, mirrored = draws.unbind(1)

        def numbers(size: int) -> Tensor:
            return torch.arange(size, device=images.device)

        rows = top[:, None] + numbers(height)
        columns = left[:, None] + torch.where(mirrored[:, None] == 1, numbers(width).flip(0), numbers(width))
        padded = functional.pad(images, (self.crop_padding,) * 4)
        sample, channel = numbers(count)[:, None, None, None], numbers(channels)[:, None, None]
        return padded[sample, channel, rows[:, None, :, None], columns[:, None, None, :]]


def _per_channel(value: float | tuple[float, ...], images: Tensor) -> float | Tensor:
    if isinstance(value, int | float):
        return value
    return torch.tensor(value, dtype=images.dtype, device=images.device)[:, None, None]
