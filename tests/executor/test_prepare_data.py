"""Data is prepared once before any run; a data module that fails costs only its own runs."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from shared_fork_server import beside_the_server
from tiny_sweep import plan_sweep

from accelsweep.executor.prepare_data import GENERATED_DATA, is_prepared, prepare
from accelsweep.records.layout import SweepFolder

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
        if self.fails == "exits":
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
    """Prepare as a sweep does: forked from the fork server."""
    command = [sys.executable, "-P", "-m", "accelsweep.executor", "--prepare", "sweeps/tiny"]
    environment = {**os.environ, **beside_the_server()}
    done = subprocess.run(command, cwd=home, env=environment, capture_output=True, text=True, check=False)
    assert "imports torch itself" not in done.stderr
    return done


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """A home whose data was prepared twice, and both results: shared by two settings, failing, and exiting.

    Two modules bring data of their own, each for two settings.
    """
    home = home_with_modules(tmp_path_factory.mktemp("prepared"))
    shared = {"_target_": "mydata.Mine"}
    brought = {"_target_": "accelsweep.workloads.data_module.ModuleData"}
    models = [{"_target_": "mymodule.Mine", "dataset": name} for name in ("first", "second")]
    settings = [{"data": shared | {"fails": fails}} for fails in (True, "exits")]
    settings += [{"data": shared, "batch_size": size} for size in (8, 16)]
    settings += [{"data": brought, "model": model, "batch_size": size} for model in models for size in (8, 16)]
    plan_sweep(home, settings)
    return home, run_prepare(home), run_prepare(home)


def test_shared_data_is_prepared_once_whether_a_data_module_or_the_model_brings_it(prepared):
    home, first, again = prepared
    assert (first.returncode, again.returncode) == (0, 0), first.stderr + again.stderr
    assert sorted((home / "prepared").read_text().split()) == ["first", "once", "second"]


def test_a_failing_data_module_is_reported_and_retried_and_does_not_stop_the_others(prepared):
    home, first, again = prepared
    assert first.stdout == "3 data modules are ready\n"
    assert not is_prepared(SweepFolder(home, "tiny"))
    assert "the download failed" in first.stderr
    assert "the download failed" in again.stderr


def test_a_data_module_that_exits_does_not_stop_the_others(prepared):
    _, first, again = prepared
    for result in (first, again):
        assert "SystemExit: no token, no data" in result.stderr


@pytest.mark.long  # the last test checks what is ready without torch
def test_nothing_is_imported_when_everything_is_prepared(home):
    folder, _ = plan_sweep(home, [{"data": {"_target_": "mydata.Mine"}}])
    assert run_prepare(home).returncode == 0
    (home / "mydata.py").write_text("raise RuntimeError('imported again')")
    assert is_prepared(folder)
    assert len(prepare(folder)) == 1


def test_generated_data_has_nothing_to_prepare():
    import lightning.pytorch as pl
    from hydra.utils import get_class

    for target in GENERATED_DATA:
        assert get_class(target).prepare_data is pl.LightningDataModule.prepare_data, target
    shipped = (yaml.safe_load(file.read_text()).get("_target_") for file in (CONF / "model").glob("*.yaml"))
    ours = [target for target in shipped if str(target).startswith("accelsweep.")]
    assert len(ours) > 5
    for target in ours:
        assert getattr(get_class(target), "prepare_data", None) in (None, pl.LightningModule.prepare_data), target


def test_generated_data_is_ready_without_torch(home):
    plan_sweep(home, [{}])
    code = (
        "import sys; from pathlib import Path; from accelsweep.executor.prepare_data import is_prepared, prepare;"
        "from accelsweep.records.layout import SweepFolder; folder = SweepFolder(Path.cwd(), 'tiny');"
        "print(is_prepared(folder), len(prepare(folder)), 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=home, capture_output=True, text=True, check=True)
    assert done.stdout == "True 1 False\n"
