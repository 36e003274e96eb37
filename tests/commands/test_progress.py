"""What a user reads while runs end: each once, counted from what was measured before."""

import shutil

import pytest

from accelsweep.commands.progress import Progress
from accelsweep.core.outcome import Outcome
from accelsweep.core.plans import Manifest
from accelsweep.core.record import Record


@pytest.fixture
def interrupted(example_sweep):
    """A sweep whose blocks all have to be gone on with."""
    for block in Manifest.read(example_sweep.manifest).blocks:
        example_sweep.done(block.name).unlink()
    return example_sweep


def measured_runs(folder):
    records = [Record.read(path) for path in sorted(folder.root.glob("runs/*/record.json"))]
    return [record.run for record in records if record.outcome is Outcome.measured]


def test_runs_of_an_interrupted_block_that_are_measured_count_from_the_start(interrupted, tmp_path, capsys):
    first, second, *_ = measured_runs(interrupted)
    for run in (first, second):
        shutil.move(interrupted.run(run), tmp_path / run)
    records = [Record.read(path) for path in interrupted.root.glob("runs/*/record.json")]
    before = sum(record.outcome.settled for record in records)
    total = len(Manifest.read(interrupted.manifest).wanted_runs())
    progress = Progress.begin(interrupted)
    for run in (first, second):
        shutil.move(tmp_path / run, interrupted.run(run))
        progress.update()
        progress.update()
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == [f"[{before + 1}/{total}]", f"[{before + 2}/{total}]"]


def test_a_run_measured_anew_is_shown_and_not_counted_twice(interrupted, capsys):
    run = measured_runs(interrupted)[0]
    progress = Progress.begin(interrupted)
    before = progress.done
    newer = Record.read(interrupted.record(run)).model_copy(update={"attempt": 2})
    newer.write(interrupted.record(run))
    progress.update()
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith(f"[{before}/{progress.total}] ")
    assert progress.done == before
