"""`batch_size: auto`: results of searches, and the plan before and after them."""

from __future__ import annotations

import pytest
from example_sweep import build_example_sweep

from accelsweep.driver.auto_batch_size import search_results
from accelsweep.driver.plan_preview import preview_plan
from accelsweep.driver.request import Request
from accelsweep.planning.checked_grid import BatchSearchNeeded
from accelsweep.planning.plan import batch_search_plan, make_plan, write_plan
from accelsweep.records.plan import Manifest
from accelsweep.records.run_record import Coefficient, LargestBatch, Record, Trial
from accelsweep.results import Outcome
from accelsweep.run_config import Run

LINE = ["model=mlp", "data=digits", "optimizer=sgd", "accelerator=cpu", "devices=1,2", "batch_size=auto", "repeats=2"]
UNKNOWN = Coefficient(value=None, reason="two batches give a line without an interval")


@pytest.fixture
def searched(tmp_path):
    """A sweep whose two searches are planned; a function that leaves the record of one of them."""
    example = build_example_sweep(tmp_path / "other")
    pattern = next(Record.read(path) for path in sorted(example.root.glob("runs/*/record.json")))
    home = tmp_path / "home"
    home.mkdir()
    with pytest.raises(BatchSearchNeeded) as wanted:
        make_plan(home, LINE, name="mine")
    plan = batch_search_plan(home, wanted.value)
    folder = write_plan(home, plan)

    def leave(number, largest=None, rows=None, **changes):
        setting = plan.settings[number]
        largest_batch = None if largest is None else a_largest_batch(largest, rows)
        run = Run.of(setting.name, 0, setting.config.seed)
        facts = {"sweep": folder.name, "setting": setting.name, "run": run.name, "repeat": 0, "axes": setting.axes}
        facts |= {"config": setting.config, "largest_batch": largest_batch, "outcome": Outcome.measured, "reason": None}
        pattern.model_copy(update={**facts, "steps_sha256": None, **changes}).write(folder.record(run.name))
        return setting.name

    return home, leave


def a_largest_batch(largest, rows):
    return LargestBatch(
        largest=largest,
        too_large=largest + 1,
        limit="machine memory",
        limit_bytes=10**9,
        headroom=0.1,
        trials=(Trial(batch_size=largest, fits=True, seconds=1.0),),
        bytes_per_sample=UNKNOWN,
        fixed_bytes=UNKNOWN,
        rows=rows,
    )


def test_a_search_gives_its_largest_batch_limited_by_the_rows_of_a_rank(searched):
    home, leave = searched
    one, two = leave(0, largest=118, rows=1797), leave(1, largest=1000, rows=1797)
    found = search_results(home, "mine")
    assert (found[one].batch_size, found[one].largest, found[one].sweep) == (118, 118, "mine-largest-batch")
    assert (found[two].batch_size, found[two].largest) == (898, 1000)


def test_a_failed_search_gives_its_reason_and_one_that_has_not_run_nothing(searched):
    home, leave = searched
    failed = leave(0, outcome=Outcome.out_of_memory, reason="not even a batch of 1 fits: no memory")
    found = search_results(home, "mine")
    assert list(found) == [failed]
    assert "mine-largest-batch ended as out_of_memory: not even a batch of 1 fits" in found[failed]


def test_plan_shows_the_searches_until_they_have_ended_and_then_the_sweep(searched, capsys):
    home, leave = searched
    leave(0, largest=118)
    preview_plan(home, Request(tuple(LINE), name="mine"), keep_profile=True)
    told = capsys.readouterr()
    assert "searching first for the largest batch of 1 setting, in the sweep mine-largest-batch" in told.err
    assert "mine-largest-batch, revision" in told.out
    leave(1, outcome=Outcome.crashed, reason="exit code 1")
    preview_plan(home, Request(tuple(LINE), name="mine"), keep_profile=True)
    told = capsys.readouterr()
    assert told.err == ""
    assert "batch 118" in told.out
    assert "ended as crashed: exit code 1" in " ".join(told.out.split())
    assert not (home / "sweeps/mine").exists()
    assert Manifest.read(home / "sweeps/mine-largest-batch/manifest.json").revision == 1
