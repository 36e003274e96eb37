"""The user's own script: measured as it is, whatever it does with the Trainer, exceptions and its own process."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from one_rank import MEASURE, make_spec, run_ranks
from projects import copy_project

from accelsweep.results import Outcome, RankResult, ScriptTrainer

pytestmark = pytest.mark.real

SCRIPT = """
import torch
from lightning.pytorch import LightningModule, Trainer
from torch.utils.data import DataLoader, TensorDataset

class Net(LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 2)
    def training_step(self, batch, i):
        {step}
        return self.layer(batch[0]).square().mean()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)

def fit(**options):
    data = TensorDataset(torch.randn(256, 8))
    Trainer(accelerator="cpu", **options).fit(Net(), DataLoader(data, batch_size=16))
"""


def measured(home: Path, command: list[str], *, ranks: int = 1, **changes: Any) -> list[RankResult]:
    """Run a script in `home` as a setting does, on so many CPU ranks; `changes` are those of its entry point."""
    attempt = home.parent / "attempt"
    attempt.mkdir()
    entry = {"kind": "script", "command": command, **changes.pop("entry", {})}
    config = {"loop": "entry", "model": {}, "data": {}, "optimizer": None, "trainer": {}, "devices": ranks, **changes}
    spec = make_spec(attempt, entry=entry, **config)
    return run_ranks(spec, home)


def script(home: Path, body: str, step: str = "pass") -> list[str]:
    home.mkdir(exist_ok=True)
    (home / "train.py").write_text(SCRIPT.replace("{step}", step) + body)
    return ["train.py"]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def test_a_hydra_template_is_measured_on_two_ranks_and_divides_its_batch(home: Path) -> None:
    copy_project("hydra_template", home)
    arguments = ["data.batch_size=64", "trainer.devices=2"]
    first, second = measured(
        home,
        ["src/train.py"],
        ranks=2,
        batch_size=32,
        measure={**MEASURE, "quality_samples": 640, "quality_metric": "val/acc", "probe_steps": 6, "matmul_steps": 4},
        entry={"kind": "hydra", "arguments": arguments, "run_arguments": ["hydra.run.dir='{folder}'", "seed={seed}"]},
    )
    assert (first.outcome, second.outcome) == (Outcome.measured, Outcome.measured), first.traceback
    assert first.effective is not None
    assert (first.effective.world_size, first.effective.batch_size) == (2, 32)
    assert (first.effective.strategy, first.effective.loop, first.effective.optimizer) == ("ddp", "entry", "Adam")
    assert first.metrics["samples_per_second"].value
    assert first.metrics["quality"].value > 0.2
    assert first.metrics["model_flops_per_sample"].value == pytest.approx(
        6 * (32 * 64 + 64 * 10) - 2 * 32 * 64, rel=0.01
    )
    assert first.metrics["communication_share"].value is not None
    assert first.metrics["epoch_samples"].value == 1600
    assert sorted(path.name for path in home.iterdir()) == [".project-root", "configs", *_logs(home), "src"]


def test_kept_values_of_the_environment_reach_the_script(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy_project("hydra_template", home)
    config, source = home / "configs" / "train.yaml", home / "src" / "train.py"
    config.write_text(config.read_text() + "size: ${oc.env:SIZE}\n")
    source.write_text(
        source.read_text().replace('if cfg.get("seed"):', 'print("size", cfg.size)\n    if cfg.get("seed"):')
    )
    monkeypatch.setenv("SIZE", "7")
    (result,) = measured(
        home,
        ["src/train.py"],
        batch_size=64,
        entry={"kind": "hydra", "arguments": ["data.batch_size=64"], "kept_values": {"oc.env:SIZE": "5"}},
    )
    assert result.outcome is Outcome.measured, result.traceback
    assert "size 5\n" in (home / "rank-0.log").read_text()


def _logs(home: Path) -> list[str]:
    """The ranks' logs, which `run_ranks` writes into the working directory."""
    return sorted(path.name for path in home.glob("rank-*.log"))


def test_a_lightning_cli_is_measured(home: Path) -> None:
    copy_project("lightning_cli", home)
    (result,) = measured(
        home,
        ["train.py", "fit", "--config", "config.yaml"],
        batch_size=32,
        entry={"kind": "lightning_cli", "arguments": ["--data.batch_size=32", "--trainer.accelerator=cpu"]},
    )
    assert result.outcome is Outcome.measured, result.traceback
    assert result.effective is not None
    assert result.effective.batch_size == 32


def test_a_script_is_measured_beyond_its_schedule_and_its_trainers_arguments_are_replaced(home: Path) -> None:
    copy_project("script", home)
    (result,) = measured(
        home,
        ["train.py"],
        batch_size=64,
        precision="bf16-mixed",
        measure={**MEASURE, "min_steps": 60, "max_steps": 80},
        entry={"arguments": ["--batch-size=64"], "trainer": {"accelerator": "cpu", "precision": "bf16-mixed"}},
    )
    assert result.outcome is Outcome.measured, result.traceback
    assert result.effective is not None
    assert (result.effective.precision, result.effective.window_steps >= 60) == ("bf16-mixed", True)
    assert [doubt.code for doubt in result.doubts if doubt.code == "fixed_seed"], "the script calls seed_everything(7)"
    assert not (home / "lightning_logs").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"precision": "bf16-mixed"}, "precision: the setting asks for bf16-mixed, but .* trains with 32-true"),
        ({"batch_size": 8}, "batch_size=8 gave a first batch of 16 samples: in accelsweep.yaml, name the option"),
    ],
)
def test_what_the_script_does_not_take_over_is_refused(home: Path, changes: dict[str, Any], message: str) -> None:
    (result,) = measured(home, script(home, "fit()\n"), **{"batch_size": 16, **changes})
    assert result.outcome is Outcome.unsupported
    assert re.match(message, str(result.reason)), result.reason


def test_a_script_that_catches_the_error_and_fits_again_is_not_measured(home: Path) -> None:
    body = "for _ in range(2):\n    try:\n        fit()\n    except Exception:\n        pass\n"
    (result,) = measured(home, script(home, body), batch_size=8)
    assert (result.outcome, "first batch of 16 samples" in str(result.reason)) == (Outcome.unsupported, True)


def test_the_time_of_the_quality_phase_is_no_part_of_the_time_to_load(home: Path) -> None:
    copy_project("hydra_template", home)
    quality = {**MEASURE, "quality_samples": 20_000, "quality_metric": "val/acc"}
    (result,) = measured(
        home,
        ["src/train.py"],
        batch_size=16,
        measure=quality,
        entry={"kind": "hydra", "arguments": ["data.batch_size=16"], "run_arguments": ["hydra.run.dir='{folder}'"]},
    )
    seconds = {name: result.metrics[f"{name}_seconds"].value or 0.0 for name in ("load", "quality", "first_step")}
    assert seconds["load"] < seconds["quality"]
    assert 0 < seconds["first_step"] < seconds["quality"]


def test_the_modules_own_callbacks_and_checkpoints_do_not_end_or_resume_a_training(home: Path) -> None:
    body = """
from lightning.pytorch.callbacks import EarlyStopping, LambdaCallback, ModelCheckpoint

def configure_callbacks(self):
    seen = LambdaCallback(on_train_batch_start=lambda *_: print("seen"))
    return [EarlyStopping("never", check_on_train_epoch_end=True), seen]

Net.configure_callbacks = configure_callbacks
data = TensorDataset(torch.randn(256, 8))
trainer = Trainer(accelerator="cpu", callbacks=[ModelCheckpoint()])
trainer.fit(Net(), DataLoader(data, batch_size=16), None, None, "missing.ckpt")
"""
    (result,) = measured(home, script(home, body), batch_size=16)
    assert result.outcome is Outcome.measured, result.traceback
    log = (home / "rank-0.log").read_text()
    assert result.trainer == ScriptTrainer("never", "min", ("ModelCheckpoint", "EarlyStopping"))
    assert "accelsweep: left out EarlyStopping" in log
    assert "accelsweep: left out ckpt_path" in log
    assert "seen" in log


def test_batches_that_cannot_be_counted_have_the_stated_number_of_samples(home: Path) -> None:
    body = """
class Graphs(torch.utils.data.IterableDataset):
    def __iter__(self):
        for nodes in range(5, 200):  # each batch has its graphs' nodes in one dimension
            yield [torch.randn(nodes, 8), torch.zeros(3)]

Trainer(accelerator="cpu").fit(Net(), DataLoader(Graphs(), batch_size=None))
"""
    command = script(home, body)
    (result,) = measured(home, command, batch_size=4)
    assert "set samples_per_step in accelsweep.yaml" in str(result.reason)
    shutil.rmtree(home.parent / "attempt")
    (result,) = measured(home, command, batch_size=4, entry={"samples_per_step": 4})
    assert result.outcome is Outcome.measured, result.traceback
    assert result.effective is not None
    assert result.effective.batch_size == 4


def test_a_pass_over_the_data_is_counted_once(home: Path) -> None:
    (result,) = measured(home, script(home, "fit()\n"), batch_size=16)
    assert result.metrics["epoch_ends_in_window"].value, "a pass ended"
    assert result.metrics["epoch_samples"].value == 256


def test_a_script_that_catches_every_exception_is_measured(home: Path) -> None:
    command = script(home, "try:\n    fit()\nexcept BaseException as error:\n    print('caught', error)\nfit()\n")
    (result,) = measured(home, command, batch_size=16)
    assert result.outcome is Outcome.measured, result.traceback


def test_only_the_first_training_of_a_script_is_measured(home: Path) -> None:
    command = script(home, "try:\n    fit()\nfinally:\n    fit()\n")
    (result,) = measured(home, command, batch_size=16)
    assert result.outcome is Outcome.measured, result.traceback


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("print('nothing to train')\n", "train.py ended without calling Trainer.fit"),
        ("import sys\nsys.exit(3)\n", r"train.py ended with sys.exit\(3\) before it was measured"),
        (
            "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--lr', required=True)\n"
            "parser.parse_args()\n",
            r"sys.exit\(2\) before it was measured: train.py: error: .* required: --lr",
        ),
        ("raise KeyError('data')\n", r"KeyError: 'data'"),
        ("import os\nos._exit(0)\n", r"os._exit\(0\) was called in"),
    ],
)
def test_a_script_that_does_not_train_is_reported_with_the_reason(home: Path, body: str, reason: str) -> None:
    (result,) = measured(home, script(home, body), batch_size=16)
    assert result.outcome is not Outcome.measured
    assert result.reason is not None
    assert re.search(reason, result.reason), result.reason


def test_an_error_in_a_training_step_is_reported_although_the_script_catches_it(home: Path) -> None:
    body = "try:\n    fit()\nexcept Exception:\n    print('ignored')\n"
    command = script(home, body, step="if i == 3: raise ValueError('bad batch')")
    (result,) = measured(home, command, batch_size=16)
    assert (result.outcome, result.reason) == (Outcome.crashed, "ValueError: bad batch")
