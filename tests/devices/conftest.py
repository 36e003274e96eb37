"""Simulated machines: control groups in a folder, CPU affinity, GPUs behind a fake NVML."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from fake_nvml import FakeGpu, FakeNvml

from accelsweep.devices import cuda, linux


@pytest.fixture
def groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return a function that puts this process into control groups: /proc/self/cgroup, and files by their paths."""
    monkeypatch.setattr(linux, "CGROUP_ROOT", tmp_path / "cgroup")
    monkeypatch.setattr(linux, "CGROUP_MEMBERSHIP", tmp_path / "membership")

    def put(membership: str, files: dict[str, str]) -> None:
        (tmp_path / "membership").write_text(membership)
        for name, text in files.items():
            path = tmp_path / "cgroup" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{text}\n")

    return put


@pytest.fixture
def affinity(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Return a function that sets the number of cores in this process's affinity."""
    return lambda count: monkeypatch.setattr(
        linux.os, "sched_getaffinity", lambda _pid: set(range(count)), raising=False
    )


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> Callable[..., FakeNvml]:
    """Return a function that puts boards into the machine, with a CUDA build of torch and no visibility variable."""

    def put(*boards: FakeGpu) -> FakeNvml:
        library = FakeNvml(*boards)
        monkeypatch.setattr(cuda, "nvml", library.opened)
        monkeypatch.setattr(cuda, "cpu_only_torch", lambda: False)
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        return library

    return put
