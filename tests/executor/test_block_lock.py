"""The lock on a block: a living holder is waited for, a dead one is replaced, on this host and on others."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from pathlib import Path

import psutil
import pytest

from accelsweep.errors import AccelsweepError
from accelsweep.executor import block_lock as module
from accelsweep.executor.block_lock import block_lock
from accelsweep.files import LEASE_FOLDER_VARIABLE
from accelsweep.ipc import Interrupted
from accelsweep.records.file_lock import STALE_AFTER_SECONDS, owner_is_alive, read_lock
from accelsweep.records.layout import SweepFolder
from accelsweep.records.plan import LockOwner


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SweepFolder:
    monkeypatch.setenv(LEASE_FOLDER_VARIABLE, str(tmp_path / "leases"))
    for name in ("SLURM_JOB_ID", "SLURM_RESTART_COUNT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(module, "_POLL_SECONDS", 0.01)
    folder = SweepFolder(tmp_path, "x")
    folder.lock("b").parent.mkdir(parents=True)
    return folder


def write_lock(
    folder: SweepFolder, pid: int, *, host: str | None = None, started: float | None = None, **more: object
) -> None:
    LockOwner.model_validate(
        {
            "block": "b",
            "host": host or socket.gethostname(),
            "pid": pid,
            "process_started": psutil.Process(pid).create_time() if started is None else started,
            "since": "2026-01-05T09:00:00+00:00",
            **more,
        }
    ).write(folder.lock("b"))


def quiet(_line: str) -> None:
    """Ignore the line."""


def test_a_lock_names_its_holder_and_the_current_run_and_is_removed_at_the_end(folder: SweepFolder) -> None:
    with block_lock(folder, "b", lambda _seconds: True, quiet) as holder:
        holder.set_run("run-1", "now")
        lock = LockOwner.read(folder.lock("b"))
        assert (lock.pid, lock.host, lock.run) == (os.getpid(), socket.gethostname(), "run-1")
        assert owner_is_alive(lock)
    assert read_lock(folder.lock("b")) is None


def test_a_living_holder_on_this_host_is_waited_for(folder: SweepFolder) -> None:
    write_lock(folder, os.getppid())
    with pytest.raises(Interrupted), block_lock(folder, "b", lambda _seconds: True, quiet):
        pass
    assert LockOwner.read(folder.lock("b")).pid == os.getppid()


def test_a_holder_whose_process_id_was_reused_is_dead(folder: SweepFolder) -> None:
    write_lock(folder, os.getppid(), started=1.0)
    with block_lock(folder, "b", lambda _seconds: True, quiet):
        assert LockOwner.read(folder.lock("b")).pid == os.getpid()


def test_a_zombie_holder_is_dead(folder: SweepFolder) -> None:
    process = subprocess.Popen(["sleep", "1000"])
    write_lock(folder, process.pid)
    process.kill()
    deadline = time.monotonic() + 10
    while psutil.Process(process.pid).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline
    with block_lock(folder, "b", lambda _seconds: True, quiet):
        pass
    process.wait()


def test_a_lock_of_another_host_is_waited_for_while_it_is_renewed_and_taken_over_when_it_expires(
    folder: SweepFolder,
) -> None:
    write_lock(folder, 1, host="elsewhere", started=1.0)
    renewed = []

    def renew_for_a_while(_seconds: float) -> bool:
        renewed.append(time.time() - (STALE_AFTER_SECONDS - 20 if len(renewed) < 50 else STALE_AFTER_SECONDS + 5))
        os.utime(folder.lock("b"), (renewed[-1], renewed[-1]))
        return False

    with block_lock(folder, "b", renew_for_a_while, quiet):
        assert len(renewed) == 51
        assert LockOwner.read(folder.lock("b")).host == socket.gethostname()


def test_a_requeued_job_takes_over_its_own_lock(folder: SweepFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    write_lock(folder, 1, host="elsewhere", started=1.0, job="42", restarts=0)
    monkeypatch.setenv("SLURM_JOB_ID", "42")
    with pytest.raises(Interrupted), block_lock(folder, "b", lambda _seconds: True, quiet):
        pass
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    with block_lock(folder, "b", lambda _seconds: True, quiet):
        assert LockOwner.read(folder.lock("b")).restarts == 1


def test_cancelling_a_holder_on_another_host_says_what_to_type_there(folder: SweepFolder) -> None:
    write_lock(folder, 1, host="elsewhere", started=1.0, job="42")
    cancelling = block_lock(folder, "b", lambda _seconds: True, quiet, cancel_old=True)
    with pytest.raises(AccelsweepError, match="scancel 42"), cancelling:
        pass


def test_a_damaged_lock_has_no_holder(folder: SweepFolder) -> None:
    folder.lock("b").write_text("{")
    with block_lock(folder, "b", lambda _seconds: True, quiet):
        pass
