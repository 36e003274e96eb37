"""Pictures in files as tensors of bytes, of one size for a whole set."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from accelsweep.base.errors import InputError

if TYPE_CHECKING:
    from PIL.Image import Image

MODES = {1: "L", 3: "RGB"}
"""Pillow's name for pictures of so many channels."""


def picture_bytes(picture: Image, channels: int, image_size: int | None) -> Tensor:
    """Return `picture` in uint8: (channels, image_size, image_size), or its own height and width where that is None.

    The shorter side is scaled to `image_size` and the middle is cut out. Raises InputError for other than 1 or 3
    channels.
    """
    if channels not in MODES:
        raise InputError(f"data.channels={channels}: pictures have 1 (grey) or 3 (colours)")
    picture = picture.convert(MODES[channels])
    if image_size is not None and picture.size != (image_size, image_size):
        scale = image_size / min(picture.size)
        width, height = (max(image_size, round(side * scale)) for side in picture.size)
        left, top = (width - image_size) // 2, (height - image_size) // 2
        picture = picture.resize((width, height)).crop((left, top, left + image_size, top + image_size))
    pixels = torch.from_numpy(np.array(picture, dtype=np.uint8))
    return pixels.reshape(*pixels.shape[:2], channels).permute(2, 0, 1).contiguous()
