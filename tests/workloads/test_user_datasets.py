"""The user's data sets: endless, in whole batches, seeded, and disjoint between ranks and workers."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch.utils.data import IterableDataset, Subset, TensorDataset

from accelsweep.errors import InputError
from accelsweep.workloads.user_datasets import DataSets

ROWS = 40


class Counting(IterableDataset):
    """The numbers below `count`; records the numbers of its passes."""

    def __init__(self, count=ROWS):
        self.count, self.passes = count, []

    def set_epoch(self, number):
        self.passes.append(number)

    def __iter__(self):
        return iter(range(self.count))


class Sized(Counting):
    def __len__(self):
        return self.count


def map_style():
    return TensorDataset(torch.arange(ROWS))


EITHER = pytest.mark.parametrize("make", [map_style, Counting], ids=["map-style", "iterable"])


def as_lists(loader):
    return [torch.as_tensor(batch[0] if isinstance(batch, list) else batch).tolist() for batch in loader]


def batches(data, count):
    return as_lists(itertools.islice(data.train_dataloader(), count))


def flat(lists):
    return list(itertools.chain.from_iterable(lists))


def set_rank(monkeypatch, rank, size):
    monkeypatch.setenv("RANK", str(rank))
    monkeypatch.setenv("WORLD_SIZE", str(size))


def test_a_pass_holds_every_row_once_and_the_next_one_in_another_order():
    two_passes = batches(DataSets(8, map_style(), seed=3), 10)
    first, second = flat(two_passes[:5]), flat(two_passes[5:])
    assert sorted(first) == sorted(second) == list(range(ROWS))
    assert first != second


def test_the_order_depends_on_the_seed_alone():
    assert batches(DataSets(8, map_style(), seed=3), 5) == batches(DataSets(8, map_style(), seed=3), 5)
    assert batches(DataSets(8, map_style(), seed=3), 5) != batches(DataSets(8, map_style(), seed=4), 5)
    assert batches(DataSets(8, map_style(), shuffle=False), 2) == [list(range(8)), list(range(8, 16))]


@EITHER
def test_ranks_share_no_sample_within_a_pass(monkeypatch, make):
    seen = []
    for rank in range(2):
        set_rank(monkeypatch, rank, 2)
        seen.append(set(flat(batches(DataSets(4, make()), 5))))
    assert not seen[0] & seen[1]
    assert seen[0] | seen[1] == set(range(ROWS))


@EITHER
def test_loader_workers_share_no_sample_within_a_pass(make):
    assert sorted(flat(batches(DataSets(4, make(), num_workers=2), 10))) == list(range(ROWS))


@EITHER
def test_batches_are_never_short(make):
    assert {len(batch) for batch in batches(DataSets(16, make()), 6)} == {16}


def test_an_iterable_set_is_restarted_with_the_number_of_the_pass():
    samples = Counting(8)
    assert batches(DataSets(4, samples), 5) == [[0, 1, 2, 3], [4, 5, 6, 7]] * 2 + [[0, 1, 2, 3]]
    assert samples.passes == [0, 1, 2]


def test_a_set_that_shards_itself_is_not_sharded_again(monkeypatch):
    set_rank(monkeypatch, 1, 2)
    assert batches(DataSets(4, Counting(), shard=False), 1) == [[0, 1, 2, 3]]


@EITHER
def test_less_than_one_batch_is_refused(make):
    with pytest.raises(InputError, match="lower batch_size, or use a larger data set"):
        batches(DataSets(ROWS + 1, make()), 1)


@EITHER
def test_validation_is_the_whole_set_in_order_with_a_short_last_batch(make):
    validation = as_lists(DataSets(16, map_style(), validation=make()).val_dataloader())
    assert [len(batch) for batch in validation] == [16, 16, 8]
    assert flat(validation) == list(range(ROWS))


def test_without_a_validation_set_there_is_no_loader():
    assert DataSets(16, map_style()).val_dataloader() == []


def test_a_pass_has_the_samples_of_its_whole_batches_on_all_ranks_and_workers(monkeypatch):
    """40 rows in batches of 12: three of them, and on two ranks one each."""
    assert DataSets(4, map_style()).epoch_samples == DataSets(4, Sized()).epoch_samples == ROWS
    assert DataSets(4, Counting()).epoch_samples is None
    assert DataSets(12, map_style()).epoch_samples == 36
    assert DataSets(12, Sized()).epoch_samples == 36
    assert DataSets(6, Sized(), num_workers=2).epoch_samples == 36, "three batches from each worker's 20"
    assert DataSets(6, Sized(), num_workers=2, shard=False).epoch_samples is None, "40 may be those of one worker"
    set_rank(monkeypatch, 0, 2)
    assert DataSets(12, map_style()).epoch_samples == 24
    assert len(set(flat(batches(DataSets(12, map_style()), 1)))) == 12


def test_a_set_can_collate_its_batches_and_fetch_several_rows_in_one_call():
    fetched = []

    class Fetching(Subset):
        def __getitems__(self, indices):
            fetched.append(len(indices))
            return super().__getitems__(indices)

    def collate(samples):
        return {"n": torch.cat([row[None] for (row,) in samples])}

    data = DataSets(4, Fetching(map_style(), range(ROWS)), collate=collate)
    _, second = itertools.islice(data.train_dataloader(), 2)
    assert second["n"].shape == (4,)
    assert fetched == [4, 4]


def test_an_object_that_is_no_data_set_is_refused():
    with pytest.raises(
        InputError, match=r"data.train: a int is not a data set; it must define __len__ and __getitem__"
    ):
        DataSets(4, 3)
    with pytest.raises(InputError, match=r"data.validation: a int is not a data set"):
        DataSets(4, map_style(), validation=3)
