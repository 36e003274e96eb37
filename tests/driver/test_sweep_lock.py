"""A sweep has one driver: a second one is refused, and the lock of a dead one is taken over."""

import os
import signal
import socket
import subprocess
import sys
import time

import psutil
import pytest
from polling import until

from accelsweep.driver.sweep_lock import active_driver, end_earlier_driver, lock_sweep
from accelsweep.errors import AccelsweepError
from accelsweep.files import LEASE_FOLDER_VARIABLE
from accelsweep.records.file_lock import STALE_AFTER_SECONDS
from accelsweep.records.layout import SweepFolder
from accelsweep.records.plan import LockOwner


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv(LEASE_FOLDER_VARIABLE, str(tmp_path / "leases"))
    return SweepFolder(tmp_path, "sweep")


def test_a_second_driver_is_refused_with_the_process_of_the_first(folder):
    with lock_sweep(folder), pytest.raises(AccelsweepError, match=f"process {os.getpid()}"), lock_sweep(folder):
        pass


def test_the_lock_is_released_with_the_driver(folder):
    with lock_sweep(folder):
        assert active_driver(folder).pid == os.getpid()
    assert active_driver(folder) is None


def test_the_lock_of_a_dead_driver_is_taken_over(folder, monkeypatch):
    child = subprocess.Popen([sys.executable, "-c", "pass"])
    started = psutil.Process(child.pid).create_time()
    child.wait()
    with lock_sweep(folder):
        lock = active_driver(folder).model_copy(update={"pid": child.pid, "process_started": started})
    lock.write(folder.root / "driver.lock.json")
    assert active_driver(folder) is None
    with lock_sweep(folder):
        assert active_driver(folder).pid == os.getpid()


def test_another_process_with_the_same_pid_is_not_the_driver(folder):
    with lock_sweep(folder):
        lock = active_driver(folder).model_copy(update={"process_started": 1.0})
    lock.write(folder.root / "driver.lock.json")
    assert active_driver(folder) is None


WAITING = """\
import signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # also where these tests ignore it
for number in sys.argv[1:]:
    signal.signal(int(number), signal.SIG_IGN)
print("up", flush=True)
time.sleep(600)
"""


@pytest.fixture
def old_driver(folder):
    """Return a function that starts a process with the driver's lock, which ignores some signals."""
    children = []

    def start(*ignored):
        command = [sys.executable, "-c", WAITING, *(str(int(number)) for number in ignored)]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        children.append(child)
        assert child.stdout.readline() == "up\n"
        started = psutil.Process(child.pid).create_time()
        lock = LockOwner(
            block="driver", host=socket.gethostname(), pid=child.pid, process_started=started, since="then"
        )
        lock.write(folder.root / "driver.lock.json")
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
    ids=["handles both", "in a script's background", "ignores both"],
)
def test_cancel_old_ends_a_driver_by_a_signal_that_it_handles(folder, old_driver, monkeypatch, capsys, ignored, sent):
    monkeypatch.setattr("accelsweep.driver.sweep_lock.GRACE_SECONDS", 10.0 if len(sent) == 1 else 0.2)
    old = old_driver(*ignored)
    with lock_sweep(folder, cancel_old=True):
        assert active_driver(folder).pid == os.getpid()
    assert old.wait() == -getattr(signal, sent[-1])
    assert [line.split()[1] for line in capsys.readouterr().err.splitlines()] == sent


def test_cancel_old_ends_an_executor_left_by_a_dead_driver(tiny_block):
    tiny_block.plan("hang")
    with tiny_block.start() as orphan:
        until(tiny_block.lock_file.exists)
        end_earlier_driver(tiny_block.folder)
        assert orphan.wait() == 128 + signal.SIGTERM
    assert not tiny_block.lock_file.exists()


@pytest.fixture
def elsewhere(folder):
    """The path of the lock of a driver on another machine, with a fresh heartbeat."""
    lock = LockOwner(block="driver", host="node7", pid=77, process_started=0.0, since="then")
    path = folder.root / "driver.lock.json"
    lock.write(path)
    return path


def age_heartbeat(path, seconds):
    then = path.stat().st_mtime - seconds
    os.utime(path, (then, then))


def test_a_driver_with_a_heartbeat_on_another_machine_is_refused_by_name(folder, elsewhere):
    age_heartbeat(elsewhere, STALE_AFTER_SECONDS - 20)
    with pytest.raises(AccelsweepError, match=r"77 on node7 since then \(a driver on another host is presumed dead"):
        lock_sweep(folder).__enter__()
    assert active_driver(folder).host == "node7"
    assert list(folder.root.iterdir()) == [elsewhere]


@pytest.mark.parametrize("seconds", [STALE_AFTER_SECONDS + 5, -86_400], ids=["long ago", "before a clock was set back"])
def test_a_driver_without_heartbeat_on_another_machine_counts_as_dead(folder, elsewhere, seconds):
    age_heartbeat(elsewhere, seconds)
    assert active_driver(folder) is None
    with lock_sweep(folder):
        assert active_driver(folder).pid == os.getpid()
    assert list(folder.root.iterdir()) == []


@pytest.mark.parametrize("skew_seconds", [-1e6, 1e6])
def test_the_age_of_a_heartbeat_is_measured_by_the_file_systems_clock(folder, elsewhere, monkeypatch, skew_seconds):
    ours = time.time() + skew_seconds
    monkeypatch.setattr(time, "time", lambda: ours)
    assert active_driver(folder) is not None
    age_heartbeat(elsewhere, STALE_AFTER_SECONDS + 5)
    assert active_driver(folder) is None


def test_cancel_old_names_the_command_to_end_a_driver_on_another_machine(folder, elsewhere):
    with pytest.raises(AccelsweepError, match="On node7: kill -INT 77"):
        lock_sweep(folder, cancel_old=True).__enter__()
    assert elsewhere.exists()


def test_a_driver_renews_its_heartbeat(folder, monkeypatch):
    monkeypatch.setattr("accelsweep.records.file_lock.HEARTBEAT_SECONDS", 0.0)
    with lock_sweep(folder) as lock:
        path = folder.root / "driver.lock.json"
        age_heartbeat(path, 1000)
        before = path.stat().st_mtime
        lock.heartbeat()
        assert path.stat().st_mtime > before + 900
        path.unlink()
        lock.heartbeat()
        assert active_driver(folder).pid == os.getpid()


def test_a_driver_whose_lock_was_taken_over_stops_and_leaves_the_new_lock_alone(folder, monkeypatch):
    monkeypatch.setattr("accelsweep.records.file_lock.HEARTBEAT_SECONDS", 0.0)
    newer = LockOwner(block="driver", host="node7", pid=77, process_started=0.0, since="later")
    path = folder.root / "driver.lock.json"
    with lock_sweep(folder) as lock:
        newer.write(path)
        with pytest.raises(AccelsweepError, match="process 77 on node7 took over this sweep"):
            lock.heartbeat()
    assert LockOwner.read(path) == newer


RACE = """
import os, sys
from pathlib import Path
from accelsweep.driver.sweep_lock import lock_sweep
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
        with lock_sweep(SweepFolder(Path(sys.argv[1]), "sweep")):
            os.write(1, b"driver\\n")
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
"""Six drivers, forked from a process that has imported everything, and started at once.

Each writes its line in a single call, because lines of `print` may interleave.
"""


@pytest.mark.parametrize("dead", [False, True], ids=["no lock", "a dead driver's lock"])
def test_of_many_drivers_started_at_once_exactly_one_gets_the_lock(folder, dead):
    if dead:
        lock = LockOwner(block="driver", host=socket.gethostname(), pid=1, process_started=0.0, since="then")
        lock.write(folder.root / "driver.lock.json")
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", RACE, str(folder.home)], **pipes) as drivers:
        said = sorted(drivers.stdout.readline() for _ in range(6))
        drivers.communicate("end\n")
    assert said == ["driver\n", *["refused\n"] * 5]
    assert list(folder.root.iterdir()) == []


def test_an_executor_on_another_host_is_named_with_the_command_to_end_it(folder, capsys):
    lock = LockOwner(block="b1", host="node7", pid=1, process_started=0.0, job="42", since="then")
    lock.write(folder.lock("b1"))
    end_earlier_driver(folder)
    assert "scancel 42" in capsys.readouterr().err
    assert folder.lock("b1").exists()
