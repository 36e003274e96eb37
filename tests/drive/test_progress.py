"""What a user reads while runs end: each once, counted from what was measured before."""

import itertools

import pytest

from accelsweep.core.outcome import Outcome
from accelsweep.core.plans import Manifest
from accelsweep.core.record import Record
from accelsweep.drive.progress import SweepProgress
from accelsweep.supervise.skips import Present


@pytest.fixture
def finished(example_sweep):
    """The example, as if it had been measured on this machine."""
    present = Present(example_sweep.home)
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
        bad = {"outcome": outcome, "reason": f"this is how it {outcome}", "attempt": 2}
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
        edited = record.fingerprint.model_copy(update={"sources": {"mine": "before the edit"}})
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
