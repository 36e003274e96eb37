"""After its first steps a slow run says what it will take, and which `measure=` takes much less."""

from __future__ import annotations

import os
import socket

import psutil
import pytest
from example_sweep import config_of
from fake_clock import FakeClock

from accelsweep.config.schema import checked_config
from accelsweep.driver.progress_display import (
    FEWEST_SECONDS,
    FEWEST_STEPS,
    Forecast,
    Pace,
    SweepProgress,
    announcement,
    measure_options,
)
from accelsweep.heartbeat import StepCount
from accelsweep.records.plan import Hold, Manifest
from accelsweep.records.run_files import RunFolder, readable_records

SLOW = 3.0
CONFIG = checked_config(config_of({"devices": 1, "batch_size": 32, "precision": "32-true"}))


@pytest.fixture
def shipped(tmp_path):
    return measure_options(tmp_path, ["batch_size=16,32", "measure=quick"])


def total(name, shipped, seconds=SLOW):
    return Forecast.of(CONFIG, shipped[name], seconds).seconds


def test_a_step_of_three_seconds_takes_a_quarter_of_an_hour_unless_it_is_heavy(shipped):
    """quick: 20 + 50 steps, 3 + 3 of the probe pass, 8192 / 32 for quality. heavy: 2 + 5 steps."""
    assert total("quick", shipped) == pytest.approx(3 * (20 + 50 + 6 + 256))
    assert total("heavy", shipped) == pytest.approx(3 * 7)


def test_a_window_of_short_steps_is_as_long_as_the_seconds_say(shipped):
    assert Forecast.of(CONFIG, shipped["heavy"], 0.01).steps == {"warm-up": 2, "window": 220}


def test_ranks_share_the_quality_phase_and_look_twice_in_the_probe_pass(shipped):
    two = checked_config(config_of({"devices": 2, "batch_size": 32, "precision": "32-true"}))
    assert Forecast.of(two, shipped["quick"], SLOW).steps["probe pass"] == 12
    assert Forecast.of(two, shipped["quick"], SLOW).steps["quality"] == 128


def test_inference_has_neither_probe_pass_nor_quality_phase(shipped):
    asked = checked_config({**CONFIG.raw, "task": "inference"})
    assert Forecast.of(asked, shipped["quick"], SLOW).steps == {"warm-up": 20, "window": 50}


def test_what_is_said_names_the_steps_the_whole_and_the_way_that_fits(shipped):
    said = announcement(CONFIG, Forecast.of(CONFIG, shipped["quick"], SLOW), 12, shipped)
    assert said == (
        "a step takes 3 s, so a run takes 0:16:36 or more (steps: warm-up 20, window 50, probe pass 6, quality 256). "
        "At that pace all 12 that are left take 3:19:12. With measure=heavy it would take 0:00:21: Ctrl-C, then the "
        "same command with that"
    )


def test_no_other_way_is_named_where_none_takes_half_as_long(shipped):
    assert "measure=" not in announcement(CONFIG, Forecast.of(CONFIG, shipped["heavy"], 60.0), 1, shipped)


def test_options_are_composed_with_what_the_sweep_sets_itself(tmp_path):
    """A value that the command line gives stands in every option; a key that is swept has no one value."""
    given = measure_options(tmp_path, ["batch_size=16,32", "measure.min_steps=40"])
    assert {name: one.min_steps for name, one in given.items()} == dict.fromkeys(given, 40)
    assert {"quick", "heavy", "thorough"} <= set(given)
    assert measure_options(tmp_path, ["measure.min_steps=40,50"]) == {}
    assert measure_options(tmp_path, ["no_such_key=1"]) == {}


def test_the_pace_is_that_after_the_first_look_which_holds_the_slow_first_step():
    clock = FakeClock()
    pace = Pace(clock)
    assert pace.look("a", None) is None
    clock.advance(100.0)
    assert [pace.look("a", 0), pace.look("a", 1)] == [None, None]
    clock.advance(SLOW * (FEWEST_STEPS - 1))
    assert pace.look("a", FEWEST_STEPS) is None
    clock.advance(SLOW)
    assert pace.look("a", 1 + FEWEST_STEPS) == pytest.approx(SLOW)
    assert pace.look("b", 9) is None, "another run has a pace of its own"


def test_a_pace_is_not_told_by_the_slow_first_steps_of_a_quick_run():
    """Four steps in the first second, then eighty in each: the run takes 0.0148 s a step, and not 0.33 s."""
    clock = FakeClock()
    pace = Pace(clock)
    assert pace.look("a", 1) is None
    clock.advance(1.0)
    assert pace.look("a", 4) is None
    clock.advance(FEWEST_SECONDS - 1.0)
    assert pace.look("a", 4 + 80 * 4) == pytest.approx(FEWEST_SECONDS / 323)


@pytest.fixture
def running(example_sweep):
    """A sweep of which no run has a record, and the first of which is being measured; how to show its steps."""
    manifest = Manifest.read(example_sweep.manifest)
    for block in manifest.blocks:
        example_sweep.done(block.name).unlink(missing_ok=True)
        for run in block.runs:
            example_sweep.record(run).unlink(missing_ok=True)
    block, me = manifest.blocks[0], psutil.Process()
    run = block.runs[0]
    attempt = RunFolder(example_sweep.run(run), run)
    count = StepCount(attempt.attempt(attempt.begin("here", "then")) / "progress")
    hold = Hold(
        block=block.name,
        host=socket.gethostname(),
        pid=os.getpid(),
        process_started=me.create_time(),
        since="then",
        run=run,
    )
    hold.write(example_sweep.hold(block.name))
    return example_sweep, count


@pytest.mark.parametrize(("seconds", "lines"), [(SLOW, 1), (0.001, 0)])
def test_a_sweep_of_slow_steps_says_so_once_while_its_first_run_goes_on(running, capsys, seconds, lines):
    folder, count = running
    clock = FakeClock()
    progress = SweepProgress.begin(folder)
    progress.pace = Pace(clock)
    for steps in range(8):
        count(steps)
        progress.update()
        clock.advance(seconds)
    said = capsys.readouterr().out.splitlines()
    assert len(said) == lines
    assert all("a step takes 3 s, so a run takes" in line for line in said)
    assert "left" in progress._line()


@pytest.fixture
def earlier(example_sweep):
    """A run's record, read before `running` takes them all away."""
    return next(iter(readable_records(example_sweep, Manifest.read(example_sweep.manifest).blocks[-1].runs)))


def test_a_resumed_sweep_goes_by_the_time_of_its_earlier_runs(earlier, running, capsys):
    """The run that goes on may be of a slower setting than the rest, or disturbed."""
    folder, count = running
    earlier.write(folder.record(earlier.run))
    progress = SweepProgress.begin(folder)
    clock = FakeClock()
    progress.pace = Pace(clock)
    for steps in range(8):
        count(steps)
        progress.update()
        clock.advance(SLOW)
    assert capsys.readouterr().out == ""
    assert progress.forecast is None


def test_nothing_is_foretold_of_a_setting_whose_blocks_are_lost(running, capsys):
    """The bar read the block itself, and ended the head's progress where that was damaged."""
    folder, count = running
    for block in folder.blocks():
        block.unlink()
    clock = FakeClock()
    progress = SweepProgress.begin(folder)
    progress.pace = Pace(clock)
    for steps in range(8):
        count(steps)
        progress.update()
        clock.advance(SLOW)
    assert capsys.readouterr().out == ""
