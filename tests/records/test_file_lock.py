"""A lock has one owner: a process that lost it to another machine notices, stops, and leaves the new one alone."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from polling import PATIENCE_SECONDS, until
from tiny_executor import TinyBlock
from tiny_sweep import config_with

from accelsweep.errors import AccelsweepError
from accelsweep.executor.device_lease import leased
from accelsweep.files import LEASE_FOLDER_VARIABLE
from accelsweep.records import file_lock
from accelsweep.records.file_lock import STALE_AFTER_SECONDS, HeldLock, acquire, is_live, live_lock, read_lock
from accelsweep.records.plan import LockOwner

ELSEWHERE = LockOwner(block="b", host="node7", pid=77, process_started=0.0, since="then")
LOST = "process 77 on node7 took over block b"


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(LEASE_FOLDER_VARIABLE, str(tmp_path / "leases"))
    for name in ("SLURM_JOB_ID", "SLURM_RESTART_COUNT"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "blocks" / "b.lock.json"


@pytest.fixture
def held(path: Path) -> HeldLock:
    holder = acquire(path, "b")
    assert isinstance(holder, HeldLock)
    return holder


def silent_for(path: Path, seconds: float) -> float:
    then = path.stat().st_mtime - seconds
    os.utime(path, (then, then))
    return then


def test_a_heartbeat_touches_the_file_rarely(held: HeldLock, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.utime(path, ns=(1, 1))
    held.heartbeat()
    assert path.stat().st_mtime_ns == 1
    monkeypatch.setattr(file_lock, "HEARTBEAT_SECONDS", 0.0)
    held.heartbeat()
    assert path.stat().st_mtime_ns > 1


@pytest.mark.parametrize(
    "act",
    [lambda held: held.set_run("r", "now"), HeldLock.clear_run, HeldLock.heartbeat, HeldLock.confirm],
)
def test_a_process_that_was_considered_dead_stops_and_leaves_the_new_lock_alone(held, path, monkeypatch, act) -> None:
    monkeypatch.setattr(file_lock, "HEARTBEAT_SECONDS", 0.0)
    ELSEWHERE.write(path)
    silent_for(path, 30)
    before = path.stat()
    with pytest.raises(AccelsweepError, match=LOST):
        act(held)
    held.release()
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert LockOwner.read(path) == ELSEWHERE


def test_a_lock_that_was_merely_removed_or_damaged_is_put_back(held: HeldLock, path: Path) -> None:
    path.unlink()
    held.confirm()
    assert LockOwner.read(path).pid == os.getpid()
    path.write_text("{")
    held.set_run("r", "now")
    assert LockOwner.read(path).run == "r"
    assert list(path.parent.iterdir()) == [path]


def test_a_lock_put_back_by_its_owner_is_not_stolen(held: HeldLock, path: Path) -> None:
    path.unlink()
    other = ELSEWHERE.model_copy(update={"host": socket.gethostname(), "pid": os.getppid()})
    started = psutil.Process(os.getppid()).create_time()
    other.model_copy(update={"process_started": started}).write(path)
    with pytest.raises(AccelsweepError, match="took over block b"):
        held.confirm()


def test_a_process_that_misses_a_concurrent_lock_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = []

    def look(at: Path) -> LockOwner | None:
        looks.append(at)
        if len(looks) > 1:
            return read_lock(at)
        ELSEWHERE.write(path)
        return None

    monkeypatch.setattr(file_lock, "read_lock", look)
    assert acquire(path, "b") == ELSEWHERE
    assert list(path.parent.iterdir()) == [path]


CONTENDERS = """
import os, sys
from pathlib import Path
from accelsweep.errors import AccelsweepError
from accelsweep.files import LEASE_FOLDER_VARIABLE
from accelsweep.records import file_lock
from accelsweep.records.file_lock import HeldLock, acquire
file_lock.HEARTBEAT_SECONDS = 0.0
rounds = [os.pipe() for _ in range(3)]

def say(word):
    os.write(1, f"{word}\\n".encode())  # in one piece: what `print` writes in two may be torn apart

def wait(number):
    os.read(rounds[number][0], 1)

def compete():
    wait(0)
    holder = acquire(Path(sys.argv[1]), "b")
    acquired = isinstance(holder, HeldLock)
    say("acquired" if acquired else "refused")
    wait(1)
    try:
        if acquired:
            holder.heartbeat()
        say("goes on" if acquired else "refused")
    except AccelsweepError:
        say("lost")
    wait(2)

for number in range(6):
    if os.fork():
        continue
    for _, go in rounds:
        os.close(go)
    os.environ[LEASE_FOLDER_VARIABLE] = f"{sys.argv[2]} {number}"
    try:
        compete()
    except BaseException as error:
        say(repr(error))
    os._exit(0)
for _, go in rounds:
    sys.stdin.readline()
    os.close(go)
for _ in range(6):
    os.wait()
"""
"""Six contenders, each with a lock folder of its own, forked from a process that has done the imports."""


@pytest.mark.parametrize("dead", [False, True], ids=["no lock yet", "a stale lock"])
def test_one_of_several_contenders_without_a_shared_node_lock_wins(path: Path, tmp_path: Path, dead: bool) -> None:
    if dead:
        ELSEWHERE.write(path)
        silent_for(path, STALE_AFTER_SECONDS + 5)
    command = [sys.executable, "-c", CONTENDERS, str(path), str(tmp_path / "machine")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as contenders:
        assert contenders.stdin
        assert contenders.stdout

        def answers() -> list[str]:
            contenders.stdin.write("go\n")
            contenders.stdin.flush()
            return [contenders.stdout.readline().strip() for _ in range(6)]

        assert "acquired" in answers()
        assert answers().count("goes on") == 1
        contenders.communicate("end\n")


def test_a_lock_of_another_machine_is_live_while_touched_by_the_file_systems_clock(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ELSEWHERE.write(path)
    now = time.time()
    for skew_seconds in (-1e6, 1e6):
        monkeypatch.setattr(time, "time", lambda skew=skew_seconds: now + skew)
        os.utime(path)
        assert is_live(ELSEWHERE, path)
        silent_for(path, STALE_AFTER_SECONDS + 5)
        assert live_lock(path) is None


def test_an_executor_that_was_taken_over_stops_its_run_and_records_nothing(tmp_path: Path) -> None:
    tiny_block = TinyBlock(tmp_path / "home", tmp_path / "leases").plan("lasting", "measured")
    hold = tiny_block.folder.lock(tiny_block.name)
    with tiny_block.start() as process:
        until(lambda: (mine := read_lock(hold)) and mine.run)
        newer = ELSEWHERE.model_copy(update={"block": tiny_block.name})
        newer.write(hold)
        output, _ = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 1
    assert "process 77 on node7 took over block" in output
    assert LockOwner.read(hold) == newer
    assert not tiny_block.folder.record(tiny_block.runs()[0]).exists()
    assert not tiny_block.folder.done(tiny_block.name).exists()


def test_an_executor_that_waits_for_the_machine_keeps_its_lock_fresh(tmp_path: Path) -> None:
    tiny_block = TinyBlock(tmp_path / "home", tmp_path / "leases").plan("measured")
    hold = tiny_block.folder.lock(tiny_block.name)
    machine = config_with(accelerator="cpu", devices=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(LEASE_FOLDER_VARIABLE, str(tmp_path / "leases"))
        with leased(machine, "the test", lambda _seconds: False, lambda _line: None):
            process = tiny_block.start(HEARTBEAT_SECONDS="0.1")
            until(hold.exists)
            then = silent_for(hold, 1000)
            until(lambda: hold.stat().st_mtime > then + 900)
    assert process.wait(PATIENCE_SECONDS) == 0
