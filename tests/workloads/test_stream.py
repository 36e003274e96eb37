"""The endless training stream: disjoint between ranks, seeded, never a short batch."""

from __future__ import annotations

from itertools import islice

import pytest
import torch

from accelsweep.errors import InputError
from accelsweep.workloads.training_stream import EndlessBatches, TensorRows, ValidationBatches, make_loader

ROWS = torch.arange(103)


def first_batches(count, monkeypatch, *, seed=1, rank=0, size=1, batch_size=10, workers=0):
    monkeypatch.setenv("RANK", str(rank))
    monkeypatch.setenv("WORLD_SIZE", str(size))
    loader = make_loader(EndlessBatches(TensorRows(ROWS), batch_size, seed), num_workers=workers)
    return [rows for (rows,) in islice(iter(loader), count)]


def test_every_batch_is_full_however_long_it_runs(monkeypatch):
    assert {len(batch) for batch in first_batches(50, monkeypatch)} == {10}


def test_ranks_never_see_the_same_row_in_one_pass(monkeypatch):
    passes = [torch.cat(first_batches(5, monkeypatch, rank=rank, size=2)).tolist() for rank in (0, 1)]
    assert not set(passes[0]) & set(passes[1])
    assert len(set(passes[0])) == 50


def test_each_pass_has_another_order_and_the_same_seed_the_same_orders(monkeypatch):
    once, again = first_batches(20, monkeypatch), first_batches(20, monkeypatch)
    assert all(torch.equal(left, right) for left, right in zip(once, again, strict=True))
    assert not torch.equal(torch.cat(once[:10]), torch.cat(once[10:]))
    assert not torch.equal(once[0], first_batches(1, monkeypatch, seed=2)[0])


def test_the_number_of_loader_processes_does_not_change_what_is_trained(monkeypatch):
    alone, helped = first_batches(12, monkeypatch), first_batches(12, monkeypatch, workers=2)
    assert all(torch.equal(left, right) for left, right in zip(alone, helped, strict=True))


def test_a_batch_larger_than_a_ranks_share_is_refused_with_what_to_change(monkeypatch):
    with pytest.raises(InputError, match="lower batch_size"):
        first_batches(1, monkeypatch, size=2, batch_size=52)


@pytest.mark.parametrize("workers", [0, 2])
def test_validation_gives_every_row_once_and_in_order(workers):
    batches = [rows for (rows,) in make_loader(ValidationBatches(TensorRows(ROWS), 50), workers)]
    assert torch.equal(torch.cat(batches), ROWS)
    assert [len(batch) for batch in batches] == [50, 50, 3]
