"""What earlier runs took tells what further ones will take: the same setting first, then others of its kind."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from example_sweep import config_of

from accelsweep.config.schema import checked_config
from accelsweep.planning.cost_estimate import (
    ASSUMED_BETWEEN_SECONDS,
    ASSUMED_OVERHEAD_SECONDS,
    ObservedTimes,
    RunTime,
    TimeLimits,
)
from accelsweep.planning.resources import START_UP_SECONDS, with_observed_limit
from accelsweep.records.plan import Manifest
from accelsweep.records.run_record import Record
from accelsweep.results import Outcome
from accelsweep.run_config import Run
from accelsweep.schedulers.protocol import Resources

EXAMPLES = Path(__file__).resolve().parents[2] / "reports" / "examples"

CONFIG = checked_config(config_of({"devices": 1, "batch_size": 64, "precision": "32-true"}))
"""Of a setting that the example lacks; its window is to last a second."""


@pytest.fixture
def records(example_sweep):
    """The example's records: three blocks, ten minutes from start to start, 20 s from run to run in each."""
    return [Record.read(path) for path in example_sweep.records_on_top()]


def test_a_run_of_the_same_setting_takes_the_mean_of_those_before(records):
    setting = records[0].setting
    mine = [record.wall_seconds for record in records if record.setting == setting]
    assert ObservedTimes.from_runs(map(RunTime.of, records), "x").seconds(setting, CONFIG) == pytest.approx(
        sum(mine) / len(mine)
    )


def test_another_setting_takes_its_window_and_what_others_of_its_kind_take_beside_theirs(records):
    window = CONFIG.measure.min_seconds
    timed = [record.model_copy(update={"wall_seconds": window + 4.0}) for record in records]
    took = ObservedTimes.from_runs(map(RunTime.of, timed), "x")
    longer = checked_config({**CONFIG.raw, "measure": {**CONFIG.raw["measure"], "min_seconds": 30.0}})
    assert took.seconds("other", CONFIG) == pytest.approx(window + 4.0)
    assert took.seconds("other", longer) == pytest.approx(34.0)
    elsewhere = checked_config({**CONFIG.raw, "accelerator": "cuda"})
    assert took.seconds("other", elsewhere) == pytest.approx(window + ASSUMED_OVERHEAD_SECONDS)


def test_what_is_assumed_before_a_first_run_is_what_the_finished_examples_took():
    """All of their runs and breaks together, within a fifth: what was measured on a machine that did nothing else."""
    for name in ("quickstart", "ladder"):
        files = sorted((EXAMPLES / name / "sweeps" / name / "runs").glob("*/record.json"))
        records = [Record.read(file) for file in files]
        took = ObservedTimes.from_runs(map(RunTime.of, records), "x")
        seconds = sum(record.wall_seconds for record in records) + sum(took.breaks)
        assumed = sum(ObservedTimes().seconds("never measured", record.config) for record in records)
        assumed += len(took.breaks) * ASSUMED_BETWEEN_SECONDS
        assert assumed == pytest.approx(seconds, rel=0.2), name


def test_what_was_never_begun_shows_nothing(records):
    unsupported = {"outcome": Outcome.unsupported, "reason": "no such device", "wall_seconds": 0.0}
    assert (
        ObservedTimes.from_runs(map(RunTime.of, [record.model_copy(update=unsupported) for record in records]), "x")
        is None
    )
    assert ObservedTimes.from_runs([], "x") is None


def test_blocks_of_one_command_show_the_time_between_them_and_those_of_different_commands_do_not(records):
    assert ObservedTimes.from_runs(map(RunTime.of, records), "x").between_blocks == ASSUMED_BETWEEN_SECONDS, (
        "minutes lie between the example's blocks"
    )
    first, second = (dict(zip(("started_at", "finished_at"), times, strict=True)) for times in SPANS)
    two = [
        records[0].model_copy(update={"block": "a", **first}),
        records[1].model_copy(update={"block": "b", **second}),
    ]
    assert ObservedTimes.from_runs(map(RunTime.of, two), "x").between_blocks == pytest.approx(7.0)


SPANS = (
    ("2026-01-05T09:00:00.000+00:00", "2026-01-05T09:00:30.000+00:00"),
    ("2026-01-05T09:00:37.000+00:00", "2026-01-05T09:00:50.000+00:00"),
)


@pytest.fixture
def again(example_sweep):
    """The example's blocks with an hour of limit each, and the manifest that lists them."""
    manifest = Manifest.read(example_sweep.manifest)
    blocks = [block.model_copy(update={"resources": Resources(minutes=60, mem_mb=4000)}) for block in manifest.blocks]
    return TimeLimits(example_sweep, manifest), blocks


def test_a_job_whose_settings_were_measured_before_asks_for_three_times_as_long(again, example_sweep):
    limits, blocks = again
    longest = {}
    for record in map(Record.read, example_sweep.records_on_top()):
        longest[record.setting] = max(longest.get(record.setting, 0.0), record.wall_seconds)
    seconds = sum(longest[Run.parse(run).setting] for run in blocks[0].runs)
    asked = limits.of(blocks[0])
    assert asked.minutes == max(5, math.ceil((START_UP_SECONDS + 3 * seconds) / 60)) < 60
    assert asked.mem_mb == 4000


def test_a_job_with_a_setting_that_was_never_measured_keeps_its_planned_limit(again, example_sweep):
    limits, blocks = again
    setting = Run.parse(blocks[0].runs[0]).setting
    for path in example_sweep.records_on_top():
        if Run.parse(path.parent.name).setting == setting:
            path.unlink()
    assert limits.of(blocks[0]).minutes == 60


@pytest.mark.parametrize(
    ("planned", "took", "asked"), [(60, [1.0], 5), (60, [100.0, 200.0], 17), (3, [1.0], 3), (60, [9000.0], 60)]
)
def test_a_shortened_limit_is_never_below_five_minutes_nor_above_the_plan(planned, took, asked):
    assert with_observed_limit(Resources(minutes=planned), took).minutes == asked
