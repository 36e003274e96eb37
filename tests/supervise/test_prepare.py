"""Data is prepared once before any run; a data module that fails at it costs only its own runs."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from shared_fork_server import beside_the_server
from tiny_sweep import plan_sweep

from accelsweep.driver.background_processes import JOB_VARIABLES
from accelsweep.executor.prepare_data import MADE_IN_MEMORY, prepare

pytestmark = pytest.mark.real

CONF = Path(__file__).resolve().parents[2] / "conf"

DATA = """\
from pathlib import Path
from accelsweep.workloads.datasets import Digits


class Mine(Digits):
    def __init__(self, fails=False, **settings):
        super().__init__(**settings)
        self.fails = fails

    def prepare_data(self):
        if self.fails == "leaves":
            raise SystemExit("no token, no data")
        if self.fails:
            raise RuntimeError("the download failed")
        with Path("prepared").open("a") as file:
            file.write("once\\n")
"""

MODULE = """\
from pathlib import Path
import lightning.pytorch as pl


class Mine(pl.LightningModule):
    def __init__(self, dataset):
        super().__init__()
        self.dataset = dataset

    def prepare_data(self):
        with Path("prepared").open("a") as file:
            file.write(f"{self.dataset}\\n")

    def configure_optimizers(self):
        pass
"""


def home_with_modules(folder):
    (folder / "mydata.py").write_text(DATA)
    (folder / "mymodule.py").write_text(MODULE)
    return folder


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return home_with_modules(tmp_path)


def run_prepare(home):
    """Prepare as a sweep does: in a fork of the process that has imported torch."""
    command = [sys.executable, "-m", "accelsweep.executor", "--prepare", "sweeps/tiny"]
    environment = {**os.environ, **JOB_VARIABLES, **beside_the_server()}
    return subprocess.run(command, cwd=home, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """A home whose data was prepared twice, and how both ended: data that two cells share, that fails, and that exits.

    Two modules bring data of their own, each for two cells.
    """
    home = home_with_modules(tmp_path_factory.mktemp("prepared"))
    shared = {"_target_": "mydata.Mine"}
    brought = {"_target_": "accelsweep.workloads.data_module.ModuleData"}
    models = [{"_target_": "mymodule.Mine", "dataset": name} for name in ("first", "second")]
    cells = [{"data": shared | {"fails": fails}} for fails in (True, "leaves")]
    cells += [{"data": shared, "batch_size": size} for size in (8, 16)]
    cells += [{"data": brought, "model": model, "batch_size": size} for model in models for size in (8, 16)]
    plan_sweep(home, cells)
    return home, run_prepare(home), run_prepare(home)


def test_each_data_module_and_each_module_that_brings_data_prepares_once_however_many_cells_share_it(prepared):
    home, first, again = prepared
    assert (first.returncode, again.returncode) == (0, 0), first.stderr + again.stderr
    assert sorted((home / "prepared").read_text().split()) == ["first", "once", "second"]


def test_a_failing_data_module_is_shown_and_tried_again_and_does_not_stop_the_others(prepared):
    _, first, again = prepared
    assert first.stdout == "3 data modules are ready\n"
    assert "the download failed" in first.stderr
    assert "the download failed" in again.stderr


def test_data_that_exits_does_not_stop_the_others(prepared):
    _, first, again = prepared
    for result in (first, again):
        assert "SystemExit: no token, no data" in result.stderr


@pytest.mark.long  # the last test asks without torch what is ready
def test_nothing_is_imported_when_nothing_is_left_to_prepare(home):
    folder, _ = plan_sweep(home, [{"data": {"_target_": "mydata.Mine"}}])
    assert run_prepare(home).returncode == 0
    (home / "mydata.py").write_text("raise RuntimeError('imported again')")
    assert len(prepare(folder)) == 1


def test_what_counts_as_made_in_memory_has_nothing_to_prepare():
    import lightning.pytorch as pl
    from hydra.utils import get_class

    for target in MADE_IN_MEMORY:
        assert get_class(target).prepare_data is pl.LightningDataModule.prepare_data, target
    shipped = (yaml.safe_load(file.read_text()).get("_target_") for file in (CONF / "model").glob("*.yaml"))
    ours = [target for target in shipped if str(target).startswith("accelsweep.")]
    assert len(ours) > 5
    for target in ours:
        assert getattr(get_class(target), "prepare_data", None) in (None, pl.LightningModule.prepare_data), target


def test_what_is_made_in_memory_is_ready_without_torch(home):
    plan_sweep(home, [{}])
    code = (
        "import sys; from pathlib import Path; from accelsweep.executor.prepare_data import prepare;"
        "from accelsweep.records.layout import SweepFolder;"
        "print(len(prepare(SweepFolder(Path.cwd(), 'tiny'))), 'torch' in sys.modules)"
    )
    said = subprocess.run([sys.executable, "-c", code], cwd=home, capture_output=True, text=True, check=True)
    assert said.stdout == "1 False\n"
