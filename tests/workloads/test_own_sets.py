"""The user's data sets: endless, whole batches, seeded, and disjoint between ranks and workers."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch.utils.data import IterableDataset, Subset, TensorDataset

from accelsweep.errors import InputError
from accelsweep.workloads.user_datasets import DataSets

ROWS = 40


class Counting(IterableDataset):
    """The numbers below `count`; tells which pass it is in."""

    def __init__(self, count=ROWS):
        self.count, self.passes = count, []

    def set_epoch(self, number):
        self.passes.append(number)

    def __iter__(self):
        return iter(range(self.count))


class Sized(Counting):
    def __len__(self):
        return self.count


def rows():
    return TensorDataset(torch.arange(ROWS))


def batches(data, count):
    return [torch.as_tensor(batch[0] if isinstance(batch, list) else batch).tolist() for batch in taken(data, count)]


def taken(data, count):
    return list(itertools.islice(data.train_dataloader(), count))


def flat(lists):
    return list(itertools.chain.from_iterable(lists))


def as_rank(monkeypatch, rank, size):
    monkeypatch.setenv("RANK", str(rank))
    monkeypatch.setenv("WORLD_SIZE", str(size))


def test_a_pass_holds_every_row_once_and_the_next_one_in_another_order():
    found = batches(DataSets(8, rows(), seed=3), 10)
    first, second = flat(found[:5]), flat(found[5:])
    assert sorted(first) == sorted(second) == list(range(ROWS))
    assert first != second


def test_the_order_is_the_seeds():
    assert batches(DataSets(8, rows(), seed=3), 5) == batches(DataSets(8, rows(), seed=3), 5)
    assert batches(DataSets(8, rows(), seed=3), 5) != batches(DataSets(8, rows(), seed=4), 5)
    assert batches(DataSets(8, rows(), shuffle=False), 2) == [list(range(8)), list(range(8, 16))]


@pytest.mark.parametrize("make", [rows, Counting], ids=["rows", "iterable"])
def test_ranks_share_no_sample_within_a_pass(monkeypatch, make):
    seen = []
    for rank in range(2):
        as_rank(monkeypatch, rank, 2)
        seen.append(set(flat(batches(DataSets(4, make()), 5))))
    assert not seen[0] & seen[1]
    assert seen[0] | seen[1] == set(range(ROWS))


@pytest.mark.parametrize("make", [rows, Counting], ids=["rows", "iterable"])
def test_loader_workers_share_no_sample_within_a_pass(make):
    found = flat(batches(DataSets(4, make(), num_workers=2), 10))
    assert sorted(found) == list(range(ROWS))


def test_batches_are_never_short():
    assert {len(batch) for batch in batches(DataSets(16, rows()), 6)} == {16}
    assert {len(batch) for batch in batches(DataSets(16, Counting()), 6)} == {16}


def test_an_iterable_set_begins_again_and_is_told_its_pass():
    samples = Counting(8)
    assert batches(DataSets(4, samples), 5) == [[0, 1, 2, 3], [4, 5, 6, 7]] * 2 + [[0, 1, 2, 3]]
    assert samples.passes == [0, 1, 2]


def test_a_set_that_deals_itself_out_is_left_alone(monkeypatch):
    as_rank(monkeypatch, 1, 2)
    assert batches(DataSets(4, Counting(), shard=False), 1) == [[0, 1, 2, 3]]


@pytest.mark.parametrize("make", [rows, Counting], ids=["rows", "iterable"])
def test_less_than_one_batch_is_refused(make):
    with pytest.raises(InputError, match="lower batch_size, or use a larger data set"):
        taken(DataSets(ROWS + 1, make()), 1)


def test_validation_is_the_whole_set_in_order_with_its_short_end():
    for make in (rows, Counting):
        data = DataSets(16, rows(), validation=make())
        found = [
            torch.as_tensor(batch[0] if isinstance(batch, list) else batch).tolist() for batch in data.val_dataloader()
        ]
        assert [len(batch) for batch in found] == [16, 16, 8]
        assert flat(found) == list(range(ROWS))
    assert list(DataSets(16, rows()).val_dataloader()) == []


def test_a_pass_is_counted_where_the_set_can_tell():
    assert DataSets(4, rows()).epoch_samples == ROWS
    assert DataSets(4, Sized()).epoch_samples == ROWS
    assert DataSets(4, Counting()).epoch_samples is None


def test_a_pass_has_the_samples_of_its_whole_batches_on_all_ranks_and_workers(monkeypatch):
    """40 rows in batches of 12: three of them, and on two ranks one each."""
    assert DataSets(12, rows()).epoch_samples == 36
    assert DataSets(12, Sized()).epoch_samples == 36
    assert DataSets(6, Sized(), num_workers=2).epoch_samples == 36, "three batches from each worker's 20"
    assert DataSets(6, Sized(), num_workers=2, shard=False).epoch_samples is None, "40 may be those of one worker"
    as_rank(monkeypatch, 0, 2)
    assert DataSets(12, rows()).epoch_samples == 24
    assert len(set(flat(batches(DataSets(12, rows()), 1)))) == 12


def test_own_collate_and_sets_that_fetch_several_rows_at_once():
    asked = []

    class Fetching(Subset):
        def __getitems__(self, indices):
            asked.append(len(indices))
            return super().__getitems__(indices)

    data = DataSets(
        4, Fetching(rows(), range(ROWS)), collate=lambda samples: {"n": torch.cat([s[0][None] for s in samples])}
    )
    assert taken(data, 2)[1]["n"].shape == (4,)
    assert asked == [4, 4]


def test_what_is_no_data_set_is_refused():
    with pytest.raises(InputError, match=r"data.train: a int is no data set; it needs __len__ and __getitem__"):
        DataSets(4, 3)
