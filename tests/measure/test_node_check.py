"""What a job tells of its node."""

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
def test_a_job_tells_of_python_torch_and_folders_and_misses_a_gpu_that_it_should_hold(tmp_path: Path) -> None:
    found = told(tmp_path, "--gpu")
    assert list(found) == ["Python", "torch", "TMPDIR", "working directory", "HOME"]
    assert found["Python"]["ok"]
    assert found["TMPDIR"]["ok"]
    assert str(tmp_path) in str(found["working directory"]["found"])
    assert found["HOME"]["ok"] is None
    assert "cannot be written" in str(found["HOME"]["found"])
    import torch

    assert found["torch"]["ok"] is torch.accelerator.is_available()


def test_the_cores_that_a_job_tells_of_are_those_that_its_container_grants(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.accelerator.is_available", lambda: False)
    monkeypatch.setattr("accelsweep.devices.linux.cpu_quota", lambda: 1.5)
    (found,) = (check["found"] for check in findings() if check["what"].startswith("torch on "))
    assert found.endswith("no GPU, 1 CPU cores")
