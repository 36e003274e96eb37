"""StopReason jobs were refused or failed, from recorded logs of Snakemake and Slurm; tests/slurm uses the real ones."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from accelsweep.config.site import Site, Slurm
from accelsweep.driver import job_queue
from accelsweep.driver.job_queue import check_jobs_accepted, read_failed_jobs, record_failed_jobs
from accelsweep.errors import InputError
from accelsweep.records.layout import SweepFolder
from accelsweep.records.not_run_reasons import (
    Halt,
    StopReason,
    count_not_run_reasons,
    needs_change,
    not_run_reason,
    not_run_reason_with_remedy,
)
from accelsweep.records.plan import Done, Manifest
from accelsweep.schedulers.protocol import JobOffer, Resources
from accelsweep.schedulers.slurm import SlurmScheduler

SLURM = SlurmScheduler(Site(name="box", scheduler="slurm"))

ERROR = """\
[Sun Nov 22 14:14:05 2026]
Error in rule block:
    message: {message}
    jobid: 1
    input: sweeps/example/blocks/{block}.json
    output: sweeps/example/blocks/{block}.done.json
    log: sweeps/example/logs/{block}.log{job_log} (check log file(s) for error details)
    shell:
        (touch ...)
        (command exited with non-zero exit code)
{end}
"""
REFUSED = """\
SLURM sbatch failed. The error message was 'sbatch: error: invalid partition specified: nonesuch
sbatch: error: Batch job submission failed: Invalid partition name specified'.
    sbatch call:
        sbatch --parsable --wrap="it's Error in rule block:"
For further error details see the cluster/cloud log and the log files of the involved rule(s)."""
NOT_SENT = (
    "Job submission failed with exception: The given account nobody appears to be invalid. Available accounts:\na, b"
    "For further error details see the cluster/cloud log and the log files of the involved rule(s)."
)
ENDED = (
    "SLURM-job '113' failed, SLURM status is: '{state}'. Detailed failure reason unavailable (status command is not "
    "'sacct').For further error details see the cluster/cloud log and the log files of the involved rule(s)."
)


@pytest.fixture
def block(example_sweep: SweepFolder) -> str:
    """An unfinished block of the sweep."""
    name = Manifest.read(example_sweep.manifest).blocks[0].name
    example_sweep.done(name).unlink(missing_ok=True)
    for run in Manifest.read(example_sweep.manifest).blocks[0].runs:
        example_sweep.record(run).unlink(missing_ok=True)
    return name


def logged(folder: SweepFolder, block: str, message: str, job_log: Path | None = None) -> Path:
    """Write Snakemake's log of a job whose retry failed, too."""
    named = f", {job_log}" if job_log else ""
    ends = ("Trying to restart job 1.", "Exiting because a job execution failed. Look above for error messages")
    text = "".join(ERROR.format(message=message, block=block, job_log=named, end=end) for end in ends)
    folder.snakemake_log.parent.mkdir(exist_ok=True)
    folder.snakemake_log.write_text(text)
    return folder.snakemake_log


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (
            REFUSED,
            "invalid partition specified: nonesuch; Batch job submission failed: Invalid partition name specified",
        ),
        (NOT_SENT, "The given account nobody appears to be invalid. Available accounts: a, b"),
    ],
)
def test_a_refused_job_quotes_slurms_message(example_sweep: SweepFolder, block: str, message: str, words: str) -> None:
    record_failed_jobs(example_sweep, SLURM, logged(example_sweep, block, message))
    assert not_run_reason(example_sweep, block) == (
        f"Slurm refused its job ({words}); change what the site file requests"
    )


def test_a_job_that_fails_before_its_executor_starts_quotes_the_shells_message(
    example_sweep: SweepFolder, block: str, tmp_path: Path
) -> None:
    job_log = tmp_path / "113.log"
    job_log.write_text("srun: error: gpu1: task 0: Exited with exit code 1\n")
    log = logged(example_sweep, block, ENDED.format(state="FAILED"), job_log)
    example_sweep.log(block).write_text("an earlier line\nbash: line 1: module: command not found\n\n")
    record_failed_jobs(example_sweep, SLURM, log)
    assert not_run_reason(example_sweep, block) == (
        "its job 113 ended as FAILED (bash: line 1: module: command not found); "
        f"{example_sweep.log(block).relative_to(example_sweep.home)} has more"
    )


def test_a_record_deleted_after_its_block_ended_is_not_a_run_that_never_started(
    example_sweep: SweepFolder,
) -> None:
    manifest = Manifest.read(example_sweep.manifest)
    block = manifest.blocks[0]
    example_sweep.lock(block.name).unlink(missing_ok=True)
    done = Done(block=block.name, records={})
    done.write(example_sweep.done(block.name))
    before = count_not_run_reasons(example_sweep, manifest).get(StopReason.gone, 0)
    next(path for run in block.runs if (path := example_sweep.record(run)).exists()).unlink()
    assert count_not_run_reasons(example_sweep, manifest)[StopReason.gone] == before + 1
    example_sweep.done(block.name).unlink()
    after = count_not_run_reasons(example_sweep, manifest)
    assert after.get(StopReason.gone, 0) <= before, "accelsweep retry reopens a block this way"


def test_slurms_message_takes_precedence_over_the_executors(
    example_sweep: SweepFolder, block: str, tmp_path: Path
) -> None:
    Halt(block=block, reason="the executor of its block was stopped by SIGTERM").write(example_sweep.halt(block))
    job_log = tmp_path / "113.log"
    log = logged(example_sweep, block, ENDED.format(state="TIMEOUT"), job_log)
    job_log.write_text("all is well\n")
    record_failed_jobs(example_sweep, SLURM, log)
    assert "SIGTERM" in not_run_reason(example_sweep, block)
    job_log.write_text("slurmstepd: error: *** JOB 113 ON gpu1 CANCELLED AT 14:15 DUE TO TIME LIMIT ***\n")
    record_failed_jobs(example_sweep, SLURM, log)
    assert "ended as TIMEOUT (*** JOB 113 ON gpu1 CANCELLED AT 14:15 DUE TO TIME LIMIT ***)" in not_run_reason(
        example_sweep, block
    )


def test_the_reason_names_the_log_that_it_quotes(example_sweep: SweepFolder, block: str, tmp_path: Path) -> None:
    job_log, block_log = example_sweep.home / "slurm-logs" / "113.log", example_sweep.log(block)
    job_log.parent.mkdir()
    log = logged(example_sweep, block, ENDED.format(state="FAILED"), job_log)
    block_log.write_text("")
    for text, words in (
        ("", "(it printed nothing); sweeps/example/logs/snakemake.log has more"),
        ("python: not found\n", "(python: not found); slurm-logs/113.log has more"),
        ("slurmstepd: error: Exceeded job memory limit\n", "(Exceeded job memory limit); slurm-logs/113.log has more"),
    ):
        job_log.write_text(text)
        [failure] = read_failed_jobs(example_sweep, SLURM, log)
        assert failure.reason.endswith(words)
    block_log.write_text("module: command not found\n")
    job_log.write_text("srun: error: gpu1: task 0: Exited with exit code 1\n")
    [failure] = read_failed_jobs(example_sweep, SLURM, log)
    assert failure.reason.endswith(f"(module: command not found); sweeps/example/logs/{block}.log has more")


def test_a_job_that_never_reached_a_node_does_not_quote_an_earlier_job(
    example_sweep: SweepFolder, block: str, tmp_path: Path
) -> None:
    log = logged(example_sweep, block, ENDED.format(state="CANCELLED"), tmp_path / "113.log")
    example_sweep.log(block).write_text("bash: line 1: module: command not found\n")
    [failure] = read_failed_jobs(example_sweep, SLURM, log)
    assert "ended as CANCELLED (it printed nothing)" in failure.reason
    assert "snakemake.log has more" in failure.reason


def test_only_the_end_of_a_long_log_is_read(
    example_sweep: SweepFolder, block: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = logged(example_sweep, block, REFUSED)
    monkeypatch.setattr(job_queue, "_MAX_LOG_BYTES", log.stat().st_size)
    log.write_text("Job 1 has been submitted with SLURM jobid 5.\n" * 1000 + log.read_text())
    [failure] = read_failed_jobs(example_sweep, SLURM, log)
    assert failure.block == block


def test_a_finished_block_gets_no_halt_file(example_sweep: SweepFolder, block: str) -> None:
    example_sweep.done(block).write_text("{}")
    record_failed_jobs(example_sweep, SLURM, logged(example_sweep, block, REFUSED))
    assert example_sweep.halts() == []


def test_the_same_refusal_of_many_jobs_is_one_reason(example_sweep: SweepFolder) -> None:
    manifest = Manifest.read(example_sweep.manifest)
    for planned in manifest.blocks:
        example_sweep.done(planned.name).unlink(missing_ok=True)
        for run in planned.runs:
            example_sweep.record(run).unlink(missing_ok=True)
        record_failed_jobs(example_sweep, SLURM, logged(example_sweep, planned.name, REFUSED))
    assert len(manifest.blocks) > 1
    assert list(count_not_run_reasons(example_sweep, manifest).values()) == [len(manifest.wanted_runs())]


@pytest.mark.parametrize(
    "log", [b"", b"\xff\xfe Error in rule block:\n", b"Error in rule report:\n    message: None\n"]
)
def test_a_log_without_failed_jobs_yields_none(example_sweep: SweepFolder, tmp_path: Path, log: bytes) -> None:
    (tmp_path / "log").write_bytes(log)
    assert read_failed_jobs(example_sweep, SLURM, tmp_path / "log") == []
    assert read_failed_jobs(example_sweep, SLURM, tmp_path / "absent") == []


@dataclass(frozen=True, kw_only=True)
class FixedOffer(SlurmScheduler):
    """A scheduler with the same answer for every job, and `others` jobs of the user in its queue."""

    offered: JobOffer
    others: int = 0

    def offer(self, needs: Resources) -> JobOffer:
        assert needs.node is None, "the nodes of a fleet are checked by name elsewhere"
        return self.offered

    def in_queue(self) -> int:
        return self.others


def warnings_about(
    monkeypatch: pytest.MonkeyPatch, offered: JobOffer, others: int = 0, slurm: Slurm | None = None
) -> list[str]:
    """Return the warnings about two CPU jobs that differ in the node alone."""
    site = Site(name="box", scheduler="slurm", slurm=slurm or Slurm(partition="gpu", qos="gold"))
    monkeypatch.setattr(job_queue, "scheduler_of", lambda _: FixedOffer(site, offered=offered, others=others))
    warnings: list[str] = []
    check_jobs_accepted(site, [Resources(node="n1"), Resources(node="n2")], warnings.append)
    return warnings


def test_a_job_that_the_scheduler_would_refuse_is_an_input_error_with_its_message_and_the_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    offered = JobOffer(False, "Invalid qos specification", "sbatch --test-only ...", keys=("qos",))
    with pytest.raises(InputError) as refused:
        warnings_about(monkeypatch, offered)
    assert "Slurm refuses a job of 1 node" in str(refused.value)
    assert "(Invalid qos specification): change site.slurm.qos=gold. To try it by hand: sbatch" in str(refused.value)
    apart = Slurm(partition="gpu", cpu_partition="cpuu")
    with pytest.raises(InputError, match=r"change site\.slurm\.cpu_partition=cpuu\. "):
        warnings_about(monkeypatch, offered._replace(keys=("partition",)), slurm=apart)
    with pytest.raises(InputError, match="change what the site file requests"):
        warnings_about(monkeypatch, offered._replace(keys=()))


@pytest.mark.parametrize(
    ("said", "others", "warned"),
    [
        ("AssocMaxSubmitJobLimit", 3, True),
        ("QOSGrpSubmitJobsLimit", 0, False),
        ("Unable to contact slurm controller (connect failure)", 0, True),
    ],
)
def test_a_temporary_refusal_is_a_warning_unless_no_queued_job_could_end_it(
    monkeypatch: pytest.MonkeyPatch, said: str, others: int, warned: bool
) -> None:
    offered = JobOffer(False, said, "sbatch ...", keys=("max_jobs",), temporary=True)
    if warned:
        (warning,) = warnings_about(monkeypatch, offered, others)
        assert warning == f"Slurm accepts no jobs at present ({said}); they will be submitted once it does"
    else:
        with pytest.raises(InputError, match=said):
            warnings_about(monkeypatch, offered, others)


def test_a_refused_job_needs_a_change_and_one_that_never_reached_slurm_does_not(
    example_sweep: SweepFolder, block: str
) -> None:
    manifest = Manifest.read(example_sweep.manifest)
    manifest = manifest.model_copy(update={"blocks": manifest.blocks[:1]})
    record_failed_jobs(example_sweep, SLURM, logged(example_sweep, block, REFUSED))
    assert needs_change(example_sweep, manifest)
    text = not_run_reason_with_remedy(example_sweep, block, "the same command measures it")
    assert text.startswith("Slurm refused its job (")
    assert "same command" not in text
    away = REFUSED.replace("Invalid partition name specified", "Unable to contact slurm controller (connect failure)")
    example_sweep.halt(block).unlink()
    record_failed_jobs(example_sweep, SLURM, logged(example_sweep, block, away))
    assert example_sweep.halt(block).exists()
    assert not needs_change(example_sweep, manifest)
    assert not_run_reason_with_remedy(example_sweep, block, "the same command measures it").endswith(
        "; the same command measures it"
    )
