"""Data is prepared once before any run; a data module that fails at it costs only its own runs."""

import subprocess
import sys

import pytest
from tiny_sweep import plan_sweep

from accelsweep.execute.prepare import prepare

pytestmark = pytest.mark.real

DATA = """\
from pathlib import Path
from accelsweep.workloads.digits import Digits


class Mine(Digits):
    def __init__(self, fails=False, **settings):
        super().__init__(**settings)
        self.fails = fails

    def prepare_data(self):
        if self.fails:
            raise RuntimeError("the download failed")
        with Path("prepared").open("a") as file:
            file.write("once\\n")
"""


@pytest.fixture
def home(tmp_path, monkeypatch):
    (tmp_path / "mydata.py").write_text(DATA)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run_prepare(home):
    command = [sys.executable, "-m", "accelsweep.execute.prepare", "sweeps/tiny"]
    return subprocess.run(command, cwd=home, capture_output=True, text=True, check=False)


def test_each_data_module_prepares_once_however_many_cells_share_it(home):
    data = {"_target_": "mydata.Mine"}
    plan_sweep(home, [{"data": data, "batch_size": 8}, {"data": data, "batch_size": 16}])
    for _ in range(2):
        result = run_prepare(home)
        assert result.returncode == 0, result.stderr
    assert (home / "prepared").read_text() == "once\n"


def test_a_failing_data_module_is_shown_and_tried_again_and_does_not_stop_the_others(home):
    plan_sweep(home, [{"data": {"_target_": "mydata.Mine", "fails": fails}} for fails in (True, False)])
    first = run_prepare(home)
    assert first.returncode == 0
    assert "the download failed" in first.stderr
    assert (home / "prepared").read_text() == "once\n"
    assert "the download failed" in run_prepare(home).stderr


def test_nothing_is_imported_when_nothing_is_left_to_prepare(home):
    folder, _ = plan_sweep(home, [{"data": {"_target_": "mydata.Mine"}}])
    assert run_prepare(home).returncode == 0
    (home / "mydata.py").write_text("raise RuntimeError('imported again')")
    assert len(prepare(folder)) == 1
