"""The acceptance of a device: what applies is checked, what does not has a reason, and evidence is written."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from accelsweep.testing.simulated_torch import unavailable

ROOT = Path(__file__).resolve().parents[2]

needs_the_simulated_device = pytest.mark.skipif(unavailable() is not None, reason=str(unavailable()))


def accept(device: str, folder: Path, only: str, *options: str) -> tuple[int, str]:
    """Return exit code and output of the command; it waits for nothing else that runs on this machine."""
    command = [sys.executable, "benchmarks/gpu", "--device", device, "--only", only, "--out", folder, *options]
    alone = {**os.environ, "ACCELSWEEP_LEASES": str(folder / "leases")}
    done = subprocess.run(command, cwd=ROOT, env=alone, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def results_in(folder: Path) -> dict[str, dict[str, str]]:
    return {one["name"]: one for one in json.loads((folder / "results.json").read_text("utf-8"))}


@needs_the_simulated_device
@pytest.mark.real
@pytest.mark.long  # the workflows run `make gpu DEVICE=simulated` by itself; what it tries has tests of its own
def test_a_check_of_a_gpu_is_run_on_the_simulated_device_and_leaves_evidence(tmp_path: Path):
    """The check with one run."""
    code, output = accept("simulated", tmp_path, "slows down")
    assert code == 0, output
    assert results_in(tmp_path)["a device that slows down is doubted"]["status"] == "passed"
    assert "* holds: it is doubted (['" in (tmp_path / "results.md").read_text("utf-8")
    assert "\nhot," in (tmp_path / "records.csv").read_text("utf-8")
    assert json.loads((tmp_path / "environment.json").read_text("utf-8"))["device"]["simulated"] is True


@needs_the_simulated_device
@pytest.mark.real
@pytest.mark.long  # minutes; the test above runs one check the same way, tests/gpu/test_cases.py has the parts
def test_the_simulated_device_is_accepted_by_all_that_a_gpu_has_to_pass(tmp_path: Path):
    code, output = accept("simulated", tmp_path, "", "--minutes", "60")
    assert code == 0, output
    left_out = {name: one["reason"] for name, one in results_in(tmp_path).items() if one["status"] != "passed"}
    assert left_out.keys() == {"torch.compile", "precision of matrix products"}


@pytest.mark.real
@pytest.mark.long  # tests/gpu/test_cases.py plans every case, its sweeps are those of other tests
def test_the_cpu_is_accepted_and_what_it_cannot_have_is_named(tmp_path: Path):
    code, output = accept("cpu", tmp_path, "calibration: (steps|energy)|nothing waits")
    assert code == 0, output
    results = results_in(tmp_path)
    assert results["steps of known length"]["status"] == "passed"
    assert results["energy and limits"]["reason"] == "a cpu device has no NVML"
    assert results["nothing waits inside the window"]["status"] == "not applicable"
    assert "| known_2000us | 2 |" in (tmp_path / "results.md").read_text("utf-8")
    assert "known_20000us" in (tmp_path / "records.csv").read_text("utf-8")


def test_a_check_that_finds_no_time_makes_the_command_fail(tmp_path: Path):
    code, output = accept("cpu", tmp_path, "Ctrl", "--minutes", "0")
    assert code == 1
    assert "not reached" in output
