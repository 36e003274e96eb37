"""Machines of the tests' own: control groups in a folder, GPUs behind a fake NVML."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from fake_nvml import FakeGpu, FakeNvml

from accelsweep.devices import cuda, linux


@pytest.fixture
def groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Put this process into the groups that `membership` names, with these files below /sys/fs/cgroup."""
    monkeypatch.setattr(linux, "ROOT", tmp_path / "cgroup")
    monkeypatch.setattr(linux, "MEMBERSHIP", tmp_path / "membership")

    def put(membership: str, files: dict[str, str]) -> None:
        (tmp_path / "membership").write_text(membership)
        for name, text in files.items():
            path = tmp_path / "cgroup" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{text}\n")

    return put


@pytest.fixture
def affinity(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Let this process run on so many cores."""
    return lambda count: monkeypatch.setattr(
        linux.os, "sched_getaffinity", lambda _pid: set(range(count)), raising=False
    )


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> Callable[..., FakeNvml]:
    """Put these boards into the machine, with a torch that can use them and nothing granted by anybody."""

    def put(*boards: FakeGpu) -> FakeNvml:
        library = FakeNvml(*boards)
        monkeypatch.setattr(cuda, "nvml", library.opened)
        monkeypatch.setattr(cuda, "cpu_only_torch", lambda: False)
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        return library

    return put
