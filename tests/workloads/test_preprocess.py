"""Crop, flip and normalisation of images of bytes: exact, and as random as asked for."""

from __future__ import annotations

import pytest
import torch

from accelsweep.workloads.training_stream import Preprocess

IMAGES = torch.arange(2 * 1 * 2 * 3, dtype=torch.uint8).reshape(2, 1, 2, 3)
"""Two images of 2x3 pixels: 0 1 2 / 3 4 5 and 6 7 8 / 9 10 11."""
NO = torch.tensor([[1, 1, 0], [1, 1, 0]])


def processed(draws, images=IMAGES, **settings):
    made, targets = Preprocess(full_scale=1, **{"crop_padding": 1, "flip": True, **settings})(
        (images, torch.tensor([3, 4]), torch.tensor(draws))
    )
    assert targets.tolist() == [3, 4]
    return made[:, 0].tolist()


def test_a_crop_from_the_middle_of_the_padded_image_is_the_image():
    assert processed([[1, 1, 0], [1, 1, 0]]) == [[[0, 1, 2], [3, 4, 5]], [[6, 7, 8], [9, 10, 11]]]


def test_each_image_has_a_crop_of_its_own_with_black_where_it_leaves_the_image():
    assert processed([[0, 1, 0], [1, 2, 0]]) == [[[0, 0, 0], [0, 1, 2]], [[7, 8, 0], [10, 11, 0]]]


def test_mirrored_images_have_left_and_right_exchanged():
    assert processed([[1, 1, 1], [1, 1, 0]]) == [[[2, 1, 0], [5, 4, 3]], [[6, 7, 8], [9, 10, 11]]]
    assert processed([[1, 0, 1], [1, 1, 0]])[0] == [[1, 0, 0], [4, 3, 0]]


def test_normalisation_is_by_channel_where_there_are_several_means():
    images = torch.full((1, 2, 1, 1), 51, dtype=torch.uint8)
    made = Preprocess(mean=(0.1, 0.2), std=(0.1, 0.4)).normalize(images)
    torch.testing.assert_close(made.flatten(), torch.tensor([1.0, 0.0]))
    assert Preprocess(mean=0.2, std=2.0).normalize(images).abs().max() < 1e-6


def test_without_draws_an_image_is_normalised_only():
    made, _ = Preprocess(full_scale=1, crop_padding=1, flip=True)((IMAGES, None))
    assert torch.equal(made, IMAGES.float())


def test_what_holds_no_bytes_stays_as_it_is():
    batch = (torch.ones(2, 3), torch.zeros(2))
    assert Preprocess()(batch) is batch


def test_the_result_has_the_numbers_asked_for():
    assert Preprocess()((IMAGES, None), torch.bfloat16)[0].dtype is torch.bfloat16


def test_every_place_of_the_crop_and_both_sides_are_drawn_equally_often():
    draws = Preprocess(crop_padding=2, flip=True).draw(20_000, torch.Generator().manual_seed(1))
    for column, values in ((0, 5), (1, 5), (2, 2)):
        shares = torch.bincount(draws[:, column], minlength=values) / len(draws)
        assert len(shares) == values
        assert shares.tolist() == pytest.approx([1 / values] * values, abs=0.02)


def test_without_a_flip_nothing_is_mirrored():
    assert Preprocess(crop_padding=2).draw(100, torch.Generator())[:, 2].max() == 0
