"""An executor forked by the fork server behaves as the job's own process would."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import psutil
import pytest
from polling import PATIENCE_SECONDS, until
from shared_fork_server import beside_the_server
from tiny_sweep import CONFIG, plan_sweep

from accelsweep import ipc
from accelsweep.files import LEASE_FOLDER_VARIABLE
from accelsweep.fork_client import differences, process_state
from accelsweep.ipc import FORK_SERVER_VARIABLE, address
from accelsweep.records.file_lock import live_lock
from accelsweep.records.layout import SweepFolder
from accelsweep.records.run_record import Record
from accelsweep.results import Outcome

ENDLESS = {
    "model": {"_target_": "mine.Slow"},
    "measure": {**CONFIG["measure"], "min_steps": 100_000, "max_steps": 100_000, "min_seconds": 0.0},
}
SLOW = """\
import time
from accelsweep.workloads.image_models import SmallCNN

class Slow(SmallCNN):
    def training_step(self, batch, batch_index):
        time.sleep(0.01)
        return super().training_step(batch, batch_index)
"""

PRINTS_FOLDER = """\
import tempfile
from accelsweep.workloads.image_models import SmallCNN

class PrintsFolder(SmallCNN):
    def __init__(self, *arguments, **options):
        print("its files lie in", tempfile.gettempdir())
        super().__init__(*arguments, **options)
"""


class Job:
    """`python -m accelsweep.executor ARGUMENTS`, as Snakemake starts it next to a fork server."""

    def __init__(self, home: Path, *arguments: object, server: str | None = None, **variables: str) -> None:
        home.mkdir(exist_ok=True)
        variables |= beside_the_server() | ({} if server is None else {FORK_SERVER_VARIABLE: server})
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "accelsweep.executor", *map(str, arguments)],
            cwd=home,
            env={**os.environ, LEASE_FOLDER_VARIABLE: str(home / "leases"), **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def end(self) -> tuple[int, str]:
        """Wait for the end; return the exit code and the output."""
        output, _ = self.process.communicate(timeout=PATIENCE_SECONDS)
        return self.process.returncode, output


@pytest.fixture
def running(tmp_path: Path) -> Iterator[tuple[Job, SweepFolder, psutil.Process]]:
    """A job, its sweep, and the executor that was forked for it, which measures a run without end."""
    home = tmp_path / "home"
    folder, block = plan_sweep(home, [ENDLESS])
    (home / "mine.py").write_text(SLOW)
    job = Job(home, block)
    until(lambda: job.process.poll() is not None or list(folder.root.glob("runs/*/attempts/1/progress*")))
    assert job.process.poll() is None, job.end()
    lock = live_lock(folder.lock(block.stem))
    assert lock is not None
    assert lock.pid != job.process.pid
    yield job, folder, psutil.Process(lock.pid)
    job.process.kill()
    job.process.communicate()


@pytest.mark.real
def test_a_forked_executor_measures_with_the_users_modules_and_returns_its_exit_code(tmp_path: Path) -> None:
    home = tmp_path / "home"
    folder, block = plan_sweep(home, [{"model": {"_target_": "mine.Slow"}}])
    (home / "mine.py").write_text(SLOW)
    code, output = Job(home, block).end()
    assert (code, "imports torch itself" in output) == (0, False), output
    (record,) = [Record.read(path) for path in folder.root.glob("runs/*/record.json")]
    assert (record.outcome, record.reason) == (Outcome.measured, None)
    assert record.effective is not None
    assert record.effective.launcher == "fork"


@pytest.mark.real
def test_a_forked_executor_uses_the_jobs_temporary_folder(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    home = tmp_path / "home"
    folder, block = plan_sweep(home, [{"model": {"_target_": "mine.PrintsFolder"}}])
    (home / "mine.py").write_text(PRINTS_FOLDER)
    own = tempfile.mkdtemp(dir="/tmp")  # sockets need a shorter path than a test's own folder has
    request.addfinalizer(partial(shutil.rmtree, own))
    code, output = Job(home, block, TMPDIR=own).end()
    assert (code, "imports torch itself" in output) == (0, False), output
    (log,) = folder.root.glob("runs/*/run.log")
    assert f"its files lie in {own}" in log.read_text()


@pytest.mark.real
def test_data_is_prepared_in_a_fork_too(tmp_path: Path) -> None:
    home = tmp_path / "home"
    plan_sweep(home, [{"model": {"_target_": "mine.Slow"}}])
    (home / "mine.py").write_text(SLOW)
    assert Job(home, "--prepare", "sweeps/tiny").end() == (0, "1 data modules are ready\n")


@pytest.mark.real
def test_wrong_input_is_reported_on_the_jobs_streams_with_its_exit_code(tmp_path: Path) -> None:
    code, output = Job(tmp_path, "sweeps/none/blocks/b.json").end()
    assert code == 2
    assert "sweeps/none/blocks/b.json" in output
    code, output = Job(tmp_path, "--wrong").end()
    assert code == 2
    assert "usage: python -m accelsweep.executor" in output


@pytest.mark.real
def test_a_signal_to_the_job_is_forwarded_to_its_executor(
    running: tuple[Job, SweepFolder, psutil.Process],
) -> None:
    job, folder, executor = running
    job.process.send_signal(signal.SIGINT)
    code, output = job.end()
    assert code == 128 + signal.SIGINT, output
    assert "SIGINT" in output
    until(lambda: not executor.is_running())  # it exits after it has sent its code
    assert not list(folder.locks())


@pytest.mark.real
def test_an_executor_shuts_down_cleanly_when_its_job_is_killed(
    running: tuple[Job, SweepFolder, psutil.Process],
) -> None:
    job, folder, executor = running
    ranks = executor.children()
    job.process.kill()
    until(lambda: not executor.is_running())
    assert not [rank for rank in ranks if rank.is_running()]
    assert not list(folder.locks())


@pytest.mark.real
def test_a_job_reports_that_its_executor_was_killed(running: tuple[Job, SweepFolder, psutil.Process]) -> None:
    job, _, executor = running
    executor.kill()
    code, output = job.end()
    assert code == 1
    assert f"the executor, process {executor.pid}, was killed" in output


@pytest.mark.real
@pytest.mark.parametrize("variable", ["LD_LIBRARY_PATH", "MKL_NUM_THREADS", "CUDA_VISIBLE_DEVICES"])
def test_a_job_with_another_process_environment_runs_by_itself_and_says_why(tmp_path: Path, variable: str) -> None:
    code, output = Job(tmp_path, "--wrong", **{variable: "7"}).end()
    assert code == 2
    assert f"the fork server has a different process environment: variable {variable}\n" in output


@pytest.mark.real
def test_an_invalid_request_does_not_end_the_server(tmp_path: Path) -> None:
    name = beside_the_server()[FORK_SERVER_VARIABLE]
    for request in (b"", b"no JSON\n", b"{}\n", b"[1]\n"):
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(address(name))
            ipc.send_descriptors(client)
            client.sendall(request)
            client.shutdown(socket.SHUT_WR)
            assert ipc.receive(client) is None, request
    code, output = Job(tmp_path, "--wrong").end()
    assert (code, "imports torch itself" in output) == (2, False), output


@pytest.mark.real
def test_a_job_without_its_server_runs_by_itself(tmp_path: Path) -> None:
    assert Job(tmp_path, "--wrong", server="accelsweep-nobody").end()[0] == 2


@pytest.mark.real
def test_a_job_whose_server_dies_before_it_replies_runs_by_itself(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address("accelsweep-dying"))
        listener.listen()
        job = Job(tmp_path, "--wrong", server="accelsweep-dying")
        listener.accept()[0].close()
        assert job.end()[0] == 2


def test_the_process_state_covers_what_a_fork_inherits(monkeypatch: pytest.MonkeyPatch) -> None:
    before = process_state()
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.setenv("ACCELSWEEP_SOMETHING", "read by no library")
    umask = os.umask(0o077)
    try:
        assert differences(before, process_state()) == ["umask", "variable OMP_NUM_THREADS"]
    finally:
        os.umask(umask)


def test_only_processes_of_the_same_user_are_served(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, _theirs = socket.socketpair()
    assert ipc.same_user(ours)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert not ipc.same_user(ours)


def test_two_messages_in_one_packet_are_received_one_by_one() -> None:
    """An executor that ends at once sends its exit code right after its process id."""
    ours, theirs = socket.socketpair(socket.AF_UNIX)
    with ours, theirs:
        ipc.send(theirs, {"pid": 7})
        ipc.send(theirs, {"code": 2})
        assert [ipc.receive(ours), ipc.receive(ours)] == [{"pid": 7}, {"code": 2}]


def test_a_message_in_many_pieces_arrives_whole_and_a_truncated_one_is_none() -> None:
    ours, theirs = socket.socketpair()
    long = {"arguments": ["x" * 1_000_000]}
    sender = threading.Thread(target=ipc.send, args=(theirs, long))
    sender.start()
    assert ipc.receive(ours) == long
    sender.join()
    theirs.sendall(b'{"pid": 1')
    theirs.close()
    assert ipc.receive(ours) is None
