"""Other load on this machine: foreign processes are named, our own are not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import psutil
import pytest
from polling import until

from accelsweep.measure import busy_now as busy_now_module
from accelsweep.measure.busy_now import OtherLoad, busy_now

SPIN = "import time; end = time.monotonic() + 20\nwhile time.monotonic() < end: pass"


@pytest.fixture(autouse=True)
def names_all(monkeypatch):
    """Other tests beside this one may use more than it does."""
    monkeypatch.setattr(busy_now_module, "_MAX_NAMES", 1000)


def foreign_process():
    """Start a process that keeps a core busy and has another parent than we; return its id."""
    script = f'"{sys.executable}" -c "$0" >/dev/null 2>&1 & echo $!'
    told = subprocess.run(["sh", "-c", script, SPIN], capture_output=True, text=True, check=True)
    return int(told.stdout)


@pytest.fixture
def stranger():
    number = foreign_process()
    time.sleep(0.3)
    yield number
    os.kill(number, signal.SIGKILL)


def test_a_foreign_process_that_keeps_a_core_busy_is_named(stranger):
    (sentence,) = [each for each in busy_now() if "cores busy" in each]
    assert f"with id {stranger}" in sentence


@pytest.mark.parametrize(
    ("words", "program"),
    [
        (["-X", "dev", "{folder}/train.py", "--password", "hunter2"], " train.py"),
        (["-P", "-m", "http.server", "--bind", "127.0.0.1", "0"], " -m http.server"),
        (["-uB", "-Xdev", "-m", "http.server", "--bind", "127.0.0.1", "0"], " -m http.server"),
        (["-mhttp.server", "--bind", "127.0.0.1", "0"], ""),
        (["-c", "import time; time.sleep(20)", "hunter2"], ""),
        (["-cimport time; time.sleep(20)", "hunter2"], ""),
    ],
)
def test_a_python_process_is_named_after_what_it_runs_without_its_arguments(tmp_path, words, program):
    (tmp_path / "train.py").write_text("import time; time.sleep(20)")
    command = [sys.executable, *(word.format(folder=tmp_path) for word in words)]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        until(psutil.Process(process.pid).cmdline)  # empty until the kernel has set up the new program
        name, found = psutil.Process(process.pid).name(), busy_now_module._name_of(process.pid)
        process.kill()
    assert found == f"{name}{program} with id {process.pid}"


def test_our_own_child_processes_are_not_named():
    with subprocess.Popen([sys.executable, "-c", SPIN]) as own:
        time.sleep(0.3)
        assert f"id {own.pid}" not in " ".join(busy_now())
        own.kill()


def test_our_own_work_is_not_the_load_of_others_even_if_its_processes_have_ended():
    load = OtherLoad()
    subprocess.run([sys.executable, "-c", "import time\nwhile time.process_time() < 0.6: pass"], check=True)
    after = busy_now_module._Snapshot.now(load._cores)
    assert after.own_used - load._before.own_used >= 0.5


def test_a_foreign_process_that_began_while_others_were_observed_is_named():
    load = OtherLoad()
    number = foreign_process()
    time.sleep(1.0)
    sentences = load.sentences()
    os.kill(number, signal.SIGKILL)
    assert f"with id {number}" in " ".join(sentences)


def test_constant_counters_mean_an_idle_machine(monkeypatch):
    monkeypatch.setattr(busy_now_module, "busy_seconds", lambda *_: 7.0)
    assert busy_now(0.05) == []


def test_foreign_processes_on_a_gpu_are_named(monkeypatch):
    from accelsweep.devices.device_kind import MonitoredDevice

    monkeypatch.setattr(busy_now_module, "busy_seconds", lambda *_: 7.0)
    monkeypatch.setattr(busy_now_module, "monitored_devices", lambda: (MonitoredDevice("cuda", "GPU-1", "H200"),))
    state = {"name": "NVIDIA H200", "foreign_processes": [os.getpid(), 2**22 + 1]}
    monkeypatch.setattr(busy_now_module, "device_state", lambda *_: state)
    (sentence,) = busy_now(0.05)
    assert sentence.startswith("other processes are using NVIDIA H200 now (")
    assert sentence.endswith(f"with id {os.getpid()}, id {2**22 + 1})")
