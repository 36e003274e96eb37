"""What a job's log says of its end, and that a run which took its job down for lack of memory is not started again."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from tiny_supervisor import Supervised

from accelsweep.executor.outcome import lack_of_memory
from accelsweep.records.run_files import Started
from accelsweep.records.run_record import Outcome

SEEN = "slurmstepd-gpu1: error: StepId=12.0 exceeded memory limit (4158427136 > 2097152000), being killed"


KILLED = "slurmstepd: error: Detected 1 oom_kill event in StepId=7.batch. Some of the step tasks have been OOM Killed."


def job_log(path: Path, line: str) -> str:
    """Write the log of a job whose run spoke of memory too; return its path."""
    path.write_text(f"RuntimeError: CUDA out of memory, says a run\n{line}\nsrun: error: gpu1: task 0: Killed\n")
    return str(path)


def told(*logs: str | None) -> str | None:
    """Return the line that the jobs with these logs tell of their lack of memory."""
    found = lack_of_memory(logs)
    return found.text if found else None


@pytest.mark.parametrize("line", [SEEN, "slurmstepd: error: Exceeded job memory limit"])
def test_slurms_words_for_a_job_that_was_ended_for_its_memory_are_enough(tmp_path: Path, line: str) -> None:
    assert told(job_log(tmp_path / "7.log", line)) == line


@pytest.mark.parametrize(
    "line",
    [
        KILLED,
        "slurmstepd: error: Detected 1 oom-kill event(s) in StepId=7.0 cgroup. Some of your processes may be killed",
        "srun: error: node7: task 0: Out Of Memory",
    ],
)
def test_words_for_a_process_that_was_killed_count_where_two_jobs_have_them(tmp_path: Path, line: str) -> None:
    """A job says them at its end, whichever of its runs it was, and why ever it ended."""
    first, second = (job_log(tmp_path / name, line) for name in ("7.log", "8.log"))
    preempted = job_log(tmp_path / "9.log", "slurmstepd: error: *** JOB 9 ON gpu1 CANCELLED DUE TO PREEMPTION ***")
    assert told(first) is None
    assert told(first, second) == line
    assert told(first, preempted) is None
    assert told(first, first) is None, "one job that was requeued"


def test_having_been_at_the_limit_is_no_end(tmp_path: Path) -> None:
    line = "slurmstepd: error: Exceeded step memory limit at some point."
    assert told(*(job_log(tmp_path / name, line) for name in ("7.log", "8.log"))) is None


def test_what_a_run_prints_is_not_slurms_word(tmp_path: Path) -> None:
    log = job_log(tmp_path / "7.log", "my program exceeded memory limit")
    assert told(log, log) is None
    assert told(str(tmp_path / "none.log")) is None
    assert told(None) is None
    assert told() is None


def fall(supervised: Supervised, attempt: int, line: str) -> None:
    """Let the first run take its supervisor down, in a job whose log holds this line."""
    assert supervised.run()[0] == -signal.SIGKILL
    mark = supervised.attempt(attempt=attempt) / "started.json"
    log = job_log(supervised.home / f"{attempt}.log", line)
    Started.read(mark).model_copy(update={"job_log": log}).write(mark)


def test_a_run_that_took_its_job_down_for_lack_of_memory_is_out_of_memory_at_once(supervised: Supervised) -> None:
    supervised.plan("kill_supervisor", "measured")
    fall(supervised, 1, SEEN)
    code, output = supervised.run()
    assert code == 0, output
    assert supervised.record(0).outcome is Outcome.out_of_memory
    assert SEEN in str(supervised.record(0).reason)
    assert supervised.record(1).outcome is Outcome.measured


def test_a_run_in_whose_job_some_process_was_killed_for_memory_is_tried_once_more(
    supervised: Supervised,
) -> None:
    supervised.plan("kill_supervisor")
    fall(supervised, 1, KILLED)
    fall(supervised, 2, KILLED)
    supervised.run()
    assert supervised.record().outcome is Outcome.out_of_memory
    assert KILLED in str(supervised.record().reason)
