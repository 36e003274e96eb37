"""A failed Snakemake is reported in one sentence with the root cause, never as a traceback."""

from __future__ import annotations

import re
import signal
import subprocess
import sys

import psutil
import pytest
from polling import until

from accelsweep.driver.snakemake_process import SnakemakeStarter, why_snakemake_ended
from accelsweep.installation import shipped_root
from accelsweep.records.layout import SweepFolder

FAILED_JOB = """\
RuleException:
CalledProcessError in file "/x/workflows/blocks.smk", line 22:
Command 'set -euo pipefail;  python -m accelsweep.executor b.json' returned non-zero exit status 1.
"""
ENDED = "WorkflowError:\nAt least one job did not complete successfully.\n"
TRACEBACK = """\
Traceback (most recent call last):
  File "/x/finalize.py", line 47, in <module>
    sys.exit(main())
"""


def failed(rule: str, module: str, how: str) -> str:
    """Return Snakemake's paragraph about a failed step."""
    log = f"sweeps/tiny/logs/{rule}.log"
    return (
        f"Error in rule {rule}:\n    jobid: 4\n    log: {log} (check log file(s) for error details)\n"
        f"    shell:\n        python -m accelsweep.{module} sweeps/tiny > {log} 2>&1\n"
        "        (command exited with non-zero exit code)\n"
        f'RuleException:\nCalledProcessError in file "/x/workflows/x.smk", line 31:\n'
        f"Command 'set -euo pipefail;  python -m accelsweep.{module} sweeps/tiny > {log} 2>&1' {how}.\n{ENDED}"
    )


LOGS = {
    f"{FAILED_JOB}error: sweeps/tiny/manifest.json: not a complete JSON document\n{FAILED_JOB}": (
        "sweeps/tiny/manifest.json: not a complete JSON document"
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
    f"Error in rule block:\n    message: None\n{FAILED_JOB}{ENDED}": (
        "a block failed: it ended with exit code 1, and its log is empty"
    ),
    failed("report", "driver.finalize", "died with <Signals.SIGKILL: 9>"): "the report was killed by SIGKILL",
    failed("report", "driver.finalize", "returned non-zero exit status 137"): "the report was killed by SIGKILL",
    failed("report", "driver.finalize", "returned non-zero exit status 143"): "the report was killed by SIGTERM",
    failed("report", "driver.finalize", "returned non-zero exit status 1"): "the report failed: no column 'rate'",
    'CalledProcessError in file "/x/Snakefile", line 47:\n'
    "Command 'set -euo pipefail;  python -m accelsweep.executor --prepare tiny' died with <Signals.SIGTERM: 15>.": (
        "preparing the data was killed by SIGTERM"
    ),
    'MissingInputException in rule report in file "/x/workflows/results.smk", line 8:\n'
    "Missing input files for rule report:\n    output: sweeps/tiny/findings.json\n    affected files:\n"
    "        sweeps/tiny/manifest.json\n": "Missing input files for rule report: sweeps/tiny/manifest.json",
    "zlib.error: Error -3 while decompressing data: incorrect header check\n": (
        "zlib.error: Error -3 while decompressing data: incorrect header check"
    ),
    "Will exit after finishing currently running jobs (scheduler).\n"
    f"Shutting down, this might take some time.\n{ENDED}": "it was told to stop",
    "Building DAG of jobs...\nKilled worker\n\n": "it gave no reason (exit code 1) after: Killed worker",
    "": "its log was emptied, or Python could not start it (exit code 1)",
}


@pytest.mark.parametrize(("log", "sentence"), LOGS.items(), ids=LOGS.values())
def test_the_root_cause_in_a_log_becomes_one_sentence(tmp_path, log: str, sentence: str) -> None:
    path = tmp_path / "snakemake.log"
    path.write_text(log)
    (tmp_path / "report.log").write_text("12:00:01 error: no column 'rate'\n\n")
    assert why_snakemake_ended(path, 1) == sentence


def test_a_signal_is_named_whatever_the_log_says(tmp_path) -> None:
    assert why_snakemake_ended(tmp_path / "none.log", -signal.SIGKILL) == "it was killed by SIGKILL"
    assert why_snakemake_ended(tmp_path / "none.log", -300) == "it was killed by signal 300"


WAITS = """
rule all:
    input: "a", "b"

rule timed:
    output: touch("{name}")
    resources: timing=1
    shell: "{sys.executable} {workflow.basedir}/wait.py"
"""

WAIT = """
import time, psutil
snakemake = next(each for each in psutil.Process().parents() if "snakemake" in each.cmdline())
before = sum(snakemake.cpu_times()[:2])
time.sleep(1.5)
print("CPU seconds:", sum(snakemake.cpu_times()[:2]) - before)
"""


def snakemakes() -> list[psutil.Process]:
    """The processes started by this one that have imported Snakemake ahead, or are about to."""
    children = [child for child in psutil.Process().children() if child.status() != psutil.STATUS_ZOMBIE]
    return [child for child in children if "accelsweep.driver.snakemake_main" in child.cmdline()]


@pytest.mark.real
@pytest.mark.heavy
def test_a_snakemake_started_ahead_is_told_what_to_run_and_replaced_if_it_died(tmp_path) -> None:
    folder = SweepFolder(tmp_path, "tiny")
    with SnakemakeStarter(tmp_path) as starter:
        starter.import_ahead()
        (ahead,) = snakemakes()
        with starter.start(folder, ["--version"]) as snakemake:
            assert snakemake.wait() == 0
        assert not ahead.is_running(), "it was the one that ran"
        assert re.fullmatch(r"\d+\.\d+\.\d+\n", folder.snakemake_log.read_text())
        starter.import_ahead()
        (ahead,) = snakemakes()
        ahead.kill()
        until(lambda: not snakemakes())
        with starter.start(folder, ["--no-such-option"]) as snakemake:
            assert snakemake.wait() == 2
        assert "unrecognized arguments: --no-such-option" in folder.snakemake_log.read_text()


@pytest.mark.real
def test_a_snakemake_that_was_started_ahead_ends_with_the_command_that_did_not_need_it(tmp_path) -> None:
    with SnakemakeStarter(tmp_path) as starter:
        starter.import_ahead()
        starter.import_ahead()
        assert len(snakemakes()) == 1
    assert not snakemakes()
    assert not list(tmp_path.iterdir())


@pytest.mark.real
@pytest.mark.heavy
def test_snakemake_leaves_the_processor_to_the_job_that_others_wait_for(tmp_path) -> None:
    """A profile without a rate limit keeps one core busy, which doubts every run."""
    (tmp_path / "Snakefile").write_text(WAITS)
    (tmp_path / "wait.py").write_text(WAIT)
    profile = shipped_root() / "workflows" / "profiles" / "local"
    command = [sys.executable, "-m", "snakemake", "--workflow-profile", "none", "--profile", str(profile)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    first, second = map(float, re.findall(r"CPU seconds: ([\d.]+)", done.stdout))
    assert max(first, second) < 0.5
