"""The number of samples that a batch may hold, by its structure."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from accelsweep.measure.batch_size import declared_batch_size, length_at, lengths, possible_sizes


def images(count):
    return [torch.zeros(3, 32, 32) for _ in range(count)]


def boxes(*counts):
    return tuple({"boxes": torch.zeros(count, 4), "labels": torch.zeros(count)} for count in counts)


@pytest.mark.parametrize(
    ("batch", "counts"),
    [
        (torch.zeros(5, 2), {5}),
        ((torch.zeros(7, 2), torch.zeros(7, dtype=torch.long)), {7}),
        ({"ids": torch.zeros(3, 9), "labels": torch.zeros(3)}, {3}),
        ({"meta": None, "inner": [{"x": torch.zeros(4)}]}, {4}),
        (["a", "b", "c"], {3}),
        ((["a", "b"], torch.zeros(2)), {2}),
        ((torch.zeros(8, 2), torch.zeros(8, 1)), {8, 2}),
        (images(8), {8, 3}),
        ((tuple(images(8)), boxes(1, 2, 5, 1, 2, 5, 1, 3)), {8}),
        ((torch.zeros(8, 2), torch.zeros(37, 6)), {2}),
        ({"x": torch.zeros(8), "y": torch.zeros(7)}, set()),
        (torch.tensor(1.0), set()),
        ({}, set()),
        (object(), set()),
    ],
)
def test_a_batch_holds_what_its_columns_share_or_is_a_list_of_similar_samples(batch, counts):
    assert set(possible_sizes(batch)) == counts


def test_one_part_is_a_sample_only_where_a_loader_makes_batches_of_one():
    assert set(possible_sizes(images(1))) == {3}
    assert set(possible_sizes(images(1), lone=True)) == {3, 1}


def test_all_lengths_are_listed_outermost_first():
    batch = (tuple(images(2)), {"targets": torch.zeros(7, 6)})
    assert list(lengths(batch)) == [((), 2), ((0,), 2), ((0, 0), 3), ((0, 1), 3), ((1, "targets"), 7)]
    assert length_at(batch, (1, "targets")) == 7
    with pytest.raises(LookupError):
        length_at(batch, (1, "boxes"))


def test_a_loader_its_batch_sampler_or_its_data_set_states_the_size_of_a_batch():
    one_by_one = SimpleNamespace(batch_size=None, batch_sampler=None, dataset=object())
    assert declared_batch_size(torch.utils.data.DataLoader(images(9), batch_size=4)) == 4
    assert declared_batch_size(SimpleNamespace(batch_size=None, batch_sampler=SimpleNamespace(batch_size=5))) == 5
    assert declared_batch_size(SimpleNamespace(batch_size=None, dataset=SimpleNamespace(batch_size=6))) == 6
    assert declared_batch_size(one_by_one) is None
