"""A child is asked to end before it is made to, and never outlives its head unnoticed."""

import contextlib
import signal
import subprocess
import sys
import time

import psutil
import pytest

from accelsweep.driver import background_processes
from accelsweep.driver.background_processes import Child

POLITE = (
    "import signal, sys, time\nsignal.signal(signal.SIGINT, lambda *_: sys.exit(7))\n"
    "print('up', flush=True)\ntime.sleep(60)"
)
DEAF = "import signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nprint('up', flush=True)\ntime.sleep(60)"


def started(code, tmp_path):
    child = Child.start([sys.executable, "-c", code], cwd=tmp_path, log=tmp_path / "log")
    while "up" not in child.log.read_text():
        time.sleep(0.01)
    return child


def test_a_child_may_end_in_its_own_way(tmp_path):
    child = started(POLITE, tmp_path)
    child.interrupt()
    assert child.code == 7


def test_a_deaf_child_is_killed(tmp_path, monkeypatch):
    monkeypatch.setattr(background_processes, "_POLITE_SECONDS", 0.2)
    child = started(DEAF, tmp_path)
    child.interrupt()
    assert child.code == -9


def test_a_child_of_a_head_in_a_scripts_background_hears_ctrl_c_all_the_same(tmp_path):
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        child = started("import time\nprint('up', flush=True)\ntime.sleep(60)", tmp_path)
        child.interrupt()
    finally:
        signal.signal(signal.SIGINT, before)
    assert child.code == -signal.SIGINT


@pytest.mark.skipif(sys.platform != "linux", reason="PDEATHSIG is Linux's")
def test_a_child_dies_with_a_killed_head(tmp_path):
    head = (
        "import sys, time\nfrom pathlib import Path\nfrom accelsweep.driver.background_processes import Child\n"
        f"child = Child.start([sys.executable, '-c', {DEAF!r}], cwd=Path('.'), log=Path('log'))\n"
        "print(child._process.pid, flush=True)\ntime.sleep(60)"
    )
    process = subprocess.Popen([sys.executable, "-c", head], cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    pid = int(process.stdout.readline())
    process.kill()
    process.wait()
    deadline = time.monotonic() + 10
    with contextlib.suppress(psutil.NoSuchProcess):
        while psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
            assert time.monotonic() < deadline, "the child outlived its head"
            time.sleep(0.02)
