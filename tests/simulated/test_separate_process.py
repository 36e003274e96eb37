"""Run this folder's tests in a process of its own, where nothing was trained before the device is simulated."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from accelsweep.testing.simulated_torch import unavailable

FOLDER = Path(__file__).parent


@pytest.mark.real
def test_the_simulated_device_and_what_is_measured_on_it() -> None:
    command = [sys.executable, "-m", "pytest", str(FOLDER), "-n0", "--tb=short"]
    done = subprocess.run(command, cwd=FOLDER.parents[1], capture_output=True, text=True, check=False, timeout=900)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    if why := unavailable():
        pytest.skip(why)
    assert " passed" in done.stdout
