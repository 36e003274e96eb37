"""Each finished run is printed once, with the time left; a slow first run is announced."""

from __future__ import annotations

import gc
import io
import itertools
import os
import re
import socket
from dataclasses import replace

import psutil
import pytest
from example_sweep import config_of
from fake_clock import FakeClock
from rich.console import Console

from accelsweep.config.schema import checked_config
from accelsweep.config.site import Site
from accelsweep.driver.progress_display import (
    MIN_PACE_SECONDS,
    MIN_PACE_STEPS,
    FirstFailures,
    Forecast,
    Pace,
    SweepProgress,
    measure_options,
    slow_run_notice,
)
from accelsweep.executor.result_reuse import CurrentConditions
from accelsweep.heartbeat import StepCount
from accelsweep.planning.cost_estimate import ASSUMED_BETWEEN_SECONDS
from accelsweep.records.plan import LockOwner, Manifest
from accelsweep.records.run_files import RunFolder, readable_records
from accelsweep.records.run_record import Record
from accelsweep.results import Doubt, Outcome, RankResult
from accelsweep.run_config import Run
from accelsweep.significant_digits import approximate_duration


@pytest.fixture
def finished(example_sweep):
    """The example sweep as if measured on this machine."""
    present = CurrentConditions(example_sweep)
    for record in records(example_sweep):
        measured_here = record.model_copy(update={"fingerprint": present.fingerprint(record.config)})
        measured_here.write(example_sweep.record(record.run))
    return example_sweep


@pytest.fixture
def interrupted(finished):
    """A sweep without any finished block."""
    for block in Manifest.read(finished.manifest).blocks:
        finished.done(block.name).unlink()
    return finished


def records(folder):
    return [Record.read(path) for path in sorted(folder.root.glob("runs/*/record.json"))]


def measured(folder):
    return [record for record in records(folder) if record.outcome is Outcome.measured]


def counts(capsys):
    return [line.split()[0] for line in capsys.readouterr().out.splitlines()]


def test_measured_runs_of_an_interrupted_block_count_from_the_start(interrupted, capsys):
    first, second, *_ = measured(interrupted)
    for record in (first, second):
        interrupted.record(record.run).unlink()
    before = sum(record.outcome.settled for record in records(interrupted))
    total = len(Manifest.read(interrupted.manifest).wanted_runs())
    progress = SweepProgress.begin(interrupted)
    for record in (first, second):
        record.write(interrupted.record(record.run))
        progress.update()
        progress.update()
    assert counts(capsys) == [f"[{before + 1}/{total}]", f"[{before + 2}/{total}]"]


def test_records_are_not_kept_in_memory(interrupted):
    def kept():
        return sum(isinstance(one, Record) for one in gc.get_objects())

    before = kept()
    progress = SweepProgress.begin(interrupted)
    os.utime(interrupted.record(measured(interrupted)[0].run))
    progress.update()
    assert progress.new_records == 1
    assert kept() == before


def test_a_run_that_failed_after_its_window_is_printed_with_its_outcome_and_without_rate(interrupted, capsys):
    record = measured(interrupted)[0]
    progress = SweepProgress.begin(interrupted)
    bad = {"outcome": Outcome.diverged, "reason": "the loss was not finite at step 9", "attempt": 2}
    record.model_copy(update=bad).write(interrupted.record(record.run))
    progress.update()
    shown = capsys.readouterr().out
    assert "diverged: the loss was not finite at step 9" in shown
    assert "samples/s" not in shown


def test_the_first_failure_is_an_unsettled_run_and_every_new_record_is_activity(interrupted):
    ended = measured(interrupted)[:3]
    progress = SweepProgress.begin(interrupted)
    seen = [progress.activity()]
    for record, outcome in zip(ended, (Outcome.out_of_memory, Outcome.timed_out, Outcome.crashed), strict=True):
        bad = {"outcome": outcome, "reason": f"this is how it {outcome}", "attempt": 2, "doubts": ()}
        record.model_copy(update=bad).write(interrupted.record(record.run))
        progress.update()
        seen.append(progress.activity())
    assert progress.failure is not None
    assert progress.failure.endswith("timed_out: this is how it timed_out")
    assert all(before != after for before, after in itertools.pairwise(seen))
    assert progress.activity() == seen[-1]


def test_a_run_measured_again_is_printed_and_not_counted_twice(interrupted, capsys):
    record = measured(interrupted)[0]
    progress = SweepProgress.begin(interrupted)
    before = progress.done
    record.model_copy(update={"attempt": 2}).write(interrupted.record(record.run))
    progress.update()
    assert counts(capsys) == [f"[{before}/{progress.total}]"]


def test_a_block_reopened_by_the_audit_is_printed_from_its_first_run(finished, capsys):
    block = Manifest.read(finished.manifest).blocks[0]
    here = [record for record in records(finished) if record.run in block.runs]
    for record in here:
        edited = replace(record.fingerprint, sources={"mine": "before the edit"})
        record.model_copy(update={"fingerprint": edited}).write(finished.record(record.run))
    progress = SweepProgress.begin(finished)
    assert progress.done == progress.total
    finished.done(block.name).unlink()
    progress.update()
    assert progress.done == progress.total - len(block.runs)
    here[0].write(finished.record(here[0].run))
    progress.update()
    assert counts(capsys) == [f"[{progress.total - len(block.runs) + 1}/{progress.total}]"]


def test_setting_a_damaged_record_aside_is_not_the_end_of_a_run(interrupted, capsys):
    record = measured(interrupted)[0]
    path = interrupted.record(record.run)
    path.write_bytes(path.read_bytes()[:-20])
    progress = SweepProgress.begin(interrupted)
    before = progress.done
    path.rename(path.with_name("record.json.damaged"))
    progress.update()
    record.write(path)
    progress.update()
    assert counts(capsys) == [f"[{before + 1}/{progress.total}]"]


def test_a_run_that_is_retried_and_measured_is_printed_twice_and_counted_once(interrupted, capsys):
    record = measured(interrupted)[0]
    interrupted.record(record.run).unlink()
    progress = SweepProgress.begin(interrupted)
    before = progress.done
    crashed = record.model_copy(update={"outcome": Outcome.crashed, "reason": "a rank died", "metrics": {}})
    for attempt in (crashed, record.model_copy(update={"attempt": 2})):
        attempt.write(interrupted.record(record.run))
        progress.update()
        progress.update()
    first, second = capsys.readouterr().out.splitlines()
    assert first.endswith("crashed: a rank died")
    assert "(attempt 2)" in second
    assert "samples/s" in second
    assert {line.split()[0] for line in (first, second)} == {f"[{before + 1}/{progress.total}]"}
    assert progress.done == before + 1


def test_a_line_has_the_settings_name_and_the_runs_doubts(interrupted, capsys):
    record = measured(interrupted)[0]
    progress = SweepProgress.begin(interrupted)
    doubt = Doubt(code="busy_cpu", message="others", remedy="stop them")
    record.model_copy(update={"doubts": (doubt,), "attempt": 2}).write(interrupted.record(record.run))
    progress.update()
    shown = capsys.readouterr().out
    assert re.search(r"\] batch \d+, .*, repeat \d.* samples/s  doubts: busy_cpu$", shown, re.MULTILINE)


@pytest.fixture
def begun(finished):
    """A sweep whose last two blocks have no records."""
    for block in Manifest.read(finished.manifest).blocks[1:]:
        finished.done(block.name).unlink()
        for run in block.runs:
            finished.record(run).unlink(missing_ok=True)
    return finished


def test_the_time_left_is_estimated_from_runs_of_finished_blocks(begun):
    took = {record.setting: record.wall_seconds for record in records(begun)}
    progress = SweepProgress.begin(begun)
    left = [run for runs in progress.pending.values() for run in runs]
    known = sum(took[Run.parse(run).setting] for run in left)
    assert len(left) == 16
    assert progress.seconds_left() == pytest.approx(known + 2 * ASSUMED_BETWEEN_SECONDS)
    assert progress._time_left() == f"about {approximate_duration(known + 2 * ASSUMED_BETWEEN_SECONDS)} left"


def test_the_current_run_reduces_the_time_left(begun):
    progress = SweepProgress.begin(begun)
    before = progress.remaining.seconds([run for runs in progress.pending.values() for run in runs], 2)
    lock(begun, *begun_block(progress), since="2020-01-01T00:00:00+00:00")
    after = progress.remaining.seconds([run for runs in progress.pending.values() for run in runs], 1)
    running = next(progress._locks())
    assert progress._elapsed(running) == progress.remaining.seconds([running.run], 0) > 0, (
        "at most the expected duration"
    )
    assert progress.seconds_left() == pytest.approx(after - progress._elapsed(running))
    assert after < before


def begun_block(progress):
    block, runs = next(iter(progress.pending.items()))
    return block, runs[0]


def lock(folder, block, run=None, since=None):
    me = {"host": socket.gethostname(), "pid": os.getpid(), "process_started": psutil.Process().create_time()}
    LockOwner(block=block, since="then", run=run, run_since=since, **me).write(folder.lock(block))


def test_the_line_says_what_is_being_prepared(begun):
    progress = SweepProgress.begin(begun)
    block, run = begun_block(progress)
    assert progress._line().startswith("preparing block 2 of 3: Snakemake is starting its executor | about ")
    lock(begun, block)
    assert progress._line().startswith("preparing block 2 of 3: libraries and data | about ")
    lock(begun, block, run)
    assert progress._line().startswith(f"starting {progress.labels[run]} | about ")
    place = RunFolder(begun.run(run), run)
    StepCount(place.attempt(place.begin("here", "then")) / "progress")(3)
    assert progress._line().startswith(f"{progress.labels[run]} | about ")


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_no_width_truncates_the_line_below_the_bar(begun, width, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")  # rich gives a dumb terminal 80 columns, whatever is asked for
    screen = io.StringIO()
    progress = SweepProgress.begin(begun)
    progress.console = Console(file=screen, force_terminal=True, width=width, color_system=None)
    lock(begun, *begun_block(progress))
    with progress.display():
        progress.update()
        progress.bar.refresh()
    words = progress._line().replace("|", "").split()
    assert [word for word in words if word not in screen.getvalue()] == []
    assert "…" not in screen.getvalue()


def raised(folder, record, line, error="ValueError", kind="user_exception"):
    """Return the record as that of a run that failed with a user exception at this line of mine.py."""
    frame = f'  File "{folder.home}/mine.py", line {line}, in step\n'
    text = f"Traceback (most recent call last):\n{frame}    pass\n{error}: {record.run}\n"
    place = RunFolder(folder.run(record.run), record.run).attempt(record.attempt)
    place.mkdir(parents=True, exist_ok=True)
    reason = f"{error}: {record.run}"
    RankResult(rank=0, outcome=Outcome.crashed, reason=reason, error_kind=kind, traceback=text).write(
        place / "rank-0.json"
    )
    return record.model_copy(update={"outcome": Outcome.crashed, "reason": reason})


def of_other_settings(folder):
    """Return one record of each setting."""
    return list({record.setting: record for record in records(folder)}.values())


def test_the_same_exception_at_the_same_place_in_two_settings_is_a_common_error(example_sweep):
    first, second, *_ = of_other_settings(example_sweep)
    seen = FirstFailures(example_sweep)
    seen.add(raised(example_sweep, first, 7))
    assert seen.common_error is None
    seen.add(raised(example_sweep, second, 7))
    assert seen.common_error == f"ValueError: {second.run} (mine.py, line 7, in step)"


@pytest.mark.parametrize(
    "other", [{"line": 8}, {"line": 7, "error": "KeyError"}, {"line": 7, "kind": "collective"}], ids=str
)
def test_another_place_or_exception_or_a_peers_failure_is_no_common_error(example_sweep, other):
    first, second, third, *_ = of_other_settings(example_sweep)
    seen = FirstFailures(example_sweep)
    seen.add(raised(example_sweep, first, 7))
    seen.add(raised(example_sweep, second, **other))
    assert seen.common_error is None
    seen.add(raised(example_sweep, third, 7))
    assert (seen.common_error is None) == (other.get("kind") is None), "only the first two exceptions count"


def test_there_is_no_common_error_if_a_run_was_measured_or_one_setting_failed_twice(example_sweep):
    first, second, *_ = of_other_settings(example_sweep)
    works = FirstFailures(example_sweep)
    works.add(measured(example_sweep)[0])
    twice = FirstFailures(example_sweep)
    for seen, ended in ((works, (first, second)), (twice, (first, first))):
        for record in ended:
            seen.add(raised(example_sweep, record, 7))
        assert seen.common_error is None


def test_two_runs_of_a_single_setting_can_have_a_common_error(example_sweep):
    first = measured(example_sweep)[0]
    again = first.model_copy(update={"run": f"{first.setting}-r9", "repeat": 9})
    seen = FirstFailures(example_sweep)
    for record in (first, again):
        seen.add(raised(example_sweep, record, 7), by_run=True)
    assert seen.common_error is not None


def test_a_setting_measured_before_keeps_the_sweep_going(interrupted):
    assert SweepProgress.begin(interrupted).first_failures.measured
    for block in Manifest.read(interrupted.manifest).blocks:
        for run in block.runs:
            interrupted.record(run).unlink(missing_ok=True)
    assert not SweepProgress.begin(interrupted).first_failures.measured


def test_without_pending_blocks_the_report_is_being_written_on_a_cluster_too(finished):
    """Regression test: it waited for `block 4 of 3`, or for `block 1 of 0` of an empty plan."""
    progress = SweepProgress.begin(finished)
    for name in ("local", "slurm", "grid_engine"):
        progress.site = Site(name="box", scheduler=name)
        assert progress._current() == "writing the report"


SLOW = 3.0
CONFIG = checked_config(config_of({"devices": 1, "batch_size": 32, "precision": "32-true"}))


@pytest.fixture
def shipped(tmp_path):
    return measure_options(tmp_path, ["batch_size=16,32", "measure=quick"])


def total(name, shipped, seconds=SLOW):
    return Forecast.of(CONFIG, shipped[name], seconds).seconds


def test_slow_steps_take_a_quarter_of_an_hour_unless_measured_as_heavy(shipped):
    """quick: at least 10 + 10 steps, 3 + 3 of the probe pass, 8192 / 32 for quality. heavy: 2 + 5 steps."""
    assert total("quick", shipped) == pytest.approx(3 * (10 + 10 + 6 + 256))
    assert total("heavy", shipped) == pytest.approx(3 * 7)


def test_a_window_of_short_steps_lasts_min_seconds(shipped):
    assert Forecast.of(CONFIG, shipped["heavy"], 0.01).steps == {"warm-up": 2, "window": 220}


def test_ranks_share_the_quality_phase_and_make_two_probe_passes(shipped):
    two = checked_config(config_of({"devices": 2, "batch_size": 32, "precision": "32-true"}))
    assert Forecast.of(two, shipped["quick"], SLOW).steps["probe pass"] == 12
    assert Forecast.of(two, shipped["quick"], SLOW).steps["quality"] == 128


def test_inference_has_neither_probe_pass_nor_quality_phase(shipped):
    asked = checked_config({**CONFIG.raw, "task": "inference"})
    assert Forecast.of(asked, shipped["quick"], SLOW).steps == {"warm-up": 10, "window": 10}


def test_the_notice_has_the_steps_the_total_and_the_faster_option(shipped):
    said = slow_run_notice(CONFIG, Forecast.of(CONFIG, shipped["quick"], SLOW), 12, shipped)
    assert said == (
        "a step takes 3 s, so a run takes 0:14:06 or more (steps: warm-up 10, window 10, probe pass 6, quality 256). "
        "At that pace the remaining 12 runs take 2:49:12. With measure=heavy it would take 0:00:21: press "
        "Ctrl-C and repeat the command with that option"
    )


def test_no_option_is_suggested_if_none_takes_half_as_long(shipped):
    assert "measure=" not in slow_run_notice(CONFIG, Forecast.of(CONFIG, shipped["heavy"], 60.0), 1, shipped)


def test_options_are_composed_with_the_sweeps_overrides(tmp_path):
    """An override applies to every option; a swept key of `measure` leaves no single answer."""
    given = measure_options(tmp_path, ["batch_size=16,32", "measure.min_steps=40"])
    assert {name: one.min_steps for name, one in given.items()} == dict.fromkeys(given, 40)
    assert {"quick", "heavy", "thorough"} <= set(given)
    assert measure_options(tmp_path, ["measure.min_steps=40,50"]) == {}
    assert measure_options(tmp_path, ["no_such_key=1"]) == {}


def test_the_pace_excludes_the_slow_first_step():
    clock = FakeClock()
    pace = Pace(clock)
    assert pace.observe("a", None) is None
    clock.advance(100.0)
    assert [pace.observe("a", 0), pace.observe("a", 1)] == [None, None]
    clock.advance(SLOW * (MIN_PACE_STEPS - 1))
    assert pace.observe("a", MIN_PACE_STEPS) is None
    clock.advance(SLOW)
    assert pace.observe("a", 1 + MIN_PACE_STEPS) == pytest.approx(SLOW)
    assert pace.observe("b", 9) is None, "each run has its own pace"


def test_the_pace_is_not_dominated_by_the_slow_first_steps_of_a_quick_run():
    """Four steps in the first second, then eighty per second: a step takes 0.0148 s, not 0.33 s."""
    clock = FakeClock()
    pace = Pace(clock)
    assert pace.observe("a", 1) is None
    clock.advance(1.0)
    assert pace.observe("a", 4) is None
    clock.advance(MIN_PACE_SECONDS - 1.0)
    assert pace.observe("a", 4 + 80 * 4) == pytest.approx(MIN_PACE_SECONDS / 323)


@pytest.fixture
def running(example_sweep):
    """A sweep without records whose first run is being measured, and its step counter."""
    manifest = Manifest.read(example_sweep.manifest)
    for block in manifest.blocks:
        example_sweep.done(block.name).unlink(missing_ok=True)
        for run in block.runs:
            example_sweep.record(run).unlink(missing_ok=True)
    block, me = manifest.blocks[0], psutil.Process()
    run = block.runs[0]
    attempt = RunFolder(example_sweep.run(run), run)
    count = StepCount(attempt.attempt(attempt.begin("here", "then")) / "progress")
    hold = LockOwner(
        block=block.name,
        host=socket.gethostname(),
        pid=os.getpid(),
        process_started=me.create_time(),
        since="then",
        run=run,
    )
    hold.write(example_sweep.lock(block.name))
    return example_sweep, count


@pytest.mark.parametrize(("seconds", "lines"), [(SLOW, 1), (0.001, 0)])
def test_slow_steps_are_announced_once_during_the_first_run(running, capsys, seconds, lines):
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
    """A record, read before `running` deletes them all."""
    return next(iter(readable_records(example_sweep, Manifest.read(example_sweep.manifest).blocks[-1].runs)))


def test_a_resumed_sweep_uses_the_durations_of_its_earlier_runs(earlier, running, capsys):
    """The current run may have a slower setting than the rest, or be disturbed."""
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


def test_a_setting_whose_blocks_are_lost_gets_no_forecast(running, capsys):
    """Regression test: a damaged block file ended the progress display."""
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
