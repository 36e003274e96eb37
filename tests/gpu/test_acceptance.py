"""The acceptance itself on the CPU: what applies there is judged, what does not says why, and evidence is left."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from accelsweep.simulated.register import unavailable

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.real
@pytest.mark.long  # tests/gpu/test_cases.py plans every case, its sweeps are those of other tests: only here all is run
def test_the_cpu_is_accepted_and_what_it_cannot_have_is_named(tmp_path: Path):
    only = "calibration: (steps|energy)|nothing waits"
    command = [sys.executable, "benchmarks/gpu", "--device", "cpu", "--only", only, "--out", tmp_path / "evidence"]
    alone = {**os.environ, "ACCELSWEEP_LEASES": str(tmp_path / "leases")}  # what else runs here is not waited for
    done = subprocess.run(command, cwd=ROOT, env=alone, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    results = {one["name"]: one for one in json.loads((tmp_path / "evidence" / "results.json").read_text("utf-8"))}
    assert results["steps of known length"]["status"] == "passed"
    assert results["energy and throttling"]["reason"] == "a cpu device has no NVML"
    assert results["nothing waits inside the window"]["status"] == "not applicable"
    page = (tmp_path / "evidence" / "results.md").read_text("utf-8")
    assert "| known_2000us | 2 |" in page
    assert "known_20000us" in (tmp_path / "evidence" / "records.csv").read_text("utf-8")


@pytest.mark.real
@pytest.mark.long
def test_the_simulated_device_is_accepted_by_what_a_gpu_has_to_pass(tmp_path: Path):
    """Events against the clock, energy, nothing that waits in the window, memory that ends: no check is left out."""
    if why := unavailable():
        pytest.skip(why)
    only = "calibration: (steps|energy)|nothing waits|batches up to"
    command = [
        sys.executable,
        "benchmarks/gpu",
        "--device",
        "simulated",
        "--only",
        only,
        "--out",
        tmp_path / "evidence",
    ]
    alone = {**os.environ, "ACCELSWEEP_LEASES": str(tmp_path / "leases")}
    done = subprocess.run(command, cwd=ROOT, env=alone, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    results = json.loads((tmp_path / "evidence" / "results.json").read_text("utf-8"))
    assert [one["status"] for one in results] == ["passed"] * 4


def test_a_check_that_finds_no_time_makes_the_command_fail(tmp_path: Path):
    command = [
        sys.executable,
        "benchmarks/gpu",
        "--device",
        "cpu",
        "--minutes",
        "0",
        "--out",
        tmp_path,
        "--only",
        "Ctrl",
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "not reached" in done.stdout
