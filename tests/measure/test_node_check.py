"""The check of a compute node from within a job."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from accelsweep.measure.node_check import findings


def told(folder: Path, *arguments: str) -> dict[str, dict[str, object]]:
    command = [sys.executable, "-m", "accelsweep.measure.node_check", *arguments]
    environment = os.environ | {"HOME": "/dev/null/nobody", "TMPDIR": str(folder)}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True)
    checks = json.loads(done.stdout.splitlines()[-1])["checks"]
    return {check["what"].partition(" on ")[0]: check for check in checks}


@pytest.mark.heavy
def test_a_node_check_covers_python_torch_folders_and_a_missing_gpu(tmp_path: Path) -> None:
    found = told(tmp_path, "--gpu")
    assert list(found) == ["Python", "torch", "TMPDIR", "working directory", "HOME"]
    assert found["Python"]["ok"]
    assert found["TMPDIR"]["ok"]
    assert str(tmp_path) in str(found["working directory"]["found"])
    assert found["HOME"]["ok"] is None
    assert "is not writable" in str(found["HOME"]["found"])
    import torch

    assert found["torch"]["ok"] is torch.accelerator.is_available()


def test_a_node_check_reports_the_cores_granted_by_the_container(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.accelerator.is_available", lambda: False)
    monkeypatch.setattr("accelsweep.devices.linux.cpu_quota", lambda: 1.5)
    (found,) = (check["found"] for check in findings() if check["what"].startswith("torch on "))
    assert found.endswith("no GPU, 1 CPU cores")
