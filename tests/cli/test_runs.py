"""`runs` lists every row with its reason, `retry` re-opens runs that ended badly, and neither loses a record."""

import os
import re
import shutil
import socket
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from tiny_executor import TinyBlock

from accelsweep.cli.runs import print_runs, retry_runs
from accelsweep.errors import AccelsweepError, InputError
from accelsweep.records.file_lock import STALE_AFTER_SECONDS
from accelsweep.records.plan import LockOwner
from accelsweep.records.run_files import RunFolder
from accelsweep.records.run_record import Record
from accelsweep.results import Doubt, Outcome

pytestmark = pytest.mark.heavy


def planned(place: Path) -> TinyBlock:
    return TinyBlock(place / "home", place / "leases").plan("measured", "memory_on_rank_1", devices=2)


@pytest.fixture
def sweep(tmp_path: Path, once: Callable[[str, Callable[[Path], None]], Path]) -> TinyBlock:
    """A sweep that a real executor has run, as a copy."""
    ran = once("one measured and one out of memory", lambda place: planned(place).run())
    shutil.copytree(ran, tmp_path, dirs_exist_ok=True)
    return planned(tmp_path)


def test_every_run_is_listed_with_outcome_reason_setting_and_folder(sweep, capsys):
    print_runs(sweep.home, "tiny", None)
    shown = capsys.readouterr().out
    title, head, _, *rows, last = (line.rstrip() for line in shown.splitlines())
    assert title == "tiny: 2 runs on CPU, in sweeps/tiny/runs", "what is the same for all runs is told once"
    first, second = sweep.runs()
    assert head.split() == ["setting", "outcome", "samples/s", "run"], "no run has doubts"
    assert re.fullmatch(rf"2 devices, act=measured +measured +[\d.,]+  {first}", rows[0])
    assert re.fullmatch(rf"2 devices, act=memory_on_rank_1 +out_of_memory \[1\] +{second}", rows[1])
    assert len({row.index(run) for row, run in zip([head, *rows], ["run", first, second], strict=True)}) == 1, "aligned"
    assert last == "[1] rank 1: CUDA out of memory"


def test_runs_can_be_filtered_by_outcome(sweep, capsys):
    print_runs(sweep.home, "tiny", "out_of_memory")
    print_runs(sweep.home, "tiny", "crashed")
    shown = capsys.readouterr().out
    assert "act=measured" not in shown
    assert "no run is crashed" in shown


def test_a_mistyped_outcome_is_refused_with_the_right_one(sweep):
    with pytest.raises(InputError, match="did you mean 'crashed'"):
        print_runs(sweep.home, "tiny", "crashd")


def test_a_retried_run_is_measured_again_and_its_record_is_kept_as_an_attempt(sweep, capsys):
    first, second = (sweep.folder.record(run).read_bytes() for run in sweep.runs())
    retry_runs(sweep.home, "tiny", "out_of_memory")
    assert "1 run re-opened" in capsys.readouterr().out
    assert not sweep.done_file.exists()
    code, output = sweep.run()
    assert code == 0, output
    assert sweep.folder.record(sweep.runs()[0]).read_bytes() == first
    assert sweep.record(1).attempt == 2
    assert (sweep.attempt(1, 1) / "record.json").read_bytes() == second


def test_a_reopened_record_does_not_reappear_if_the_next_attempt_is_lost(sweep):
    retry_runs(sweep.home, "tiny", "out_of_memory")
    run = sweep.runs()[1]
    place = RunFolder(sweep.folder.run(run), run)
    assert place.recover() == []
    assert place.record() is None


def test_retrying_disturbed_runs_leaves_all_others_alone(sweep, capsys):
    """The first run's record says that others used the machine; the second ran out of memory."""
    first, second = sweep.runs()[:2]
    path = sweep.folder.record(first)
    doubt = Doubt(code="busy_cpu", message="other processes kept 1.33 of 2 cores busy", remedy="stop them")
    Record.read(path).model_copy(update={"doubts": (doubt,)}).write(path)
    retry_runs(sweep.home, "tiny", "disturbed")
    assert "(was disturbed: other processes kept 1.33 of 2 cores busy)" in capsys.readouterr().out
    assert not path.exists()
    assert sweep.folder.record(second).exists()


def test_a_run_that_killed_its_executor_twice_can_be_retried(tmp_path):
    fallen = TinyBlock(tmp_path / "home", tmp_path / "leases").plan("kill_executor")
    for _ in range(3):
        fallen.run()
    assert "executor died 2 times" in fallen.record().reason
    retry_runs(fallen.home, "tiny", "crashed")
    fallen.run()
    with pytest.raises(FileNotFoundError):
        fallen.record()


@pytest.mark.parametrize(("outcome", "words"), [("measured", "--add-repeats"), ("not_run", "nothing to re-open")])
def test_outcomes_that_need_no_retry_are_refused_with_an_alternative(sweep, outcome, words):
    with pytest.raises(InputError, match=words):
        retry_runs(sweep.home, "tiny", outcome)


@pytest.mark.parametrize("host", [socket.gethostname(), "node7"])
def test_nothing_is_reopened_while_the_sweep_is_running(sweep, host):
    LockOwner(
        block=sweep.name,
        host=host,
        pid=os.getpid(),
        process_started=psutil.Process().create_time(),
        since="now",
    ).write(sweep.lock_file)
    with pytest.raises(AccelsweepError, match=f"process {os.getpid()} on {host}"):
        retry_runs(sweep.home, "tiny", "out_of_memory")
    assert Record.read(sweep.folder.record(sweep.runs()[1])).outcome is Outcome.out_of_memory


def test_a_stale_lock_of_a_dead_node_does_not_prevent_retries(sweep, capsys):
    path = sweep.lock_file
    LockOwner(block=sweep.name, host="node7", pid=1, process_started=0.0, since="then").write(path)
    os.utime(path, (time.time() - STALE_AFTER_SECONDS - 5,) * 2)
    retry_runs(sweep.home, "tiny", "out_of_memory")
    assert "1 run re-opened" in capsys.readouterr().out
