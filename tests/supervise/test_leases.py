"""Who may time something now: one run per machine, kept by orphans, given up by the dead."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from tiny_sweep import config_with

from accelsweep.core.errors import AccelsweepError
from accelsweep.machine.locks import FOLDER_VARIABLE, lease_folder
from accelsweep.supervise import leases
from accelsweep.supervise.leases import NotEnoughDevices, leased
from accelsweep.supervise.processes.signals import Interrupted

CPU: dict[str, Any] = {"accelerator": "cpu", "devices": 2}
TWO_GPUS = {"0": "GPU-a", "1": "GPU-b"}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "leases"))
    return tmp_path / "leases"


def give_up(_seconds: float) -> bool:
    return True


def refuse(line: str) -> None:
    raise AssertionError(line)


def quiet(_line: str) -> None:
    """Hear nothing."""


def lease(config: dict[str, Any], **changes: Any) -> Any:
    return leased(config_with(**config, **changes), "me", give_up, quiet)


def test_two_timed_runs_never_share_the_machine_whatever_devices_they_use() -> None:
    with lease(CPU):
        with pytest.raises(Interrupted), lease(CPU):
            pass
        with pytest.raises(Interrupted), lease({"accelerator": "mps", "devices": 1}):
            pass
    with lease(CPU):
        pass


def test_who_waits_is_told_once_who_times_a_run() -> None:
    told: list[str] = []
    looks = iter([False, False, True])
    waiting = leased(config_with(**CPU), "me", lambda _seconds: next(looks), told.append)
    with leased(config_with(**CPU), "process 7 (run x)", give_up, refuse), pytest.raises(Interrupted), waiting:
        pass
    assert told == ["waiting for the machine: process 7 (run x) is timing a run on it"]


def test_cells_with_concurrency_share_the_machine_with_their_like_only() -> None:
    shared = {"measure": {"concurrency": 2}}
    with lease(CPU, **shared), lease(CPU, **shared), pytest.raises(Interrupted), lease(CPU):
        pass


def test_devices_are_given_to_one_run_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "visible_cuda", lambda: TWO_GPUS)
    one = {"accelerator": "cuda", "devices": 1, "measure": {"concurrency": 4}}
    with lease(one) as first, lease(one) as second:
        assert {first.cuda, second.cuda} == {("0",), ("1",)}
        assert second.environment == {"CUDA_VISIBLE_DEVICES": second.cuda[0]}
        with pytest.raises(Interrupted), lease(one):
            pass


def test_a_cell_that_needs_two_devices_does_not_keep_one_while_it_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "visible_cuda", lambda: TWO_GPUS)
    one = {"accelerator": "cuda", "devices": 1, "measure": {"concurrency": 4}}
    free_meanwhile = []

    def look(_seconds: float) -> bool:
        with lease(one) as other:
            free_meanwhile.append(other.cuda)
        return True

    with lease(one), pytest.raises(Interrupted), leased(config_with(**{**one, "devices": 2}), "me", look, quiet):
        pass
    assert free_meanwhile == [("1",)]


def test_more_devices_than_there_are_is_said_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "visible_cuda", lambda: TWO_GPUS)
    too_many = lease({"accelerator": "cuda", "devices": 4})
    with pytest.raises(NotEnoughDevices, match="asks for 4 CUDA devices; this machine shows 2"), too_many:
        pass


def test_a_cpu_run_sees_no_cuda_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "visible_cuda", lambda: TWO_GPUS)
    with lease(CPU) as held:
        assert held.environment == {"CUDA_VISIBLE_DEVICES": ""}


def test_an_orphan_keeps_the_lease_until_it_ends() -> None:
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


def test_a_waiting_run_starts_when_the_other_ends() -> None:
    with lease(CPU) as held:
        other = subprocess.Popen(["sleep", "0.3"], pass_fds=held.descriptors)

    def wait(seconds: float) -> bool:
        time.sleep(seconds)
        return False

    started = time.monotonic()
    with leased(config_with(**CPU), "me", wait, quiet):
        assert time.monotonic() - started > 0.1
    other.wait()


def test_a_folder_that_others_could_write_to_is_refused(folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(AccelsweepError, match=FOLDER_VARIABLE):
        lease_folder()


def test_a_link_to_somewhere_else_is_refused(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "target").mkdir(mode=0o700)
    folder.symlink_to(tmp_path / "target")
    with pytest.raises(AccelsweepError, match="only you can write to"):
        lease_folder()


def test_the_devices_that_a_scheduler_granted_are_the_only_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    class Library:
        def nvmlDeviceGetCount(self) -> int:  # noqa: N802 - NVML's own name
            return 3

        def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
            return index

        def nvmlDeviceGetUUID(self, handle: int) -> str:  # noqa: N802
            return f"GPU-{handle}"

    from contextlib import nullcontext

    monkeypatch.setattr(leases, "nvml", lambda: nullcontext(Library()))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert leases.visible_cuda() == {"0": "GPU-0", "1": "GPU-1", "2": "GPU-2"}
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2, GPU-0")
    assert leases.visible_cuda() == {"2": "GPU-2", "GPU-0": "GPU-0"}
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert leases.visible_cuda() == {}
    assert os.environ["CUDA_VISIBLE_DEVICES"] == ""
