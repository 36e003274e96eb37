"""Why jobs were refused or ended, from logs as Snakemake and Slurm wrote them; tests/slurm has the real thing."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from accelsweep.config.site import Site, Slurm
from accelsweep.driver import job_queue as reading
from accelsweep.driver.job_queue import failures, note_failed_jobs, refuse_before_submission
from accelsweep.errors import InputError
from accelsweep.records.layout import SweepFolder
from accelsweep.records.plan import Done, Manifest
from accelsweep.records.stop_reasons import Halt, Why, reasons_not_run, wants_a_change, why_and_what_next, why_not_run
from accelsweep.schedulers.protocol import JobOffer, Resources
from accelsweep.schedulers.slurm import SlurmEngine

SLURM = SlurmEngine(Site(name="box", scheduler="slurm"))

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
    """A block of the sweep that has not ended."""
    name = Manifest.read(example_sweep.manifest).blocks[0].name
    example_sweep.done(name).unlink(missing_ok=True)
    for run in Manifest.read(example_sweep.manifest).blocks[0].runs:
        example_sweep.record(run).unlink(missing_ok=True)
    return name


def logged(folder: SweepFolder, block: str, message: str, job_log: Path | None = None) -> Path:
    """Write Snakemake's log of a job that failed twice, as its retry does too."""
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
def test_a_refused_job_is_told_in_slurms_words(
    example_sweep: SweepFolder, block: str, message: str, words: str
) -> None:
    note_failed_jobs(example_sweep, SLURM, logged(example_sweep, block, message))
    assert why_not_run(example_sweep, block) == (f"Slurm refused its job ({words}); change what the site file asks for")


def test_a_job_that_fails_before_its_supervisor_begins_is_told_in_the_shells_words(
    example_sweep: SweepFolder, block: str, tmp_path: Path
) -> None:
    job_log = tmp_path / "113.log"
    job_log.write_text("srun: error: gpu1: task 0: Exited with exit code 1\n")
    log = logged(example_sweep, block, ENDED.format(state="FAILED"), job_log)
    example_sweep.log(block).write_text("an earlier line\nbash: line 1: module: command not found\n\n")
    note_failed_jobs(example_sweep, SLURM, log)
    assert why_not_run(example_sweep, block) == (
        "its job 113 ended as FAILED (bash: line 1: module: command not found); "
        f"{example_sweep.log(block).relative_to(example_sweep.home)} has more"
    )


def test_a_record_that_was_deleted_after_its_block_ended_is_told_apart_from_a_run_that_never_began(
    example_sweep: SweepFolder,
) -> None:
    manifest = Manifest.read(example_sweep.manifest)
    block = manifest.blocks[0]
    example_sweep.hold(block.name).unlink(missing_ok=True)
    done = Done(block=block.name, records={})
    done.write(example_sweep.done(block.name))
    before = reasons_not_run(example_sweep, manifest).get(Why.gone, 0)
    next(path for run in block.runs if (path := example_sweep.record(run)).exists()).unlink()
    assert reasons_not_run(example_sweep, manifest)[Why.gone] == before + 1
    example_sweep.done(block.name).unlink()
    after = reasons_not_run(example_sweep, manifest)
    assert after.get(Why.gone, 0) <= before, "accelsweep retry opens a block again so"


def test_words_of_slurm_itself_count_more_than_those_of_a_supervisor(
    example_sweep: SweepFolder, block: str, tmp_path: Path
) -> None:
    Halt(block=block, why="the executor of its block was stopped by SIGTERM").write(example_sweep.halt(block))
    job_log = tmp_path / "113.log"
    log = logged(example_sweep, block, ENDED.format(state="TIMEOUT"), job_log)
    job_log.write_text("all is well\n")
    note_failed_jobs(example_sweep, SLURM, log)
    assert "SIGTERM" in why_not_run(example_sweep, block)
    job_log.write_text("slurmstepd: error: *** JOB 113 ON gpu1 CANCELLED AT 14:15 DUE TO TIME LIMIT ***\n")
    note_failed_jobs(example_sweep, SLURM, log)
    assert "ended as TIMEOUT (*** JOB 113 ON gpu1 CANCELLED AT 14:15 DUE TO TIME LIMIT ***)" in why_not_run(
        example_sweep, block
    )


def test_the_log_that_is_named_is_the_one_with_the_words(
    example_sweep: SweepFolder, block: str, tmp_path: Path
) -> None:
    job_log, block_log = example_sweep.home / "slurm-logs" / "113.log", example_sweep.log(block)
    job_log.parent.mkdir()
    log = logged(example_sweep, block, ENDED.format(state="FAILED"), job_log)
    block_log.write_text("")
    for text, words in (
        ("", "(it left no word); sweeps/example/logs/snakemake.log has more"),
        ("python: not found\n", "(python: not found); slurm-logs/113.log has more"),
        ("slurmstepd: error: Exceeded job memory limit\n", "(Exceeded job memory limit); slurm-logs/113.log has more"),
    ):
        job_log.write_text(text)
        [failure] = failures(example_sweep, SLURM, log)
        assert failure.why.endswith(words)
    block_log.write_text("module: command not found\n")
    job_log.write_text("srun: error: gpu1: task 0: Exited with exit code 1\n")
    [failure] = failures(example_sweep, SLURM, log)
    assert failure.why.endswith(f"(module: command not found); sweeps/example/logs/{block}.log has more")


def test_a_job_that_never_reached_a_node_is_not_told_in_words_of_an_earlier_one(
    example_sweep: SweepFolder, block: str, tmp_path: Path
) -> None:
    log = logged(example_sweep, block, ENDED.format(state="CANCELLED"), tmp_path / "113.log")
    example_sweep.log(block).write_text("bash: line 1: module: command not found\n")
    [failure] = failures(example_sweep, SLURM, log)
    assert "ended as CANCELLED (it left no word)" in failure.why
    assert "snakemake.log has more" in failure.why


def test_of_a_long_log_the_end_is_read(example_sweep: SweepFolder, block: str, monkeypatch: pytest.MonkeyPatch) -> None:
    log = logged(example_sweep, block, REFUSED)
    monkeypatch.setattr(reading, "_MOST_BYTES", log.stat().st_size)
    log.write_text("Job 1 has been submitted with SLURM jobid 5.\n" * 1000 + log.read_text())
    [failure] = failures(example_sweep, SLURM, log)
    assert failure.block == block


def test_a_block_that_has_ended_gets_no_halt(example_sweep: SweepFolder, block: str) -> None:
    example_sweep.done(block).write_text("{}")
    note_failed_jobs(example_sweep, SLURM, logged(example_sweep, block, REFUSED))
    assert example_sweep.halts() == []


def test_the_same_refusal_of_many_jobs_is_one_reason(example_sweep: SweepFolder) -> None:
    manifest = Manifest.read(example_sweep.manifest)
    for planned in manifest.blocks:
        example_sweep.done(planned.name).unlink(missing_ok=True)
        for run in planned.runs:
            example_sweep.record(run).unlink(missing_ok=True)
        note_failed_jobs(example_sweep, SLURM, logged(example_sweep, planned.name, REFUSED))
    assert len(manifest.blocks) > 1
    assert list(reasons_not_run(example_sweep, manifest).values()) == [len(manifest.wanted_runs())]


@pytest.mark.parametrize(
    "log", [b"", b"\xff\xfe Error in rule block:\n", b"Error in rule report:\n    message: None\n"]
)
def test_a_log_without_failed_jobs_tells_of_none(example_sweep: SweepFolder, tmp_path: Path, log: bytes) -> None:
    (tmp_path / "log").write_bytes(log)
    assert failures(example_sweep, SLURM, tmp_path / "log") == []
    assert failures(example_sweep, SLURM, tmp_path / "absent") == []


@dataclass(frozen=True, kw_only=True)
class Refusing(SlurmEngine):
    """An engine that says this of every job, while so many jobs of the user's are in its queue."""

    offered: JobOffer
    others: int = 0

    def offer(self, needs: Resources) -> JobOffer:
        assert needs.node is None, "a fleet's nodes are asked after by name elsewhere"
        return self.offered

    def in_queue(self) -> int:
        return self.others


def asked(monkeypatch: pytest.MonkeyPatch, offered: JobOffer, others: int = 0, slurm: Slurm | None = None) -> list[str]:
    """Return the warnings about a job without GPUs, of which there are two on nodes by name."""
    site = Site(name="box", scheduler="slurm", slurm=slurm or Slurm(partition="gpu", qos="gold"))
    monkeypatch.setattr(reading, "engine_of", lambda _: Refusing(site, offered=offered, others=others))
    said: list[str] = []
    refuse_before_submission(site, [Resources(node="n1"), Resources(node="n2")], said.append)
    return said


def test_a_job_that_the_engine_would_refuse_is_wrong_input_with_its_words_and_the_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    offered = JobOffer(False, "Invalid qos specification", "sbatch --test-only ...", keys=("qos",))
    with pytest.raises(InputError) as refused:
        asked(monkeypatch, offered)
    assert "Slurm refuses a job of 1 node" in str(refused.value)
    assert "(Invalid qos specification): change site.slurm.qos=gold. To try it by hand: sbatch" in str(refused.value)
    apart = Slurm(partition="gpu", cpu_partition="cpuu")
    with pytest.raises(InputError, match=r"change site\.slurm\.cpu_partition=cpuu\. "):
        asked(monkeypatch, offered._replace(keys=("partition",)), slurm=apart)
    with pytest.raises(InputError, match="change what the site file asks for"):
        asked(monkeypatch, offered._replace(keys=()))


@pytest.mark.parametrize(
    ("said", "others", "warned"),
    [
        ("AssocMaxSubmitJobLimit", 3, True),
        ("QOSGrpSubmitJobsLimit", 0, False),
        ("Unable to contact slurm controller (connect failure)", 0, True),
    ],
)
def test_a_refusal_that_ends_by_itself_is_a_warning_unless_nothing_is_in_the_queue_that_could_end(
    monkeypatch: pytest.MonkeyPatch, said: str, others: int, warned: bool
) -> None:
    offered = JobOffer(False, said, "sbatch ...", keys=("max_jobs",), passing=True)
    if warned:
        (warning,) = asked(monkeypatch, offered, others)
        assert warning == f"Slurm takes no job now ({said}); the jobs are submitted when it does"
    else:
        with pytest.raises(InputError, match=said):
            asked(monkeypatch, offered, others)


def test_a_refused_job_wants_a_change_and_one_that_slurm_could_not_be_asked_for_does_not(
    example_sweep: SweepFolder, block: str
) -> None:
    manifest = Manifest.read(example_sweep.manifest)
    manifest = manifest.model_copy(update={"blocks": manifest.blocks[:1]})
    note_failed_jobs(example_sweep, SLURM, logged(example_sweep, block, REFUSED))
    assert wants_a_change(example_sweep, manifest)
    told = why_and_what_next(example_sweep, block, "the same command measures it")
    assert told.startswith("Slurm refused its job (")
    assert "same command" not in told
    away = REFUSED.replace("Invalid partition name specified", "Unable to contact slurm controller (connect failure)")
    example_sweep.halt(block).unlink()
    note_failed_jobs(example_sweep, SLURM, logged(example_sweep, block, away))
    assert example_sweep.halt(block).exists()
    assert not wants_a_change(example_sweep, manifest)
    assert why_and_what_next(example_sweep, block, "the same command measures it").endswith(
        "; the same command measures it"
    )
