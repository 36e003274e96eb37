"""Pictures as bytes of one size."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image

from accelsweep.errors import InputError
from accelsweep.workloads.public_datasets import image_to_tensor

PIXELS = np.random.default_rng(1).integers(0, 256, (4, 6, 3), dtype=np.uint8)


def test_a_picture_of_the_right_size_keeps_every_byte():
    made = image_to_tensor(Image.fromarray(PIXELS), channels=3, image_size=None)
    assert made.dtype is torch.uint8
    assert torch.equal(made, torch.from_numpy(PIXELS).permute(2, 0, 1))


def test_the_middle_is_cut_out_after_scaling_the_shorter_side():
    columns = np.repeat(np.repeat(np.array([[0, 0, 100, 200, 0, 0]], dtype=np.uint8), 2, axis=0), 1, axis=1)
    made = image_to_tensor(Image.fromarray(columns), channels=1, image_size=2)
    assert made.tolist() == [[[100, 200], [100, 200]]]
    assert image_to_tensor(Image.fromarray(PIXELS), channels=3, image_size=8).shape == (3, 8, 8)


def test_grey_pictures_become_coloured_ones_and_the_reverse():
    grey = Image.new("L", (2, 2), 7)
    assert image_to_tensor(grey, channels=3, image_size=None).unique().tolist() == [7]
    assert image_to_tensor(Image.new("RGBA", (2, 3), (9, 9, 9, 255)), channels=1, image_size=None).shape == (1, 3, 2)


def test_other_numbers_of_channels_are_refused():
    with pytest.raises(InputError, match="1 \\(grey\\) or 3"):
        image_to_tensor(Image.new("L", (2, 2)), channels=4, image_size=None)
