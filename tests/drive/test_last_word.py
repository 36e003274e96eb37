"""Of a Snakemake that failed the user reads one sentence, and never a traceback."""

from __future__ import annotations

import signal

import pytest

from accelsweep.drive.snakemake.last_word import why_snakemake_ended

FAILED_JOB = """\
RuleException:
CalledProcessError in file "/x/workflows/blocks.smk", line 22:
Command 'set -euo pipefail;  python -m accelsweep.supervise b.json' returned non-zero exit status 1.
"""
ENDED = "WorkflowError:\nAt least one job did not complete successfully.\n"
TRACEBACK = """\
Traceback (most recent call last):
  File "/x/finish.py", line 47, in <module>
    sys.exit(main())
"""
LOGS = {
    f"{FAILED_JOB}error: sweeps/tiny/manifest.json: not a whole JSON document\n{FAILED_JOB}": (
        "sweeps/tiny/manifest.json: not a whole JSON document"
    ),
    f"{FAILED_JOB}Terminating processes on user request, this might take some time.\n{TRACEBACK}{ENDED}": (
        "it was told to stop"
    ),
    f"{TRACEBACK}ValueError: no such column\n{FAILED_JOB}{ENDED}": "ValueError: no such column",
    f"{TRACEBACK}snakemake.exceptions.WorkflowError: sbatch: invalid account\n": (
        "snakemake.exceptions.WorkflowError: sbatch: invalid account"
    ),
    f"WorkflowError:\n    sbatch: error: invalid partition\n{ENDED}": "sbatch: error: invalid partition",
    f" message: SLURM-job '6' failed, SLURM status is: 'CANCELLED'. For further error details see logs.\n{ENDED}": (
        "SLURM-job '6' failed, SLURM status is: 'CANCELLED'"
    ),
    f"Error in rule block:\n    message: None\n{FAILED_JOB}{ENDED}": "it ended with exit code 1",
    f"{FAILED_JOB}{ENDED}": "it ended with exit code 1",
    "": "it ended with exit code 1",
}


@pytest.mark.parametrize(("log", "sentence"), LOGS.items(), ids=LOGS.values())
def test_the_end_of_a_log_becomes_one_sentence(tmp_path, log: str, sentence: str) -> None:
    path = tmp_path / "snakemake.log"
    path.write_text(log)
    assert why_snakemake_ended(path, 1) == sentence


def test_a_signal_is_named_whatever_the_log_says(tmp_path) -> None:
    assert why_snakemake_ended(tmp_path / "none.log", -signal.SIGKILL) == "it was ended by SIGKILL"
    assert why_snakemake_ended(tmp_path / "none.log", -300) == "it was ended by signal 300"
