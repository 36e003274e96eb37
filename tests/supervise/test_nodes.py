"""A run on several nodes, seen from the first: who is lost, what is waited for, how ranks find each other.

An ordinary process stands for srun here; tests/slurm has the real thing.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest
from patience import PATIENCE_SECONDS, until
from tiny_sweep import config_with

from accelsweep.executor.device_lease import NotEnoughDevices
from accelsweep.executor.launch import rendezvous
from accelsweep.executor.multi_node import NodeReport, RanksAcrossNodes, check_job, report_file, stacks_mark
from accelsweep.executor.multi_node import main as node_main
from accelsweep.executor.processes import RunLog, print_stacks
from accelsweep.records.run_record import Outcome
from accelsweep.schedulers.protocol import INTERFACE_VARIABLE
from accelsweep.schedulers.slurm import SlurmJob
from accelsweep.worker.rank_setup import STACKS_SIGNAL
from accelsweep.worker.run_spec import RankResult


@pytest.fixture
def start(spec):
    """Start a Python program in srun's place, for two nodes of two ranks."""
    started = []

    def go(program: str, **changes) -> RanksAcrossNodes:
        srun = subprocess.Popen([sys.executable, "-c", program])
        started.append(srun)
        return RanksAcrossNodes(spec(num_nodes=2, devices=2), srun, **changes)

    yield go
    for srun in started:
        srun.kill()
        srun.wait()


def looked(ranks: RanksAcrossNodes) -> RanksAcrossNodes:
    deadline = time.monotonic() + 30
    while not ranks.gone:
        assert time.monotonic() < deadline
        ranks.look()
        time.sleep(0.02)
    return ranks


def report(ranks: RanksAcrossNodes, node: int, **statuses: int) -> None:
    ended = {int(rank.removeprefix("rank_")): status for rank, status in statuses.items()}
    NodeReport(node=node, host=f"gpu{node + 1}", statuses=ended, oom_kills=1).write(report_file(ranks.spec, node))


def test_a_node_that_never_reported_has_lost_its_ranks(start):
    ranks = start("raise SystemExit(9)")
    report(ranks, 0, rank_0=1, rank_1=0)
    assert looked(ranks).statuses == {0: 1, 1: 0, 2: None, 3: None}
    assert ranks.lost[3] == "node 1 which gave no sign of life; srun ended with exit code 9"


def test_a_node_that_fell_silent_is_named(start):
    ranks = start("raise SystemExit(137)")
    report(ranks, 0, rank_0=0, rank_1=0)
    report(ranks, 1)
    assert looked(ranks).lost[2].startswith("node 1 on gpu2, which did not say how it ended")
    assert ranks.oom_kills == 2


def test_what_the_nodes_report_is_known_before_srun_ends(start):
    ranks = start("import time; time.sleep(60)")
    report(ranks, 1, rank_2=-9)
    ranks.look()
    assert ranks.statuses == {2: -9}
    assert not ranks.gone


def test_files_that_a_shared_file_system_shows_late_are_waited_for(start):
    ranks = start("pass", visible_seconds=PATIENCE_SECONDS)
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
    looked(ranks)
    assert late.wait(PATIENCE_SECONDS) == 0
    assert 1 < time.monotonic() - began < PATIENCE_SECONDS


def test_a_wish_to_stop_goes_through_srun_and_force_ends_its_step(start, tmp_path):
    said = "import signal, time, pathlib\nfor n in (10, 15): signal.signal(n, lambda n, _: exit(n))\n"
    for wish, heard in ((signal.SIGTERM, signal.SIGUSR1), (signal.SIGKILL, signal.SIGTERM)):
        heeds = tmp_path / f"heeds-{heard}"
        ranks = start(f"{said}pathlib.Path({str(heeds)!r}).touch()\ntime.sleep(60)", visible_seconds=0.0)
        until(heeds.exists)
        ranks.signal(wish)
        assert looked(ranks).srun.returncode == heard


def test_each_node_is_asked_for_stacks_and_waited_for(start, tmp_path):
    ranks, waits = start("import time; time.sleep(60)"), []

    def wait(seconds):
        assert stacks_mark(ranks.spec).exists()
        waits.append(seconds)
        if len(waits) < 3:
            NodeReport(node=len(waits) - 1, host="gpu", statuses={}, stacks=True).write(
                report_file(ranks.spec, len(waits) - 1)
            )

    with RunLog(tmp_path / "run.log", 1000) as log:
        assert ranks.write_stacks(log, wait)
    assert len(waits) == 2


def test_where_srun_has_ended_nobody_is_waited_for(start, tmp_path):
    ranks = start("")
    ranks.srun.wait()
    with RunLog(tmp_path / "run.log", 1000) as log:
        assert not ranks.write_stacks(log, time.sleep)


def test_a_node_that_is_asked_prints_the_stacks_of_its_own_ranks(capfd):
    program = f"import faulthandler, time; faulthandler.register({STACKS_SIGNAL:d}, file=2)\nprint(); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-uc", program], stdout=subprocess.PIPE) as rank:
        assert rank.stdout is not None
        rank.stdout.readline()
        print_stacks({5: rank.pid})
        rank.kill()
    said = capfd.readouterr().err
    assert f"accelsweep: stacks of rank 5, process {rank.pid}" in said
    assert 'File "<string>", line 2 in <module>' in said


def test_several_nodes_need_a_job(monkeypatch):
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    monkeypatch.delenv("JOB_ID", raising=False)
    with pytest.raises(NotEnoughDevices, match="not in a Slurm job"):
        check_job(config_with(num_nodes=2))


def test_a_container_that_hands_no_variables_on_is_told_so(monkeypatch, spec, capfd):
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    check_job(config_with(num_nodes=2))
    with pytest.raises(NotEnoughDevices, match=r"site\.slurm\.container has to hand the job's variables on"):
        check_job(config_with(num_nodes=2), container="podman run image")
    monkeypatch.delenv("SLURM_NODEID", raising=False)
    made = spec(num_nodes=2)
    made.write(made.file())
    assert node_main([str(made.file())]) == 1
    assert "SLURM_NODEID, which srun sets, is not set here" in capfd.readouterr().err


def test_a_container_that_srun_itself_starts_has_its_options_among_ours():
    """As pyxis does. An srun in each process of another would number the nodes anew."""
    job = SlurmJob("7", 0)
    plain = job.across_nodes(2, 4, ("apptainer", "exec", "image.sif", "python3"))
    assert plain[:3] == ("srun", "--nodes=2", "--ntasks=2")
    assert plain[-4:] == ("apptainer", "exec", "image.sif", "python3")
    pyxis = job.across_nodes(2, 4, ("srun", "--overlap", "--nodes=1", "--container-image=image", "python3"))
    assert pyxis == ("srun", "--nodes=1", "--container-image=image", *plain[1:-4], "python3"), "the last one counts"


def test_ranks_of_several_nodes_meet_on_the_first_by_its_name(spec, monkeypatch):
    monkeypatch.setenv("SLURMD_NODENAME", "gpu1")
    monkeypatch.setenv(INTERFACE_VARIABLE, "ib0")
    found = rendezvous(spec(num_nodes=2, devices=3))
    assert (found["MASTER_ADDR"], found["WORLD_SIZE"], found["LOCAL_WORLD_SIZE"]) == ("gpu1", "6", "3")
    assert (found["GLOO_SOCKET_IFNAME"], found["NCCL_SOCKET_IFNAME"]) == ("ib0", "ib0")


def test_a_node_makes_the_scratch_folder_that_the_job_made_on_the_first_node_only(spec, tmp_path):
    """The run itself is refused at once: this node has fewer devices than it asks for."""
    made = spec(num_nodes=2, devices=1000, accelerator="cuda")
    made.write(made.file())
    scratch = tmp_path / "local" / "scratch"
    node = {"SLURM_NODEID": "1", "LOCAL_WORLD_SIZE": "1", "TMPDIR": str(scratch)}
    command = [sys.executable, "-m", "accelsweep.executor.multi_node", str(made.file())]
    leases = {"ACCELSWEEP_LEASES": str(tmp_path / "leases")}
    done = subprocess.run(command, env={**os.environ, **node, **leases}, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    refused = RankResult.read(made.rank_result(1))
    assert refused.outcome is Outcome.crashed, "the inventory promised them: a fault of the node, to be tried again"
    assert "fewer than its site's inventory states" in (refused.reason or "")
    assert scratch.is_dir()
    own = {"ACCELSWEEP_SCRATCH": str(scratch)}
    subprocess.run(command, env={**os.environ, **node, **leases, **own}, check=True, capture_output=True)
    assert not scratch.exists(), "it is the job's own"
