"""qsub's options, qstat's and qacct's output. tests/slurm/test_any_scheduler.py runs on a real Grid Engine."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path

import pytest

from accelsweep.config.site import NodeKind, Site
from accelsweep.devices.device_kind import Device
from accelsweep.errors import AccelsweepError, InputError
from accelsweep.features.grid_engine import snakemake_commands
from accelsweep.features.grid_engine.scheduler import (
    LOGS,
    GridEngineScheduler,
    block_of,
    job_name,
    log_line,
    read_jobs,
    read_qacct,
    succeeded,
)
from accelsweep.features.grid_engine.site import GridEngine
from accelsweep.plain_json import canonical_json
from accelsweep.planning.plan import make_plan
from accelsweep.schedulers.protocol import Resources
from accelsweep.schedulers.select import memory_lines, scheduler_of, this_job

CPU = Device(accelerator="cpu", model="m", count=8)
OPTIONS = GridEngine(queue="gpu.q", cpu_queue="cpu.q", project="mine", mem_mb=16000)
SITE = Site(name="box", scheduler="grid_engine", inventory=(CPU,), grid_engine=OPTIONS)
SCHEDULER = GridEngineScheduler(SITE)
NEEDS = Resources(cpus=2, gpus=4, gpu_model="h100", mem_mb=16000, minutes=24)
BLOCK = "b0123456789ab"


def test_an_exclusive_job_takes_all_slots_of_a_node_and_asks_for_memory_per_slot() -> None:
    assert SCHEDULER.command(NEEDS) == (
        "qsub -pe smp 8 -l h_rt=1440 -l h_vmem=2000M -l gpu=4 -l gpu_type=h100 -q gpu.q -P mine"
    )
    assert SCHEDULER.in_words(NEEDS) == "8 slots, 4 GPUs (h100), 16000 MB, at most 24 minutes, queue gpu.q"


def test_a_job_on_a_shared_node_takes_a_slot_per_core_and_runs_one_at_a_time() -> None:
    options = OPTIONS.model_copy(update={"exclusive": False, "extra": "-l hostname=gpu1*"})
    shared = GridEngineScheduler(SITE.model_copy(update={"grid_engine": options}))
    requested = shared.resources(NEEDS.model_copy(update={"gpus": 0, "mem_mb": None}))["grid_engine"]
    assert requested == "--one-at-a-time -pe smp 2 -l h_rt=1440 -q cpu.q -P mine -l hostname=gpu1*"


def test_a_jobs_name_identifies_sweep_folder_and_block(tmp_path: Path) -> None:
    name = job_name("a sweep", tmp_path, BLOCK)
    assert name.startswith("accelsweep-a-sweep-")
    assert block_of(name, tmp_path) == BLOCK
    assert block_of(name, tmp_path / "elsewhere") is None
    assert block_of("accelsweep-of-another", tmp_path) is None


def test_a_site_of_another_scheduler_stores_no_grid_engine_options() -> None:
    slurm = Site(name="mine", scheduler="slurm", kinds=(NodeKind(name="a", inventory=(CPU,)),))
    assert "grid_engine" not in canonical_json(slurm.model_dump(mode="json"))
    assert Site.model_validate(SITE.model_dump(mode="json")) == SITE


def test_kinds_of_node_inherit_the_sites_options() -> None:
    kinds = [{"name": "a", "inventory": [asdict(CPU)], "grid_engine": {"queue": "a.q"}}]
    site = Site.model_validate(
        {"name": "m", "scheduler": "grid_engine", "grid_engine": {"project": "p"}, "kinds": kinds}
    )
    scheduler = scheduler_of(site)
    assert scheduler is not None
    assert scheduler.command(Resources(cpus=1, node_kind="a")) == "qsub -pe smp 8 -q a.q -P p"


def test_the_shipped_example_plans_and_several_nodes_are_unsupported(tmp_path: Path) -> None:
    command = ["site=grid_engine_example", "accelerator=cpu,cuda", "devices=1"]
    assert {setting.unsupported for setting in make_plan(tmp_path, command).manifest.settings} == {None}
    wide = make_plan(tmp_path, [*command, "num_nodes=2", "+site.nodes=2"]).manifest.settings
    assert all("cannot start ranks on several nodes" in str(setting.unsupported) for setting in wide)


def test_an_unknown_site_key_is_named_with_the_nearest_one(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"site\.grid_engine\.que.*'queue'"):
        make_plan(tmp_path, ["site=grid_engine_example", "accelerator=cuda", "+site.grid_engine.que=x"])


QSTAT = """\
job-ID  prior   name       user         state submit/start at     queue                          slots ja-task-ID
-----------------------------------------------------------------------------------------------------------------
      1 0.50000 accelsweep root         r     11/23/2026 07:31:34 all.q@vm                           8
       Full jobname:     {first}
       Master Queue:     all.q@vm
       Requested PE:     smp 8
       Hard Resources:   h_rt=600 (0.000000)
                         gpu=1 (0.000000)
       Soft Resources:
      2 0.50000 accelsweep root         qw    11/23/2026 07:31:34                                    8
       Full jobname:     {second}
       Requested PE:     smp 8
      3 0.50000 other      root         qw    11/23/2026 07:31:34                                    8
       Full jobname:     other
      4 0.50000 accelsweep root         Eqw   11/23/2026 07:31:34                                    8
       Full jobname:     {third}
"""
"""As Grid Engine 8.1.9 writes it."""

BLOCKS = ("b000000000001", "b000000000002", "b000000000003")


def test_jobs_of_a_sweep_are_found_by_name(tmp_path: Path) -> None:
    first, second, third = (job_name("s", tmp_path, block) for block in BLOCKS)
    listing = QSTAT.format(first=first, second=second, third=third)
    jobs = read_jobs(listing, tmp_path, BLOCKS)
    assert [(job.number, job.block, job.state, job.nodes) for job in jobs] == [
        ("1", BLOCKS[0], "r", "all.q@vm"),
        ("2", BLOCKS[1], "qw", ""),
        ("4", BLOCKS[2], "Eqw", ""),
    ]
    assert [SCHEDULER.waits(job) for job in jobs] == [False, True, False]
    assert [job.number for job in read_jobs(listing, tmp_path, BLOCKS[:1])] == ["1"]
    assert read_jobs(listing, tmp_path / "elsewhere", BLOCKS) == []
    remedies = [[remedy.command for job in jobs if (remedy := SCHEDULER.remedy(job, tried))] for tried in (0, 2, 3)]
    assert remedies == [[("qmod", "-cj", "4")], [("qmod", "-cj", "4")], [("qdel", "4")]]


QACCT = """\
==============================================================
qname        all.q
jobnumber    6
slots        8
failed       {failed}
exit_status  {exit_status}
ru_wallclock {wallclock}s
maxvmem      {maxvmem}
category     -l gpu=1,h_rt=600,h_vmem=500M -pe smp 8
"""


def qacct(failed: str, exit_status: str, wallclock: int, maxvmem: str) -> str:
    return QACCT.format(failed=failed, exit_status=exit_status, wallclock=wallclock, maxvmem=maxvmem)


ENFORCED = "37  : qmaster enforced"


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        (
            qacct("100 : assumedly after job", "137  (Killed)", 5, "1.000GB"),
            "failed 100 : assumedly after job, exit_status 137",
        ),
        (qacct(ENFORCED, "137  (Killed)", 600, "1.000GB"), "reached its time limit, 600 s (failed 37 : qmaster"),
        (qacct(ENFORCED, "137  (Killed)", 5, "4.100GB"), "used more memory than its limit, 500M per slot"),
        (qacct(ENFORCED, "137  (Killed)", 5, "0.000B"), "Grid Engine: failed 37 : qmaster enforced, exit_status 137"),
    ],
)
def test_qacct_explains_how_a_job_ended(output: str, reason: str) -> None:
    account = read_qacct(output)
    assert not succeeded(account)
    line = log_line(account)
    assert line is not None
    assert reason in line
    assert SCHEDULER.own_messages(["something else", line]) == [line.removeprefix("Grid Engine: ")]
    assert bool(memory_lines([line])) == ("memory" in reason)


def test_the_last_account_of_a_job_number_counts() -> None:
    success = qacct("0    ", "0      ", 5, "1.000GB")
    failure = qacct("0    ", "1      ", 5, "1.000GB")
    assert succeeded(read_qacct(failure + success))
    assert not succeeded(read_qacct(success + failure))
    assert not succeeded(read_qacct(""))
    assert log_line(read_qacct(failure)) is None, "the job's own log says more"


PARAGRAPH = """\
    message: {message}For further error details see the cluster/cloud log and the log files of the involved rule(s).
    output: sweeps/tiny/blocks/b147b70c7b105.done.json
    shell:
        (command exited with non-zero exit code)
{job}"""


def test_snakemakes_log_distinguishes_a_refused_job_from_a_failed_one(tmp_path: Path) -> None:
    refused = "Error submitting jobscript (exit code 1):\nUnable to run job: error: no suitable queues\nExiting.\n"
    end = SCHEDULER.job_end(PARAGRAPH.format(message=refused, job=""), tmp_path)
    assert end is not None
    assert end.refusal == "no suitable queues\n"
    end = SCHEDULER.job_end(PARAGRAPH.format(message="", job="    external_jobid: 6\n"), tmp_path)
    assert end is not None
    assert (end.refusal, end.number, end.log) == (None, "6", tmp_path / "grid-engine-logs" / "6.log")
    assert SCHEDULER.job_end(PARAGRAPH.format(message="", job=""), tmp_path) is None


def test_a_process_knows_the_job_it_runs_in(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SLURM_JOB_ID", "SGE_TASK_ID", "JOB_ID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("JOB_ID", "7")
    assert this_job() is None, "JOB_ID alone is a common name"
    for name, value in {"SGE_TASK_ID": "undefined", "RESTARTED": "1", "SGE_STDOUT_PATH": "/logs/7.log"}.items():
        monkeypatch.setenv(name, value)
    job = this_job()
    assert job is not None
    assert (job.scheduler, job.number, job.restarts, job.log()) == ("Grid Engine", "7", 1, "/logs/7.log")
    assert job.across_nodes(2, 1, ("python3",)) is None


@pytest.mark.parametrize("extra", ["-N mine", "-l a=b -o /dev/null", "-hold_jid 7", "-terse no", "'an open quote"])
def test_an_option_that_we_set_ourselves_is_refused_in_a_plan(tmp_path: Path, extra: str) -> None:
    asked = ["site=grid_engine_example", "accelerator=cpu", "devices=1", f'++site.grid_engine.extra="{extra}"']
    with pytest.raises(InputError, match=r"site\.grid_engine\.extra=.*(must not contain -|not valid shell syntax)"):
        make_plan(tmp_path, asked)
    asked[-1] = "++site.grid_engine.extra='-l hostname=node1* -M me@there -m a'"
    make_plan(tmp_path, asked)


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The output of qstat and qacct about a job that has left the queue; a program without an entry fails."""
    outputs: dict[str, str] = {}

    def ask(program: str, *_arguments: str) -> str:
        if program not in outputs:
            raise AccelsweepError(f"{program} failed: Following jobs do not exist: 6")
        return outputs[program]

    monkeypatch.setattr(snakemake_commands, "ask", ask)
    return outputs


def test_a_jobs_status_needs_no_log_folder_and_leaves_no_file(answers: dict[str, str], tmp_path: Path) -> None:
    assert snakemake_commands.status("6", tmp_path) == "running", "its log may not be visible yet"
    os.utime(tmp_path / LOGS / "6.gone", (0, 0))
    assert snakemake_commands.status("6", tmp_path) == "failed"
    assert list((tmp_path / LOGS).iterdir()) == []
    answers["qacct"] = qacct("37  : qmaster", "137", 600, "0.000B")
    (tmp_path / LOGS).rmdir()
    assert snakemake_commands.status("6", tmp_path) == "failed"


def test_a_full_disk_does_not_stop_snakemake(answers: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / LOGS).write_text("no folder")
    assert snakemake_commands.status("6", tmp_path) == "running"
    answers["qacct"] = qacct("37  : qmaster", "137", 600, "0.000B")
    assert snakemake_commands.status("6", tmp_path) == "failed"


def test_snakemake_reads_on_stdout_that_there_is_no_qsub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert snakemake_commands.main(["submit", "sweep", "b1", "-l", "gpu=1", "job.sh"]) == 1
    assert "qsub" in capsys.readouterr().out
