"""What a user reads while runs end: each once, counted from what was measured before."""

import gc
import io
import itertools
import os
import re
import socket
from dataclasses import replace

import psutil
import pytest
from rich.console import Console

from accelsweep.config.site import Site
from accelsweep.driver.progress_display import FirstFailures, SweepProgress
from accelsweep.executor.result_reuse import CurrentConditions
from accelsweep.heartbeat import StepCount
from accelsweep.planning.cost_estimate import ASSUMED_BETWEEN_SECONDS
from accelsweep.records.plan import Hold, Manifest
from accelsweep.records.run_files import RunFolder
from accelsweep.records.run_record import Record
from accelsweep.results import Doubt, Outcome, RankResult
from accelsweep.run_config import Run
from accelsweep.significant_digits import approximate_duration


@pytest.fixture
def finished(example_sweep):
    """The example, as if it had been measured on this machine."""
    present = CurrentConditions(example_sweep)
    for record in records(example_sweep):
        measured_here = record.model_copy(update={"fingerprint": present.fingerprint(record.config)})
        measured_here.write(example_sweep.record(record.run))
    return example_sweep


@pytest.fixture
def interrupted(finished):
    """A sweep whose blocks all have to be gone on with."""
    for block in Manifest.read(finished.manifest).blocks:
        finished.done(block.name).unlink()
    return finished


def records(folder):
    return [Record.read(path) for path in sorted(folder.root.glob("runs/*/record.json"))]


def measured(folder):
    return [record for record in records(folder) if record.outcome is Outcome.measured]


def counts(capsys):
    return [line.split()[0] for line in capsys.readouterr().out.splitlines()]


def test_runs_of_an_interrupted_block_that_are_measured_count_from_the_start(interrupted, capsys):
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


def test_no_record_is_kept_so_that_thousands_of_runs_take_no_memory(interrupted):
    def kept():
        return sum(isinstance(one, Record) for one in gc.get_objects())

    before = kept()
    progress = SweepProgress.begin(interrupted)
    os.utime(interrupted.record(measured(interrupted)[0].run))
    progress.update()
    assert progress.fresh == 1
    assert kept() == before


def test_a_run_that_ended_badly_after_its_window_is_shown_with_its_word_and_without_a_rate(interrupted, capsys):
    record = measured(interrupted)[0]
    progress = SweepProgress.begin(interrupted)
    bad = {"outcome": Outcome.diverged, "reason": "the loss was not finite at step 9", "attempt": 2}
    record.model_copy(update=bad).write(interrupted.record(record.run))
    progress.update()
    shown = capsys.readouterr().out
    assert "diverged: the loss was not finite at step 9" in shown
    assert "samples/s" not in shown


def test_the_first_failure_is_a_run_without_an_answer_and_every_new_record_is_a_movement(interrupted):
    ended = measured(interrupted)[:3]
    progress = SweepProgress.begin(interrupted)
    seen = [progress.signs()]
    for record, outcome in zip(ended, (Outcome.out_of_memory, Outcome.timed_out, Outcome.crashed), strict=True):
        bad = {"outcome": outcome, "reason": f"this is how it {outcome}", "attempt": 2, "doubts": ()}
        record.model_copy(update=bad).write(interrupted.record(record.run))
        progress.update()
        seen.append(progress.signs())
    assert progress.failure is not None
    assert progress.failure.endswith("timed_out: this is how it timed_out")
    assert all(before != after for before, after in itertools.pairwise(seen))
    assert progress.signs() == seen[-1]


def test_a_run_measured_anew_is_shown_and_not_counted_twice(interrupted, capsys):
    record = measured(interrupted)[0]
    progress = SweepProgress.begin(interrupted)
    before = progress.done
    record.model_copy(update={"attempt": 2}).write(interrupted.record(record.run))
    progress.update()
    assert counts(capsys) == [f"[{before}/{progress.total}]"]


def test_a_block_that_the_audit_opens_again_is_shown_from_its_first_run(finished, capsys):
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


def test_a_record_that_is_set_aside_as_damaged_is_no_end_of_a_run(interrupted, capsys):
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


def test_a_run_that_is_tried_again_and_measured_is_shown_as_measured_last_and_counted_once(interrupted, capsys):
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


def test_a_line_has_the_runs_doubts_and_the_kind_of_device_that_is_not_swept(interrupted, capsys):
    record = measured(interrupted)[0]
    progress = SweepProgress.begin(interrupted)
    doubt = Doubt(code="busy_cpu", message="others", remedy="stop them")
    record.model_copy(update={"doubts": (doubt,), "attempt": 2}).write(interrupted.record(record.run))
    progress.update()
    shown = capsys.readouterr().out
    assert re.search(r"\] cpu x[12] \| .* samples/s  doubts: busy_cpu$", shown, re.MULTILINE)


@pytest.fixture
def begun(finished):
    """A sweep of which the last two blocks have no records."""
    for block in Manifest.read(finished.manifest).blocks[1:]:
        finished.done(block.name).unlink()
        for run in block.runs:
            finished.record(run).unlink(missing_ok=True)
    return finished


def test_what_is_left_is_foretold_by_the_runs_of_finished_blocks(begun):
    took = {record.setting: record.wall_seconds for record in records(begun)}
    progress = SweepProgress.begin(begun)
    left = [run for runs in progress.pending.values() for run in runs]
    known = sum(took[Run.parse(run).setting] for run in left)
    assert len(left) == 16
    assert progress.seconds_left() == pytest.approx(known + 2 * ASSUMED_BETWEEN_SECONDS)
    assert progress._eta() == f"about {approximate_duration(known + 2 * ASSUMED_BETWEEN_SECONDS)} left"


def test_the_run_that_goes_on_shortens_what_is_left(begun):
    progress = SweepProgress.begin(begun)
    before = progress.remaining.seconds([run for runs in progress.pending.values() for run in runs], 2)
    hold(begun, *begun_block(progress), since="2020-01-01T00:00:00+00:00")
    after = progress.remaining.seconds([run for runs in progress.pending.values() for run in runs], 1)
    running = next(progress._holds())
    assert progress._spent(running) == progress.remaining.seconds([running.run], 0) > 0, "no more than it should take"
    assert progress.seconds_left() == pytest.approx(after - progress._spent(running))
    assert after < before


def begun_block(progress):
    block, runs = next(iter(progress.pending.items()))
    return block, runs[0]


def hold(folder, block, run=None, since=None):
    me = {"host": socket.gethostname(), "pid": os.getpid(), "process_started": psutil.Process().create_time()}
    Hold(block=block, since="then", run=run, run_since=since, **me).write(folder.hold(block))


def test_what_is_being_prepared_is_named(begun):
    progress = SweepProgress.begin(begun)
    block, run = begun_block(progress)
    assert progress._line().startswith("preparing block 2 of 3: Snakemake starts its executor | about ")
    hold(begun, block)
    assert progress._line().startswith("preparing block 2 of 3: libraries and data | about ")
    hold(begun, block, run)
    assert progress._line().startswith(f"starting {progress.labels[run]} | about ")
    place = RunFolder(begun.run(run), run)
    StepCount(place.attempt(place.begin("here", "then")) / "progress")(3)
    assert progress._line().startswith(f"{progress.labels[run]} | about ")


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_no_width_cuts_the_line_below_the_bar(begun, width, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")  # rich gives a dumb terminal 80 columns, whatever is asked for
    screen = io.StringIO()
    progress = SweepProgress.begin(begun)
    progress.console = Console(file=screen, force_terminal=True, width=width, color_system=None)
    hold(begun, *begun_block(progress))
    with progress.shown():
        progress.update()
        progress.bar.refresh()
    words = progress._line().replace("|", "").split()
    assert [word for word in words if word not in screen.getvalue()] == []
    assert "…" not in screen.getvalue()


def raised(folder, record, line, error="ValueError", kind="user_exception"):
    """Return the record as of a run that ended with an exception of the user's at this line of mine.py."""
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


def test_two_settings_that_end_with_one_exception_at_one_place_are_alike(example_sweep):
    first, second, *_ = of_other_settings(example_sweep)
    seen = FirstFailures(example_sweep)
    seen.look(raised(example_sweep, first, 7))
    assert seen.alike is None
    seen.look(raised(example_sweep, second, 7))
    assert seen.alike == f"ValueError: {second.run} (mine.py, line 7, in step)"


@pytest.mark.parametrize(
    "other", [{"line": 8}, {"line": 7, "error": "KeyError"}, {"line": 7, "kind": "collective"}], ids=str
)
def test_another_place_another_exception_or_a_peers_failure_is_not_alike(example_sweep, other):
    first, second, third, *_ = of_other_settings(example_sweep)
    seen = FirstFailures(example_sweep)
    seen.look(raised(example_sweep, first, 7))
    seen.look(raised(example_sweep, second, **other))
    assert seen.alike is None
    seen.look(raised(example_sweep, third, 7))
    assert (seen.alike is None) == (other.get("kind") is None), "only the first two exceptions count"


def test_nothing_is_alike_where_something_was_measured_or_one_setting_failed_twice(example_sweep):
    first, second, *_ = of_other_settings(example_sweep)
    works = FirstFailures(example_sweep)
    works.look(measured(example_sweep)[0])
    twice = FirstFailures(example_sweep)
    for seen, ended in ((works, (first, second)), (twice, (first, first))):
        for record in ended:
            seen.look(raised(example_sweep, record, 7))
        assert seen.alike is None


def test_the_two_runs_of_a_single_setting_are_alike(example_sweep):
    first = measured(example_sweep)[0]
    again = first.model_copy(update={"run": f"{first.setting}-r9", "repeat": 9})
    seen = FirstFailures(example_sweep)
    for record in (first, again):
        seen.look(raised(example_sweep, record, 7), by_run=True)
    assert seen.alike is not None


def test_a_setting_that_was_measured_before_keeps_its_sweep_going(interrupted):
    assert SweepProgress.begin(interrupted).first.measured
    for block in Manifest.read(interrupted.manifest).blocks:
        for run in block.runs:
            interrupted.record(run).unlink(missing_ok=True)
    assert not SweepProgress.begin(interrupted).first.measured


def test_when_no_block_is_left_the_report_is_written_on_a_cluster_too(finished):
    """It said that it waited for `block 4 of 3`, or for `block 1 of 0` where nothing was planned."""
    progress = SweepProgress.begin(finished)
    for name in ("local", "slurm", "grid_engine"):
        progress.site = Site(name="box", scheduler=name)
        assert progress._now() == "writing the report"
