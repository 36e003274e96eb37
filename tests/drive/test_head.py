"""One head a sweep: a second one is refused with the first one's name, a dead one's hold is taken over."""

import os
import signal
import socket
import subprocess
import sys
import time

import psutil
import pytest
from polling import until

from accelsweep.driver.sweep_lock import end_old, held, living_head
from accelsweep.errors import AccelsweepError
from accelsweep.files import LEASE_FOLDER_VARIABLE
from accelsweep.records.file_lock import DEAD_AFTER_SECONDS
from accelsweep.records.layout import SweepFolder
from accelsweep.records.plan import Hold


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv(LEASE_FOLDER_VARIABLE, str(tmp_path / "leases"))
    return SweepFolder(tmp_path, "sweep")


def test_a_second_head_is_refused_with_the_process_of_the_first(folder):
    with held(folder), pytest.raises(AccelsweepError, match=f"process {os.getpid()}"), held(folder):
        pass


def test_the_claim_ends_with_the_head(folder):
    with held(folder):
        assert living_head(folder).pid == os.getpid()
    assert living_head(folder) is None


def test_the_claim_of_a_dead_head_is_taken_over(folder, monkeypatch):
    child = subprocess.Popen([sys.executable, "-c", "pass"])
    started = psutil.Process(child.pid).create_time()
    child.wait()
    with held(folder):
        hold = living_head(folder).model_copy(update={"pid": child.pid, "process_started": started})
    hold.write(folder.root / "head.claim.json")
    assert living_head(folder) is None
    with held(folder):
        assert living_head(folder).pid == os.getpid()


def test_another_process_with_the_same_number_is_not_taken_for_the_head(folder):
    with held(folder):
        hold = living_head(folder).model_copy(update={"process_started": 1.0})
    hold.write(folder.root / "head.claim.json")
    assert living_head(folder) is None


WAITING = """\
import signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # also where these tests ignore it
for number in sys.argv[1:]:
    signal.signal(int(number), signal.SIG_IGN)
print("up", flush=True)
time.sleep(600)
"""


@pytest.fixture
def old_head(folder):
    """Return what starts a process that holds to be the head and ignores some signals."""
    children = []

    def start(*ignored):
        command = [sys.executable, "-c", WAITING, *(str(int(number)) for number in ignored)]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        children.append(child)
        assert child.stdout.readline() == "up\n"
        started = psutil.Process(child.pid).create_time()
        hold = Hold(block="head", host=socket.gethostname(), pid=child.pid, process_started=started, since="then")
        hold.write(folder.root / "head.claim.json")
        return child

    yield start
    for child in children:
        child.kill()
        child.wait()


@pytest.mark.parametrize(
    ("ignored", "sent"),
    [
        ((), ["SIGINT"]),
        ((signal.SIGINT,), ["SIGTERM"]),
        ((signal.SIGINT, signal.SIGTERM), ["SIGTERM", "SIGKILL"]),
    ],
    ids=["hears", "of a script's background", "deaf"],
)
def test_cancel_old_ends_a_head_by_a_signal_that_it_hears_and_takes_over(
    folder, old_head, monkeypatch, capsys, ignored, sent
):
    monkeypatch.setattr("accelsweep.driver.sweep_lock.PATIENCE_SECONDS", 10.0 if len(sent) == 1 else 0.2)
    old = old_head(*ignored)
    with held(folder, cancel_old=True):
        assert living_head(folder).pid == os.getpid()
    assert old.wait() == -getattr(signal, sent[-1])
    assert [line.split()[1] for line in capsys.readouterr().err.splitlines()] == sent


def test_cancel_old_ends_a_supervisor_that_a_dead_head_left_behind(tiny_block):
    tiny_block.plan("hang")
    with tiny_block.start() as orphan:
        until(tiny_block.lock_file.exists)
        end_old(tiny_block.folder)
        assert orphan.wait() == 128 + signal.SIGTERM
    assert not tiny_block.lock_file.exists()


@pytest.fixture
def elsewhere(folder):
    """The hold of a head on another machine, touched now; its path."""
    hold = Hold(block="head", host="node7", pid=77, process_started=0.0, since="then")
    path = folder.root / "head.claim.json"
    hold.write(path)
    return path


def silent_for(path, seconds):
    then = path.stat().st_mtime - seconds
    os.utime(path, (then, then))


def test_a_head_on_another_machine_that_was_heard_of_is_refused_by_name(folder, elsewhere):
    silent_for(elsewhere, DEAD_AFTER_SECONDS - 20)
    with pytest.raises(AccelsweepError, match=r"process 77 on node7 since then \(a head on another machine is"):
        held(folder).__enter__()
    assert living_head(folder).host == "node7"
    assert list(folder.root.iterdir()) == [elsewhere]


@pytest.mark.parametrize("seconds", [DEAD_AFTER_SECONDS + 5, -86_400], ids=["long ago", "before a clock was set back"])
def test_a_head_on_another_machine_that_fell_silent_is_taken_for_dead(folder, elsewhere, seconds):
    silent_for(elsewhere, seconds)
    assert living_head(folder) is None
    with held(folder):
        assert living_head(folder).pid == os.getpid()
    assert list(folder.root.iterdir()) == []


@pytest.mark.parametrize("skew_seconds", [-1e6, 1e6])
def test_silence_is_told_by_the_file_systems_clock_and_not_by_ours(folder, elsewhere, monkeypatch, skew_seconds):
    ours = time.time() + skew_seconds
    monkeypatch.setattr(time, "time", lambda: ours)
    assert living_head(folder) is not None
    silent_for(elsewhere, DEAD_AFTER_SECONDS + 5)
    assert living_head(folder) is None


def test_cancel_old_says_where_a_head_on_another_machine_can_be_ended(folder, elsewhere):
    with pytest.raises(AccelsweepError, match="On node7: kill -INT 77"):
        held(folder, cancel_old=True).__enter__()
    assert elsewhere.exists()


def test_a_head_keeps_its_claim_young_while_it_works(folder, monkeypatch):
    monkeypatch.setattr("accelsweep.records.file_lock.BEAT_SECONDS", 0.0)
    with held(folder) as head:
        path = folder.root / "head.claim.json"
        silent_for(path, 1000)
        before = path.stat().st_mtime
        head.beat()
        assert path.stat().st_mtime > before + 900
        path.unlink()
        head.beat()
        assert living_head(folder).pid == os.getpid()


def test_a_head_that_was_thought_dead_stops_and_leaves_the_new_ones_claim_alone(folder, monkeypatch):
    monkeypatch.setattr("accelsweep.records.file_lock.BEAT_SECONDS", 0.0)
    newer = Hold(block="head", host="node7", pid=77, process_started=0.0, since="later")
    path = folder.root / "head.claim.json"
    with held(folder) as head:
        newer.write(path)
        with pytest.raises(AccelsweepError, match="process 77 on node7 took this sweep over"):
            head.beat()
    assert Hold.read(path) == newer


RACE = """
import os, sys
from pathlib import Path
from accelsweep.driver.sweep_lock import held
from accelsweep.errors import AccelsweepError
from accelsweep.records.layout import SweepFolder
(start, go), (end, leave) = os.pipe(), os.pipe()
for _ in range(6):
    if os.fork():
        continue
    os.close(go)
    os.close(leave)
    os.read(start, 1)
    try:
        with held(SweepFolder(Path(sys.argv[1]), "sweep")):
            os.write(1, b"head\\n")
            os.read(end, 1)
    except AccelsweepError:
        os.write(1, b"refused\\n")
    except BaseException as error:
        os.write(1, f"{error!r}\\n".encode())
    os._exit(0)
os.close(go)
sys.stdin.readline()
os.close(leave)
for _ in range(6):
    os.wait()
"""
"""Six heads, forked from a process that has imported what they need, and let go all at once.

Each says a line in one piece: what `print` writes in two may be torn apart by another.
"""


@pytest.mark.parametrize("dead", [False, True], ids=["no hold yet", "a dead head's hold"])
def test_of_many_heads_that_start_at_once_one_comes_first(folder, dead):
    if dead:
        hold = Hold(block="head", host=socket.gethostname(), pid=1, process_started=0.0, since="then")
        hold.write(folder.root / "head.claim.json")
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", RACE, str(folder.home)], **pipes) as heads:
        said = sorted(heads.stdout.readline() for _ in range(6))
        heads.communicate("end\n")
    assert said == ["head\n", *["refused\n"] * 5]
    assert list(folder.root.iterdir()) == []


def test_a_supervisor_on_another_host_is_named_with_the_command_that_ends_it(folder, capsys):
    hold = Hold(block="b1", host="node7", pid=1, process_started=0.0, job="42", since="then")
    hold.write(folder.hold("b1"))
    end_old(folder)
    assert "scancel 42" in capsys.readouterr().err
    assert folder.hold("b1").exists()
