"""How long one more block would take, by what the blocks so far have taken."""

from __future__ import annotations

from types import ModuleType

from accelsweep.analysis.recommendation import block_seconds
from accelsweep.analysis.run_results import CellRuns

CELLS = [{"batch_size": 32}, {"batch_size": 64}, {"batch_size": 128}]


def _seconds(simulated: ModuleType, *ends: str) -> float | None:
    """Simulated blocks begin at 9:00, 9:01, ...; each has three runs of 10 s and ends at its time."""
    manifest = simulated.make_manifest(CELLS, len(ends))
    groups = []
    for planned, axes in zip(manifest.cells, CELLS, strict=True):
        runs = [
            simulated.make_run(axes, block, 1000.0, wall_seconds=10, finished_at=f"2026-01-05T{end}+00:00")
            for block, end in enumerate(ends)
        ]
        groups.append(CellRuns(planned, runs[0].hardware, tuple(runs)))
    return block_seconds(groups, manifest)


def test_the_runs_count_each_and_the_baseline_as_often_as_a_new_block_holds_it(simulated: ModuleType) -> None:
    assert _seconds(simulated, "09:00:31") == 4 * 10


def test_the_start_of_a_block_is_the_shortest_pause_between_two(simulated: ModuleType) -> None:
    """The sweep rested before the third block; that is no start."""
    assert _seconds(simulated, "09:00:52", "09:01:10", "09:02:31") == 4 * 10 + 8


def test_blocks_that_overlap_have_no_pause(simulated: ModuleType) -> None:
    """As where a cluster measures several at a time."""
    assert _seconds(simulated, "09:01:20", "09:02:20", "09:03:20") == 4 * 10
