"""A hold has one holder: who lost it to another machine notices, stops, and leaves the new one alone."""

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
from accelsweep.records.file_lock import DEAD_AFTER_SECONDS, Holder, living, living_hold, read_hold, take
from accelsweep.records.plan import Hold

ELSEWHERE = Hold(block="b", host="node7", pid=77, process_started=0.0, since="then")
LOST = "process 77 on node7 took block b over"


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(LEASE_FOLDER_VARIABLE, str(tmp_path / "leases"))
    for name in ("SLURM_JOB_ID", "SLURM_RESTART_COUNT"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "blocks" / "b.claim.json"


@pytest.fixture
def held(path: Path) -> Holder:
    holder = take(path, "b")
    assert isinstance(holder, Holder)
    return holder


def silent_for(path: Path, seconds: float) -> float:
    then = path.stat().st_mtime - seconds
    os.utime(path, (then, then))
    return then


def test_a_holder_beats_only_now_and_then(held: Holder, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.utime(path, ns=(1, 1))
    held.beat()
    assert path.stat().st_mtime_ns == 1
    monkeypatch.setattr(file_lock, "BEAT_SECONDS", 0.0)
    held.beat()
    assert path.stat().st_mtime_ns > 1


@pytest.mark.parametrize("act", [lambda held: held.running("r", "now"), Holder.idle, Holder.beat, Holder.confirm])
def test_who_was_thought_dead_stops_and_leaves_the_new_hold_alone(held, path, monkeypatch, act) -> None:
    monkeypatch.setattr(file_lock, "BEAT_SECONDS", 0.0)
    ELSEWHERE.write(path)
    silent_for(path, 30)
    before = path.stat()
    with pytest.raises(AccelsweepError, match=LOST):
        act(held)
    held.release()
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert Hold.read(path) == ELSEWHERE


def test_a_hold_that_was_only_removed_or_damaged_is_put_back(held: Holder, path: Path) -> None:
    path.unlink()
    held.confirm()
    assert Hold.read(path).pid == os.getpid()
    path.write_text("{")
    held.running("r", "now")
    assert Hold.read(path).run == "r"
    assert list(path.parent.iterdir()) == [path]


def test_a_hold_put_back_by_its_holder_is_not_taken_from_it(held: Holder, path: Path) -> None:
    path.unlink()
    other = ELSEWHERE.model_copy(update={"host": socket.gethostname(), "pid": os.getppid()})
    started = psutil.Process(os.getppid()).create_time()
    other.model_copy(update={"process_started": started}).write(path)
    with pytest.raises(AccelsweepError, match="took block b over"):
        held.confirm()


def test_who_comes_a_moment_after_another_that_it_did_not_see_is_refused(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = []

    def look(at: Path) -> Hold | None:
        looks.append(at)
        if len(looks) > 1:
            return read_hold(at)
        ELSEWHERE.write(path)
        return None

    monkeypatch.setattr(file_lock, "read_hold", look)
    assert take(path, "b") == ELSEWHERE
    assert list(path.parent.iterdir()) == [path]


TAKE = """
import os, sys
from pathlib import Path
from accelsweep.errors import AccelsweepError
from accelsweep.files import LEASE_FOLDER_VARIABLE
from accelsweep.records import file_lock
from accelsweep.records.file_lock import Holder, take
file_lock.BEAT_SECONDS = 0.0
rounds = [os.pipe() for _ in range(3)]

def say(word):
    os.write(1, f"{word}\\n".encode())  # in one piece: what `print` writes in two may be torn apart

def wait(number):
    os.read(rounds[number][0], 1)

def compete():
    wait(0)
    holder = take(Path(sys.argv[1]), "b")
    taken = isinstance(holder, Holder)
    say("taken" if taken else "refused")
    wait(1)
    try:
        if taken:
            holder.beat()
        say("goes on" if taken else "refused")
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
"""Six takers, each with locks of its own, forked from a process that has imported what they need."""


@pytest.mark.parametrize("dead", [False, True], ids=["no hold yet", "a dead hold"])
def test_of_takers_on_machines_that_share_no_lock_one_goes_on(path: Path, tmp_path: Path, dead: bool) -> None:
    if dead:
        ELSEWHERE.write(path)
        silent_for(path, DEAD_AFTER_SECONDS + 5)
    command = [sys.executable, "-c", TAKE, str(path), str(tmp_path / "machine")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as takers:
        assert takers.stdin
        assert takers.stdout

        def answers() -> list[str]:
            takers.stdin.write("go\n")
            takers.stdin.flush()
            return [takers.stdout.readline().strip() for _ in range(6)]

        assert "taken" in answers()
        assert answers().count("goes on") == 1
        takers.communicate("end\n")


def test_a_hold_of_another_machine_lives_while_it_is_touched_by_the_file_systems_clock(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ELSEWHERE.write(path)
    now = time.time()
    for skew_seconds in (-1e6, 1e6):
        monkeypatch.setattr(time, "time", lambda skew=skew_seconds: now + skew)
        os.utime(path)
        assert living(ELSEWHERE, path)
        silent_for(path, DEAD_AFTER_SECONDS + 5)
        assert living_hold(path) is None


def test_a_supervisor_that_was_taken_over_stops_its_run_and_records_nothing(tmp_path: Path) -> None:
    tiny_block = TinyBlock(tmp_path / "home", tmp_path / "leases").plan("lasting", "measured")
    hold = tiny_block.folder.hold(tiny_block.name)
    with tiny_block.start() as process:
        until(lambda: (mine := read_hold(hold)) and mine.run)
        newer = ELSEWHERE.model_copy(update={"block": tiny_block.name})
        newer.write(hold)
        output, _ = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 1
    assert "process 77 on node7 took block" in output
    assert Hold.read(hold) == newer
    assert not tiny_block.folder.record(tiny_block.runs()[0]).exists()
    assert not tiny_block.folder.done(tiny_block.name).exists()


def test_who_waits_for_the_machine_keeps_its_hold_young(tmp_path: Path) -> None:
    tiny_block = TinyBlock(tmp_path / "home", tmp_path / "leases").plan("measured")
    hold = tiny_block.folder.hold(tiny_block.name)
    machine = config_with(accelerator="cpu", devices=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(LEASE_FOLDER_VARIABLE, str(tmp_path / "leases"))
        with leased(machine, "the test", lambda _seconds: False, lambda _line: None):
            process = tiny_block.start(BEAT_SECONDS="0.1")
            until(hold.exists)
            then = silent_for(hold, 1000)
            until(lambda: hold.stat().st_mtime > then + 900)
    assert process.wait(PATIENCE_SECONDS) == 0
