"""What a job's log says of its end, and that a run which took its job down for lack of memory is not started again."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from tiny_supervisor import Supervised

from accelsweep.core.outcome import Outcome
from accelsweep.execute.attempts import Started
from accelsweep.execute.slurm_job import lack_of_memory

SEEN = "slurmstepd-gpu1: error: StepId=12.0 exceeded memory limit (4158427136 > 2097152000), being killed"


@pytest.mark.parametrize(
    "line",
    [
        SEEN,
        "slurmstepd: error: Detected 1 oom_kill event in StepId=7.batch. Some of the step tasks have been OOM Killed.",
        "slurmstepd: error: Detected 1 oom-kill event(s) in StepId=7.0 cgroup. Some of your processes may be killed",
        "srun: error: node7: task 0: Out Of Memory",
    ],
)
def test_slurms_words_for_a_lack_of_memory_are_found(tmp_path: Path, line: str) -> None:
    log = tmp_path / "7.log"
    log.write_text(f"RuntimeError: CUDA out of memory, says a run\n{line}\nsrun: error: gpu1: task 0: Killed\n")
    assert lack_of_memory(str(log)) == line


def test_what_a_run_prints_is_not_slurms_word(tmp_path: Path) -> None:
    log = tmp_path / "7.log"
    log.write_text("my program exceeded memory limit\nsrun: error: gpu1: task 0: Killed\n")
    assert lack_of_memory(str(log)) is None
    assert lack_of_memory(str(tmp_path / "none.log")) is None
    assert lack_of_memory(None) is None


def test_a_run_that_took_its_job_down_for_lack_of_memory_is_out_of_memory_at_once(supervised: Supervised) -> None:
    supervised.plan("kill_supervisor", "measured")
    assert supervised.run()[0] == -signal.SIGKILL
    log = supervised.home / "12.log"
    log.write_text(f"{SEEN}\n")
    mark = supervised.attempt() / "started.json"
    Started.read(mark).model_copy(update={"job_log": str(log)}).write(mark)
    code, output = supervised.run()
    assert code == 0, output
    assert supervised.record(0).outcome is Outcome.out_of_memory
    assert SEEN in str(supervised.record(0).reason)
    assert supervised.record(1).outcome is Outcome.measured
