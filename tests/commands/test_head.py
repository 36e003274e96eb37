"""One head a sweep: a second one is refused with the first one's name, a dead one's claim is taken over."""

import os
import signal
import socket
import subprocess
import sys

import psutil
import pytest
from tiny_supervisor import Supervised, until

from accelsweep.commands.head import claimed, end_old, living_head
from accelsweep.core.errors import AccelsweepError
from accelsweep.core.folders import SweepFolder
from accelsweep.core.plans import Claim


@pytest.fixture
def folder(tmp_path):
    return SweepFolder(tmp_path, "sweep")


@pytest.fixture
def supervised(tmp_path):
    return Supervised(tmp_path / "home", tmp_path / "leases")


def test_a_second_head_is_refused_with_the_process_of_the_first(folder):
    with claimed(folder), pytest.raises(AccelsweepError, match=f"process {os.getpid()}"), claimed(folder):
        pass


def test_the_claim_ends_with_the_head(folder):
    with claimed(folder):
        assert living_head(folder).pid == os.getpid()
    assert living_head(folder) is None


def test_the_claim_of_a_dead_head_is_taken_over(folder, monkeypatch):
    child = subprocess.Popen([sys.executable, "-c", "pass"])
    started = psutil.Process(child.pid).create_time()
    child.wait()
    with claimed(folder):
        claim = living_head(folder).model_copy(update={"pid": child.pid, "process_started": started})
    claim.write(folder.root / "head.claim.json")
    assert living_head(folder) is None
    with claimed(folder):
        assert living_head(folder).pid == os.getpid()


def test_another_process_with_the_same_number_is_not_taken_for_the_head(folder):
    with claimed(folder):
        claim = living_head(folder).model_copy(update={"process_started": 1.0})
    claim.write(folder.root / "head.claim.json")
    assert living_head(folder) is None


STUBBORN = "import signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nprint('up', flush=True)\ntime.sleep(600)"


@pytest.fixture
def old_head(folder):
    """A process that claims to be the head and ignores Ctrl-C."""
    child = subprocess.Popen([sys.executable, "-c", STUBBORN], stdout=subprocess.PIPE, text=True)
    assert child.stdout.readline() == "up\n"
    started = psutil.Process(child.pid).create_time()
    claim = Claim(block="head", host=socket.gethostname(), pid=child.pid, process_started=started, since="then")
    claim.write(folder.root / "head.claim.json")
    yield child
    child.kill()
    child.wait()


def test_cancel_old_kills_a_head_that_ignores_ctrl_c_and_takes_over(folder, old_head, monkeypatch, capsys):
    monkeypatch.setattr("accelsweep.commands.head.PATIENCE_SECONDS", 0.2)
    with claimed(folder, cancel_old=True):
        assert living_head(folder).pid == os.getpid()
    assert old_head.wait() == -signal.SIGKILL
    assert [line.split()[1] for line in capsys.readouterr().err.splitlines()] == ["SIGINT", "SIGKILL"]


def test_cancel_old_ends_a_supervisor_that_a_dead_head_left_behind(supervised):
    supervised.plan("hang")
    with supervised.start() as orphan:
        until(lambda: supervised.folder.claim(supervised.block.stem).exists())
        end_old(supervised.folder)
        assert orphan.wait() == 128 + signal.SIGTERM
    assert not supervised.folder.claim(supervised.block.stem).exists()


def test_a_supervisor_on_another_host_is_named_with_the_command_that_ends_it(folder, capsys):
    claim = Claim(block="b1", host="node7", pid=1, process_started=0.0, job="42", since="then")
    claim.write(folder.claim("b1"))
    end_old(folder)
    assert "scancel 42" in capsys.readouterr().err
    assert folder.claim("b1").exists()
