"""Doubts from the CPU readings of all ranks."""

from __future__ import annotations

import pytest

from accelsweep.measure import run_doubts
from accelsweep.worker.rank_measurement import cpu_doubts


@pytest.fixture(autouse=True)
def four_cores(monkeypatch):
    monkeypatch.setattr(run_doubts, "allowed_cores", lambda: set(range(4)))


def reading(**changes):
    """Ten seconds in which this rank used one core, and all on its cores three."""
    calm = {"seconds": 10.0, "ours": 10.0, "busy": 30.0, "major_faults": 0.0, "swapped_bytes": 0.0, "clock_gap": 0.0}
    return {**calm, **changes}


def codes(cpu, local_size):
    return [doubt.code for doubt in cpu_doubts(cpu, local_size) if doubt is not None]


def test_cpu_time_of_other_nodes_does_not_count_as_load_of_this_one():
    """Two ranks a node: on each, our two cores and a foreign one of four are busy."""
    assert codes([reading()] * 4, local_size=2) == []
    assert codes([reading(busy=40.0)] * 4, local_size=2) == ["busy_cpu"]


@pytest.mark.parametrize(
    ("counter", "code"),
    [
        ({"swapped_bytes": 2.0**30}, "swap"),
        ({"major_faults": 1000.0}, "page_faults"),
        ({"clock_gap": 40.0}, "clock_gap"),
    ],
)
def test_swap_page_faults_and_clock_gaps_of_any_node_are_doubted(counter, code):
    assert codes([reading(), reading(), reading(), reading(**counter)], local_size=2) == [code]
