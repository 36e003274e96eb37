"""The wheel is whole: installed elsewhere, it runs without the checkout."""

import os
import subprocess
import sys

import pytest
from home import REPOSITORY

pytestmark = pytest.mark.real


def test_the_wheel_carries_every_file_that_is_not_python(installed):
    shipped = installed / "accelsweep" / "shipped"
    for part in ("conf", "starter", "workflows"):
        ours = {path.relative_to(REPOSITORY) for path in (REPOSITORY / part).rglob("*") if path.is_file()}
        theirs = {path.relative_to(shipped) for path in (shipped / part).rglob("*") if path.is_file()}
        assert theirs == ours
    for name in ("Snakefile", "constraints.txt"):
        assert (shipped / name).read_text() == (REPOSITORY / name).read_text()
    assert (installed / "accelsweep" / "py.typed").is_file()


def test_outside_the_checkout_the_command_runs_also_where_home_cannot_be_written(installed, finished):
    """The finished sweep that most end-to-end tests look at is the wheel's."""
    home, run = finished
    where = [sys.executable, "-c", "import accelsweep; print(accelsweep.__file__)"]
    environment = os.environ | {"PYTHONPATH": str(installed)}
    found = subprocess.run(where, cwd=home.path, env=environment, capture_output=True, text=True, check=True)
    assert found.stdout.startswith(str(installed)), "this test must not import the checkout"
    assert run.returncode == 0, run.stdout
    for step in ("executor", "worker", "analysis", "report", "tracking"):
        assert (installed / "accelsweep" / step / "__pycache__").is_dir(), f"{step} was not imported from the wheel"
