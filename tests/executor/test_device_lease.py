"""Device leases: one timed run per machine, held by orphans too, released by the dead."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from fake_nvml import FakeGpu, FakeNvml
from tiny_sweep import config_with

from accelsweep.devices import cuda
from accelsweep.errors import AccelsweepError
from accelsweep.executor.device_lease import NotEnoughDevices, leased
from accelsweep.files import LEASE_FOLDER_VARIABLE, lease_folder
from accelsweep.ipc import Interrupted

CPU: dict[str, Any] = {"accelerator": "cpu", "devices": 2}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(LEASE_FOLDER_VARIABLE, str(tmp_path / "leases"))
    return tmp_path / "leases"


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Put GPUs with these UUIDs into the machine, with no CUDA_VISIBLE_DEVICES set."""

    def put(*uuids: str, **models: str) -> None:
        boards = [*map(FakeGpu, uuids), *(FakeGpu(uuid, model) for uuid, model in models.items())]
        monkeypatch.setattr(cuda, "nvml", FakeNvml(*boards).opened)
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    return put


def give_up(_seconds: float) -> bool:
    return True


def refuse(line: str) -> None:
    raise AssertionError(line)


def quiet(_line: str) -> None:
    """Ignore the line."""


def lease(config: dict[str, Any], **changes: Any) -> Any:
    return leased(config_with(**config, **changes), "me", give_up, quiet)


def test_a_run_gets_only_devices_of_the_models_that_it_may_use(gpus: Any) -> None:
    gpus(one="NVIDIA A100-SXM4-80GB", two="NVIDIA H100 80GB HBM3", three="NVIDIA A100-SXM4-80GB")
    both = config_with(accelerator="cuda:a100", devices=2)
    with leased(both, "me", give_up, quiet, ("NVIDIA A100",)) as found:
        assert found.names == ("0", "2")
    missing = leased(config_with(accelerator="cuda:h200", devices=1), "me", give_up, quiet, ("NVIDIA H200",))
    with pytest.raises(NotEnoughDevices) as refused, missing:
        pass
    said = str(refused.value)
    assert "of the model NVIDIA H200, but this machine shows only 0 (NVIDIA A100-SXM4-80GB, NVIDIA H100" in said


def test_two_timed_runs_never_share_the_machine_whatever_devices_they_use() -> None:
    with lease(CPU):
        with pytest.raises(Interrupted), lease(CPU):
            pass
        with pytest.raises(Interrupted), lease({"accelerator": "mps", "devices": 1}):
            pass
    with lease(CPU):
        pass


def test_a_waiting_run_says_once_which_run_is_being_timed() -> None:
    lines: list[str] = []
    polls = iter([False, False, True])
    waiting = leased(config_with(**CPU), "me", lambda _seconds: next(polls), lines.append)
    with leased(config_with(**CPU), "process 7 (run x)", give_up, refuse), pytest.raises(Interrupted), waiting:
        pass
    assert lines == ["waiting for the machine: process 7 (run x) is timing a run on it"]


def test_settings_with_concurrency_share_the_machine_only_among_themselves() -> None:
    shared = {"measure": {"concurrency": 2}}
    with lease(CPU, **shared), lease(CPU, **shared), pytest.raises(Interrupted), lease(CPU):
        pass


def test_a_device_is_leased_to_one_run_at_a_time(gpus: Any) -> None:
    gpus("GPU-a", "GPU-b")
    one = {"accelerator": "cuda", "devices": 1, "measure": {"concurrency": 4}}
    with lease(one) as first, lease(one) as second:
        assert {first.names, second.names} == {("0",), ("1",)}
        assert second.environment == {"CUDA_VISIBLE_DEVICES": second.names[0]}
        with pytest.raises(Interrupted), lease(one):
            pass


def test_a_run_that_needs_two_devices_holds_neither_while_it_waits(gpus: Any) -> None:
    gpus("GPU-a", "GPU-b")
    one = {"accelerator": "cuda", "devices": 1, "measure": {"concurrency": 4}}
    free_meanwhile = []

    def pause(_seconds: float) -> bool:
        with lease(one) as other:
            free_meanwhile.append(other.names)
        return True

    with lease(one), pytest.raises(Interrupted), leased(config_with(**{**one, "devices": 2}), "me", pause, quiet):
        pass
    assert free_meanwhile == [("1",)]


def test_a_request_for_too_many_devices_fails_at_once(gpus: Any) -> None:
    gpus("GPU-a", "GPU-b")
    too_many = lease({"accelerator": "cuda", "devices": 4})
    with pytest.raises(NotEnoughDevices, match="the run needs 4 CUDA devices, but this machine shows only 2"), too_many:
        pass


def test_a_cpu_run_sees_no_cuda_device(gpus: Any) -> None:
    gpus("GPU-a", "GPU-b")
    with lease(CPU) as held:
        assert held.environment == {"CUDA_VISIBLE_DEVICES": ""}


def test_an_orphan_holds_the_lease_until_it_ends() -> None:
    with lease(CPU) as held:
        orphan = subprocess.Popen(["sleep", "1000"], pass_fds=held.descriptors)
    try:
        with pytest.raises(Interrupted), lease(CPU):
            pass
    finally:
        orphan.send_signal(signal.SIGKILL)
        orphan.wait()
    with lease(CPU):
        pass


def test_a_waiting_run_starts_when_the_other_one_ends() -> None:
    with lease(CPU) as held:
        other = subprocess.Popen(["sleep", "0.3"], pass_fds=held.descriptors)

    def wait(seconds: float) -> bool:
        time.sleep(seconds)
        return False

    started = time.monotonic()
    with leased(config_with(**CPU), "me", wait, quiet):
        assert time.monotonic() - started > 0.1
    other.wait()


def test_a_lease_folder_that_others_can_write_to_is_refused(folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(AccelsweepError, match=LEASE_FOLDER_VARIABLE):
        lease_folder()


def test_a_lease_folder_that_is_a_symbolic_link_is_refused(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "target").mkdir(mode=0o700)
    folder.symlink_to(tmp_path / "target")
    with pytest.raises(AccelsweepError, match="only you can write to"):
        lease_folder()


def test_only_the_devices_granted_by_a_scheduler_are_leased(gpus: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    gpus("GPU-a", "GPU-b", "GPU-c")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2, GPU-a")
    with lease({"accelerator": "cuda", "devices": 2}) as held:
        assert held.environment == {"CUDA_VISIBLE_DEVICES": "2,GPU-a"}
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    none = lease({"accelerator": "cuda", "devices": 1})
    with pytest.raises(NotEnoughDevices, match="this machine shows only 0"), none:
        pass


def test_a_device_has_one_lock_whatever_name_it_was_granted_by(gpus: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    gpus("GPU-a", "GPU-b")
    one = {"accelerator": "cuda", "devices": 1, "measure": {"concurrency": 2}}
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    with lease(one):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-b")
        with pytest.raises(Interrupted), lease(one):
            pass
