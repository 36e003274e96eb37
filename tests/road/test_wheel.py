"""The wheel is whole: installed elsewhere, it runs without the checkout."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.real

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A folder to put on PYTHONPATH, with the built wheel unpacked in it as pip would."""
    built = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(built), str(REPOSITORY)]
    subprocess.run(command, check=True, capture_output=True)
    (wheel,) = built.glob("*.whl")
    target = tmp_path_factory.mktemp("site")
    zipfile.ZipFile(wheel).extractall(target)
    return target


def outside(installed, home, *arguments):
    environment = home.environment | {"PYTHONPATH": str(installed), "HOME": "/dev/null/nobody"}
    command = [sys.executable, "-m", "accelsweep", *arguments]
    return subprocess.run(command, cwd=home.path, env=environment, capture_output=True, text=True, check=False)


def test_the_wheel_carries_every_file_that_is_not_python(installed):
    shipped = installed / "accelsweep" / "shipped"
    for part in ("conf", "starter", "workflows"):
        ours = {path.relative_to(REPOSITORY) for path in (REPOSITORY / part).rglob("*") if path.is_file()}
        theirs = {path.relative_to(shipped) for path in (shipped / part).rglob("*") if path.is_file()}
        assert theirs == ours
    for name in ("Snakefile", "constraints.txt"):
        assert (shipped / name).read_text() == (REPOSITORY / name).read_text()
    assert (installed / "accelsweep" / "py.typed").is_file()


def test_outside_the_checkout_the_command_runs_also_where_home_cannot_be_written(installed, home):
    where = [sys.executable, "-c", "import accelsweep; print(accelsweep.__file__)"]
    environment = os.environ | {"PYTHONPATH": str(installed)}
    found = subprocess.run(where, cwd=home.path, env=environment, capture_output=True, text=True, check=True)
    assert found.stdout.startswith(str(installed)), "this test must not import the checkout"
    run = outside(installed, home, "run", "experiment=tiny", "repeats=1", "batch_size=16")
    assert run.returncode == 0, run.stdout + run.stderr
    assert (home.path / "reports/tiny/index.html").exists()
