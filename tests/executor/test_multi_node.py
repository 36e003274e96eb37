"""Runs on several nodes: lost ranks, late files, stacks, rendezvous, and the node agent.

srun is an ordinary process here; tests/slurm has the real one.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest
from polling import PATIENCE_SECONDS, until
from tiny_sweep import config_with

from accelsweep.executor.device_lease import NotEnoughDevices
from accelsweep.executor.launch import rendezvous
from accelsweep.executor.multi_node import NodeReport, RemoteRanks, check_multi_node, stacks_request
from accelsweep.executor.node_agent import main as node_agent
from accelsweep.executor.run_log import RunLog
from accelsweep.executor.stack_traces import print_stacks
from accelsweep.records.run_files import read_rank_result
from accelsweep.results import Outcome
from accelsweep.schedulers.protocol import INTERFACE_VARIABLE
from accelsweep.schedulers.slurm import SlurmJob
from accelsweep.worker.rank_setup import STACKS_SIGNAL


@pytest.fixture
def start(spec):
    """Start a Python program in place of srun, for two nodes of two ranks."""
    started = []

    def start_program(program: str, **changes) -> RemoteRanks:
        srun = subprocess.Popen([sys.executable, "-c", program])
        started.append(srun)
        return RemoteRanks(spec(num_nodes=2, devices=2), srun, **changes)

    yield start_program
    for srun in started:
        srun.kill()
        srun.wait()


def polled(ranks: RemoteRanks) -> RemoteRanks:
    deadline = time.monotonic() + 30
    while not ranks.all_ended:
        assert time.monotonic() < deadline
        ranks.poll()
        time.sleep(0.02)
    return ranks


def report(ranks: RemoteRanks, node: int, **exit_codes: int) -> None:
    ended = {int(rank.removeprefix("rank_")): status for rank, status in exit_codes.items()}
    NodeReport(node=node, host=f"gpu{node + 1}", exit_codes=ended, oom_kills=1).write(NodeReport.path(ranks.spec, node))


def test_the_ranks_of_a_node_that_never_reported_are_lost(start):
    ranks = start("raise SystemExit(9)")
    report(ranks, 0, rank_0=1, rank_1=0)
    assert polled(ranks).exit_codes == {0: 1, 1: 0, 2: None, 3: None}
    assert ranks.lost[3] == "node 1 which never reported; srun ended with exit code 9"


def test_a_node_that_went_silent_is_named(start):
    ranks = start("raise SystemExit(137)")
    report(ranks, 0, rank_0=0, rank_1=0)
    report(ranks, 1)
    assert polled(ranks).lost[2].startswith("node 1 on gpu2, which did not report how it ended")
    assert ranks.oom_kills == 2


def test_reports_of_nodes_are_read_before_srun_ends(start):
    ranks = start("import time; time.sleep(60)")
    report(ranks, 1, rank_2=-9)
    ranks.poll()
    assert ranks.exit_codes == {2: -9}
    assert not ranks.all_ended


def test_files_that_appear_late_on_a_shared_file_system_are_waited_for(start):
    ranks = start("pass", file_visible_seconds=PATIENCE_SECONDS)
    report(ranks, 0, rank_0=0, rank_1=0)
    late = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys, time, pathlib as p; time.sleep(1.5)\n"
            "for name in sys.argv[2:]: p.Path(sys.argv[1], name).touch()\n",
            ranks.spec.attempt_folder,
            "rank-0.json",
            "rank-1.json",
            "node-1.json",
        ]
    )
    began = time.monotonic()
    polled(ranks)
    assert late.wait(PATIENCE_SECONDS) == 0
    assert 1 < time.monotonic() - began < PATIENCE_SECONDS


def test_stop_signals_go_through_srun_and_sigkill_ends_its_step(start, tmp_path):
    handlers = "import signal, time, pathlib\nfor n in (10, 15): signal.signal(n, lambda n, _: exit(n))\n"
    for sent, received in ((signal.SIGTERM, signal.SIGUSR1), (signal.SIGKILL, signal.SIGTERM)):
        ready = tmp_path / f"ready-{received}"
        ranks = start(f"{handlers}pathlib.Path({str(ready)!r}).touch()\ntime.sleep(60)", file_visible_seconds=0.0)
        until(ready.exists)
        ranks.signal(sent)
        assert polled(ranks).srun.returncode == received


def test_stacks_are_requested_from_each_node_and_waited_for(start, tmp_path):
    ranks, waits = start("import time; time.sleep(60)"), []

    def wait(seconds):
        assert stacks_request(ranks.spec).exists()
        waits.append(seconds)
        if len(waits) < 3:
            NodeReport(node=len(waits) - 1, host="gpu", exit_codes={}, stacks=True).write(
                NodeReport.path(ranks.spec, len(waits) - 1)
            )

    with RunLog(tmp_path / "run.log", 1000) as log:
        assert ranks.dump_stacks(log, wait)
    assert len(waits) == 2


def test_stacks_are_not_waited_for_once_srun_has_ended(start, tmp_path):
    ranks = start("")
    ranks.srun.wait()
    with RunLog(tmp_path / "run.log", 1000) as log:
        assert not ranks.dump_stacks(log, time.sleep)


def test_a_node_prints_the_stacks_of_its_own_ranks(capfd):
    program = f"import faulthandler, time; faulthandler.register({STACKS_SIGNAL:d}, file=2)\nprint(); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-uc", program], stdout=subprocess.PIPE) as rank:
        assert rank.stdout is not None
        rank.stdout.readline()
        print_stacks({5: rank.pid})
        rank.kill()
    output = capfd.readouterr().err
    assert f"accelsweep: stacks of rank 5, process {rank.pid}" in output
    assert 'File "<string>", line 2 in <module>' in output


def test_several_nodes_need_a_slurm_job(monkeypatch):
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    monkeypatch.delenv("JOB_ID", raising=False)
    with pytest.raises(NotEnoughDevices, match="not in a Slurm job"):
        check_multi_node(config_with(num_nodes=2))


def test_a_container_that_does_not_pass_on_variables_is_an_error(monkeypatch, spec, capfd):
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    check_multi_node(config_with(num_nodes=2))
    with pytest.raises(NotEnoughDevices, match=r"site\.slurm\.container must pass the job's variables on"):
        check_multi_node(config_with(num_nodes=2), container="podman run image")
    monkeypatch.delenv("SLURM_NODEID", raising=False)
    made = spec(num_nodes=2)
    made.write()
    assert node_agent([str(made.file())]) == 1
    assert "SLURM_NODEID, which srun sets, is not set here" in capfd.readouterr().err


def test_the_options_of_a_container_that_srun_itself_starts_are_merged_with_ours():
    """As pyxis does. A nested srun would number the nodes anew."""
    job = SlurmJob("7", 0)
    plain = job.across_nodes(2, 4, ("apptainer", "exec", "image.sif", "python3"))
    assert plain[:3] == ("srun", "--nodes=2", "--ntasks=2")
    assert plain[-4:] == ("apptainer", "exec", "image.sif", "python3")
    pyxis = job.across_nodes(2, 4, ("srun", "--overlap", "--nodes=1", "--container-image=image", "python3"))
    assert pyxis == ("srun", "--nodes=1", "--container-image=image", *plain[1:-4], "python3"), "the last option wins"


def test_ranks_of_several_nodes_rendezvous_on_the_first_by_its_name(spec, monkeypatch):
    monkeypatch.setenv("SLURMD_NODENAME", "gpu1")
    monkeypatch.setenv(INTERFACE_VARIABLE, "ib0")
    variables = rendezvous(spec(num_nodes=2, devices=3))
    assert (variables["MASTER_ADDR"], variables["WORLD_SIZE"], variables["LOCAL_WORLD_SIZE"]) == ("gpu1", "6", "3")
    assert (variables["GLOO_SOCKET_IFNAME"], variables["NCCL_SOCKET_IFNAME"]) == ("ib0", "ib0")


def test_a_node_creates_the_scratch_folder_that_the_job_created_on_the_first_node_only(spec, tmp_path):
    """The run itself fails at once: this node has fewer devices than it asks for."""
    made = spec(num_nodes=2, devices=1000, accelerator="cuda")
    made.write()
    scratch = tmp_path / "local" / "scratch"
    node = {"SLURM_NODEID": "1", "LOCAL_WORLD_SIZE": "1", "TMPDIR": str(scratch)}
    command = [sys.executable, "-m", "accelsweep.executor.node_agent", str(made.file())]
    leases = {"ACCELSWEEP_LEASES": str(tmp_path / "leases")}
    done = subprocess.run(command, env={**os.environ, **node, **leases}, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    result = read_rank_result(made.rank_result(1))
    assert result.outcome is Outcome.crashed, "a fault of the node, which lacks devices of the inventory: to be retried"
    assert "fewer than its site's inventory lists" in (result.reason or "")
    assert scratch.is_dir()
    own = {"ACCELSWEEP_SCRATCH": str(scratch)}
    subprocess.run(command, env={**os.environ, **node, **leases, **own}, check=True, capture_output=True)
    assert not scratch.exists(), "it belongs to the job"


def test_a_node_runs_its_ranks_with_the_interpreter_that_the_executor_names(spec, tmp_path):
    made = spec(num_nodes=2)
    made.write()
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\necho "rank $RANK: $@" >&2\nexit 7\n')
    python.chmod(0o755)
    node = {"SLURM_NODEID": "1", "LOCAL_WORLD_SIZE": "1", "ACCELSWEEP_LEASES": str(tmp_path / "leases")}
    command = [sys.executable, "-m", "accelsweep.executor.node_agent", str(made.file()), "--python", str(python)]
    done = subprocess.run(command, env={**os.environ, **node}, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "rank 1: -c import sys" in done.stderr
    assert NodeReport.read(NodeReport.path(made, 1)).exit_codes == {1: 7}
