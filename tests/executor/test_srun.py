"""An executor in a container has srun started by the proxy.

The container and srun are ordinary processes here; tests/slurm has real ones.
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
from polling import PATIENCE_SECONDS, until
from tiny_sweep import config_with

from accelsweep.executor.device_lease import NotEnoughDevices
from accelsweep.executor.multi_node import check_multi_node
from accelsweep.ipc import SRUN_PROXY_VARIABLE

SRUN = """\
#!/bin/sh
# a fake srun: runs the command behind its options once
echo "$@" >> srun.log
while [ "${1#--}" != "$1" ]; do shift; done
exec "$@"
"""

INSIDE = """\
import os, signal, sys, time
from pathlib import Path
from accelsweep.executor.srun import ProxiedSrun, SrunRequest

if sys.argv[1] == "-P":  # the executor; ranks have another program
    signal.signal(signal.SIGUSR1, lambda *_: print("asked to stop", flush=True))
    if Path("blocks-signals").exists() and os.fork():  # then this process is the container
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))
    request = SrunRequest(nodes=2, cpus=3, arguments=("rank",), environment={"MASTER_PORT": "29500"})
    srun = ProxiedSrun(request, 1)
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
    """Start the proxy, with an executor that requests one srun and exits with its code plus one."""
    (tmp_path / "srun").write_text(SRUN)
    (tmp_path / "srun").chmod(0o755)
    started: list[subprocess.Popen[str]] = []

    def start_proxy() -> subprocess.Popen[str]:
        proxy = (sys.executable, "-m", "accelsweep.executor.srun")
        container = (sys.executable, "-c", INSIDE)
        command = [*proxy, *container, "-P", "-m", "accelsweep.executor", "b"]
        job = {"SLURM_JOB_ID": "7", "PATH": f"{tmp_path}:{os.environ['PATH']}"}
        merged = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        started.append(subprocess.Popen(command, cwd=tmp_path, env={**os.environ, **job}, **merged))
        return started[-1]

    yield start_proxy
    for proxy in started:
        proxy.kill()
        proxy.wait()


def test_ranks_are_started_in_containers_of_their_own_and_their_exit_code_reaches_the_executor(start, tmp_path):
    output, _ = start().communicate(timeout=PATIENCE_SECONDS)
    assert output == "a rank with port 29500 in job 7\nsrun ended with 3\n"
    before, after = (tmp_path / "srun.log").read_text().split(INSIDE)
    assert before.startswith("--nodes=2 --ntasks=2 --ntasks-per-node=1 --cpus-per-task=3 ")
    assert before.endswith(f" {sys.executable} -c ")
    assert after == " rank\n"


def test_a_stop_signal_goes_to_the_executor_and_from_there_to_srun(start, tmp_path):
    (tmp_path / "lasting").touch()
    proxy = start()
    until((tmp_path / "rank").exists)
    proxy.terminate()
    output, _ = proxy.communicate(timeout=PATIENCE_SECONDS)
    assert "srun ended with 5" in output
    assert proxy.returncode == 6


def test_an_executor_whose_container_blocks_signals_gets_them_with_the_end_of_its_ranks(start, tmp_path):
    """Slurm signals all ranks and the proxy; podman, whose helper is signalled too, passes nothing on."""
    (tmp_path / "lasting").touch()
    (tmp_path / "blocks-signals").touch()
    proxy = start()
    until((tmp_path / "rank").exists)
    until((tmp_path / "rank").read_text)
    rank = int((tmp_path / "rank").read_text())
    proxy.send_signal(signal.SIGUSR1)
    os.kill(rank, signal.SIGUSR1)
    output, _ = proxy.communicate(timeout=PATIENCE_SECONDS)
    assert "asked to stop\nsrun ended with 5" in output


def test_srun_ends_with_the_executor_that_requested_it(start, tmp_path):
    (tmp_path / "lasting").touch()
    proxy = start()
    until((tmp_path / "rank").exists)
    until((tmp_path / "rank").read_text)
    rank = psutil.Process(int((tmp_path / "rank").read_text()))
    (inside,) = (child for child in psutil.Process(proxy.pid).children() if child.pid != rank.pid)
    inside.kill()
    assert proxy.wait(PATIENCE_SECONDS) == 128 + signal.SIGKILL
    assert not rank.is_running()


def test_a_container_that_cannot_be_started_is_a_one_line_error(tmp_path):
    proxy = [sys.executable, "-m", "accelsweep.executor.srun", str(tmp_path / "apptainer"), "python3"]
    ended = subprocess.run(
        [*proxy, "-P", "-m", "accelsweep.executor", "b"], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 1
    assert ended.stderr == f"error: [Errno 2] No such file or directory: '{tmp_path}/apptainer'\n"


def test_a_missing_proxy_is_an_error_with_the_key_that_fixes_it(monkeypatch):
    monkeypatch.setenv(SRUN_PROXY_VARIABLE, "nobody")
    with pytest.raises(NotEnoughDevices, match=r"site\.slurm\.container must share the host's network with it"):
        check_multi_node(config_with(num_nodes=2), container="podman run image")
