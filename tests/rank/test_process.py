"""A rank's CPU threads: the cell's own, else those that the plan knows, else its share of the machine."""

from __future__ import annotations

import pytest

from accelsweep.machine import processor as machine
from accelsweep.rank.process import RankPlace, share_of_cores


@pytest.mark.parametrize(("stated", "planned", "threads"), [(2, 3, 2), (2, None, 2), (None, 3, 3), (None, None, 6)])
def test_the_cell_decides_then_the_plan_and_then_the_machine(spec, monkeypatch, stated, planned, threads) -> None:
    monkeypatch.setattr(machine, "usable_core_numbers", lambda: set(range(12)))
    asked = spec(threads=stated).model_copy(update={"threads": planned})
    assert share_of_cores(asked, RankPlace(rank=0, local_rank=0, size=2, local_size=2)) == threads


def test_a_rank_has_at_least_one_thread(spec, monkeypatch) -> None:
    monkeypatch.setattr(machine, "usable_core_numbers", lambda: {0})
    assert share_of_cores(spec(threads=None), RankPlace(rank=0, local_rank=0, size=2, local_size=2)) == 1
