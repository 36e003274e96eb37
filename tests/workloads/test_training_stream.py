"""The endless training stream: disjoint between ranks, seeded, never a short batch; and the image preprocessing."""

from __future__ import annotations

from itertools import islice

import pytest
import torch

from accelsweep.errors import InputError
from accelsweep.workloads.training_stream import (
    EndlessBatches,
    LazyRows,
    Preprocess,
    TensorRows,
    TensorSubset,
    ValidationBatches,
    make_loader,
    repeat_to_one_batch,
)

ROWS = torch.arange(103)


def first_batches(count, monkeypatch, *, seed=1, rank=0, size=1, batch_size=10, workers=0):
    monkeypatch.setenv("RANK", str(rank))
    monkeypatch.setenv("WORLD_SIZE", str(size))
    loader = make_loader(EndlessBatches(TensorRows(ROWS), batch_size, seed), num_workers=workers)
    return [rows for (rows,) in islice(iter(loader), count)]


def equal(left, right):
    return all(torch.equal(*pair) for pair in zip(left, right, strict=True))


def test_every_batch_is_full_however_long_it_runs(monkeypatch):
    assert {len(batch) for batch in first_batches(50, monkeypatch)} == {10}


def test_ranks_never_see_the_same_row_in_one_pass(monkeypatch):
    passes = [torch.cat(first_batches(5, monkeypatch, rank=rank, size=2)).tolist() for rank in (0, 1)]
    assert not set(passes[0]) & set(passes[1])
    assert len(set(passes[0])) == 50


def test_each_pass_has_another_order_and_the_same_seed_the_same_orders(monkeypatch):
    batches = first_batches(20, monkeypatch)
    assert equal(batches, first_batches(20, monkeypatch))
    assert not torch.equal(torch.cat(batches[:10]), torch.cat(batches[10:]))
    assert not torch.equal(batches[0], first_batches(1, monkeypatch, seed=2)[0])


def test_the_number_of_loader_workers_does_not_change_the_batches(monkeypatch):
    assert equal(first_batches(12, monkeypatch), first_batches(12, monkeypatch, workers=2))


def test_a_batch_larger_than_a_ranks_share_is_refused_with_what_to_change(monkeypatch):
    with pytest.raises(InputError, match="51 training samples of each of the 2 ranks: lower batch_size"):
        first_batches(1, monkeypatch, size=2, batch_size=52)


@pytest.mark.parametrize("workers", [0, 2])
def test_validation_yields_every_row_once_and_in_order(workers):
    batches = [rows for (rows,) in make_loader(ValidationBatches(TensorRows(ROWS), 50), workers)]
    assert torch.equal(torch.cat(batches), ROWS)
    assert [len(batch) for batch in batches] == [50, 50, 3]


def test_a_subset_of_a_set_in_memory_is_no_copy():
    full = TensorRows(torch.arange(10.0))
    subset = TensorSubset(full, torch.tensor([7, 3]))
    assert len(subset) == 2
    assert subset.take(torch.tensor([1]))[0].tolist() == [3.0]
    assert subset.to(torch.device("cpu")).tensors[0].data_ptr() == full.tensors[0].data_ptr()


@pytest.mark.parametrize(
    "rows",
    [
        TensorRows(ROWS[:3]),
        TensorSubset(TensorRows(ROWS), torch.arange(3)),
        LazyRows(ROWS[:3], lambda row: (row,)),
    ],
    ids=["in memory", "subset", "lazy"],
)
def test_too_few_rows_are_repeated_to_one_batch_for_each_rank(monkeypatch, rows):
    monkeypatch.setenv("WORLD_SIZE", "2")
    repeated = repeat_to_one_batch(rows, batch_size=4)
    assert repeated.take(torch.arange(len(repeated)))[0].tolist() == [0, 1, 2, 0, 1, 2, 0, 1]
    assert repeat_to_one_batch(rows, batch_size=1) is rows


IMAGES = torch.arange(2 * 1 * 2 * 3, dtype=torch.uint8).reshape(2, 1, 2, 3)
"""Two images of 2x3 pixels: 0 1 2 / 3 4 5 and 6 7 8 / 9 10 11."""


def preprocessed(draws):
    preprocess = Preprocess(full_scale=1, crop_padding=1, flip=True)
    images, targets = preprocess((IMAGES, torch.tensor([3, 4]), torch.tensor(draws)))
    assert targets.tolist() == [3, 4]
    return images[:, 0].tolist()


def test_a_crop_from_the_middle_of_the_padded_image_is_the_image():
    assert preprocessed([[1, 1, 0], [1, 1, 0]]) == [[[0, 1, 2], [3, 4, 5]], [[6, 7, 8], [9, 10, 11]]]


def test_each_image_has_its_own_crop_with_black_outside_the_image():
    assert preprocessed([[0, 1, 0], [1, 2, 0]]) == [[[0, 0, 0], [0, 1, 2]], [[7, 8, 0], [10, 11, 0]]]


def test_a_flip_exchanges_left_and_right():
    assert preprocessed([[1, 1, 1], [1, 1, 0]]) == [[[2, 1, 0], [5, 4, 3]], [[6, 7, 8], [9, 10, 11]]]
    assert preprocessed([[1, 0, 1], [1, 1, 0]])[0] == [[1, 0, 0], [4, 3, 0]]


def test_normalisation_is_by_channel_where_there_are_several_means():
    images = torch.full((1, 2, 1, 1), 51, dtype=torch.uint8)
    normalized = Preprocess(mean=(0.1, 0.2), std=(0.1, 0.4)).normalize(images)
    torch.testing.assert_close(normalized.flatten(), torch.tensor([1.0, 0.0]))
    assert Preprocess(mean=0.2, std=2.0).normalize(images).abs().max() < 1e-6


def test_without_draws_an_image_is_only_normalised():
    images, _ = Preprocess(full_scale=1, crop_padding=1, flip=True)((IMAGES, None))
    assert torch.equal(images, IMAGES.float())


def test_inputs_other_than_bytes_are_left_unchanged():
    batch = (torch.ones(2, 3), torch.zeros(2))
    assert Preprocess()(batch) is batch


def test_the_images_have_the_dtype_asked_for():
    assert Preprocess()((IMAGES, None), torch.bfloat16)[0].dtype is torch.bfloat16


def test_every_position_of_the_crop_and_both_sides_are_drawn_equally_often():
    draws = Preprocess(crop_padding=2, flip=True).draw(20_000, torch.Generator().manual_seed(1))
    for column, values in ((0, 5), (1, 5), (2, 2)):
        shares = torch.bincount(draws[:, column], minlength=values) / len(draws)
        assert shares.tolist() == pytest.approx([1 / values] * values, abs=0.02)


def test_without_flip_nothing_is_mirrored():
    assert Preprocess(crop_padding=2).draw(100, torch.Generator())[:, 2].max() == 0
