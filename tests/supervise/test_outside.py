"""A supervisor in a container has srun started outside it, over a socket.

Ordinary processes stand for the container and for srun here; tests/slurm has a real one of each.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from patience import PATIENCE_SECONDS, until
from tiny_sweep import config_with

from accelsweep.executor.device_lease import NotEnoughDevices
from accelsweep.executor.ipc import OUTSIDE_VARIABLE
from accelsweep.executor.multi_node import check_job

SRUN = """\
#!/bin/sh
# stands for srun: starts what comes behind its options, once
echo "$@" >> srun.log
while [ "${1#--}" != "$1" ]; do shift; done
exec "$@"
"""

INSIDE = """\
import os, signal, sys, time
from pathlib import Path
from accelsweep.executor.srun import SrunOutside, SrunWish

if sys.argv[1] == "-P":  # the supervisor; the ranks have another program
    signal.signal(signal.SIGUSR1, lambda *_: print("asked to stop", flush=True))
    if Path("deaf").exists() and os.fork():  # then this process is the container, and hands no signal on
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))
    rank = SrunWish(nodes=2, cpus=3, program=("rank",), environment={"MASTER_PORT": "29500"})
    srun = SrunOutside(rank, 1)
    signal.signal(signal.SIGTERM, lambda *_: srun.send_signal(signal.SIGUSR1))
    while srun.poll() is None:
        time.sleep(0.02)
    print("srun ended with", srun.returncode, flush=True)
    sys.exit(srun.returncode + 1)
print("a rank with port", os.environ["MASTER_PORT"], "in job", os.environ["SLURM_JOB_ID"], flush=True)
signal.signal(signal.SIGUSR1, lambda *_: sys.exit(5))
Path("rank").write_text(str(os.getpid()))
time.sleep(60 if Path("lasting").exists() else 0)
sys.exit(3)
"""

Start = Callable[[], subprocess.Popen[str]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start the process outside, with a supervisor that has one srun started and ends one code above it."""
    (tmp_path / "srun").write_text(SRUN)
    (tmp_path / "srun").chmod(0o755)
    started: list[subprocess.Popen[str]] = []

    def go() -> subprocess.Popen[str]:
        outside = (sys.executable, "-m", "accelsweep.executor.srun")
        container = (sys.executable, "-c", INSIDE)
        command = [*outside, *container, "-P", "-m", "accelsweep.executor", "b"]
        job = {"SLURM_JOB_ID": "7", "PATH": f"{tmp_path}:{os.environ['PATH']}"}
        merged = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        started.append(subprocess.Popen(command, cwd=tmp_path, env={**os.environ, **job}, **merged))
        return started[-1]

    yield go
    for outside in started:
        outside.kill()
        outside.wait()


def test_ranks_are_started_outside_in_the_same_container_and_their_end_is_told_inside(start, tmp_path):
    output, _ = start().communicate(timeout=PATIENCE_SECONDS)
    assert output == "a rank with port 29500 in job 7\nsrun ended with 3\n"
    before, after = (tmp_path / "srun.log").read_text().split(INSIDE)
    assert before.startswith("--nodes=2 --ntasks=2 --ntasks-per-node=1 --cpus-per-task=3 ")
    assert before.endswith(f" {sys.executable} -c ")
    assert after == " rank\n"


def test_a_wish_to_stop_goes_to_the_supervisor_and_from_there_to_srun(start, tmp_path):
    (tmp_path / "lasting").touch()
    outside = start()
    until((tmp_path / "rank").exists)
    outside.terminate()
    output, _ = outside.communicate(timeout=PATIENCE_SECONDS)
    assert "srun ended with 5" in output
    assert outside.returncode == 6


def test_a_supervisor_whose_container_hands_no_signal_on_hears_of_it_with_the_end_of_its_ranks(start, tmp_path):
    """Slurm ends all ranks and asks the process outside; podman, whose helper Slurm ends too, hands nothing on."""
    (tmp_path / "lasting").touch()
    (tmp_path / "deaf").touch()
    outside = start()
    until((tmp_path / "rank").exists)
    until((tmp_path / "rank").read_text)
    rank = int((tmp_path / "rank").read_text())
    outside.send_signal(signal.SIGUSR1)
    os.kill(rank, signal.SIGUSR1)
    output, _ = outside.communicate(timeout=PATIENCE_SECONDS)
    assert "asked to stop\nsrun ended with 5" in output


def test_srun_ends_with_the_supervisor_that_asked_for_it(start, tmp_path):
    (tmp_path / "lasting").touch()
    outside = start()
    until((tmp_path / "rank").exists)
    until((tmp_path / "rank").read_text)
    rank = psutil.Process(int((tmp_path / "rank").read_text()))
    (inside,) = (child for child in psutil.Process(outside.pid).children() if child.pid != rank.pid)
    inside.kill()
    assert outside.wait(PATIENCE_SECONDS) == 128 + signal.SIGKILL
    assert not rank.is_running()


def test_a_container_that_cannot_be_started_is_one_line(tmp_path):
    outside = [sys.executable, "-m", "accelsweep.executor.srun", str(tmp_path / "apptainer"), "python3"]
    ended = subprocess.run(
        [*outside, "-P", "-m", "accelsweep.executor", "b"], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 1
    assert ended.stderr == f"error: [Errno 2] No such file or directory: '{tmp_path}/apptainer'\n"


def test_nobody_outside_is_told_with_the_key_that_mends_it(monkeypatch):
    monkeypatch.setenv(OUTSIDE_VARIABLE, "nobody")
    with pytest.raises(NotEnoughDevices, match=r"site\.slurm\.container has to leave the host's network to it"):
        check_job(config_with(num_nodes=2), container="podman run image")
