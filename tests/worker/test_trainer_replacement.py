"""What loops without a Trainer do for a module: devices, loaders, and batches on the device."""

from __future__ import annotations

from collections import namedtuple

import lightning.pytorch as pl
import pytest
import torch
from one_rank import DIGITS, MEASURE, MLP, TIMED
from torch.utils.data import DataLoader, TensorDataset

from accelsweep.errors import InputError, MissingDevice, Unsupported
from accelsweep.heartbeat import Heartbeat
from accelsweep.results import Outcome
from accelsweep.worker.loops import make_loop
from accelsweep.worker.loops.trainer_replacement import (
    batch_mover,
    endless_batches,
    move_batch,
    refuse_trainer_arguments,
)


@pytest.mark.parametrize(
    ("trainer", "named"),
    [
        ({"strategy": "fsdp"}, "trainer.strategy=fsdp"),
        ({"strategy": "ddp_find_unused_parameters_true"}, "trainer.strategy=ddp_find_unused_parameters_true"),
        ({"use_distributed_sampler": False}, "trainer.use_distributed_sampler=False"),
        ({"accumulate_grad_batches": 4}, "trainer.accumulate_grad_batches=4"),
        ({"strategy": "auto", "deterministic": True, "benchmark": True}, "trainer.benchmark=True, trainer.determinis"),
    ],
)
def test_trainer_arguments_without_effect_in_the_raw_loop_are_refused(spec, trainer, named) -> None:
    """`strategy=fsdp` would otherwise be measured as DDP."""
    with pytest.raises(Unsupported, match=f"^loop=raw has no {named}") as refused:
        refuse_trainer_arguments(spec(trainer=trainer), "loop=raw")
    assert "use loop=lightning, or remove it" in str(refused.value)


@pytest.mark.parametrize(
    "trainer",
    [
        {},
        {"strategy": "auto", "accumulate_grad_batches": 1, "deterministic": False, "benchmark": None},
        {"strategy": "ddp", "use_distributed_sampler": True, "log_every_n_steps": 10},
        {"strategy": None, "accumulate_grad_batches": None},
    ],
)
def test_trainer_arguments_that_match_the_raw_loop_are_accepted(spec, trainer) -> None:
    refuse_trainer_arguments(spec(trainer=trainer), "loop=raw")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
@pytest.mark.parametrize("loop", ["raw", "lightning"])
def test_a_gpu_that_torch_does_not_find_is_a_missing_device(spec, loop) -> None:
    with pytest.raises(MissingDevice, match=r"accelerator=cuda: torch .* finds no CUDA device here: it was built"):
        make_loop(spec(accelerator="cuda", loop=loop))


CPU = torch.device("cpu")


class Plain(pl.LightningDataModule):
    pass


class Silent(pl.LightningModule):
    pass


class Telling(pl.LightningDataModule):
    """Notes each hook with the type of the batch that it is given."""

    def __init__(self):
        super().__init__()
        self.told = []

    def on_before_batch_transfer(self, batch, dataloader_idx):
        self.told.append(("before", batch.dtype))
        return batch + 1

    def transfer_batch_to_device(self, batch, device, dataloader_idx):
        self.told.append(("transfer", device.type))
        return batch * 2

    def on_after_batch_transfer(self, batch, dataloader_idx):
        self.told.append(("after", batch.dtype))
        return batch + 0.5


def test_overridden_transfer_hooks_are_called_in_lightnings_order():
    data = Telling()
    batch = batch_mover(Silent(), data, CPU, torch.bfloat16)(torch.tensor([1.0]))
    assert batch.item() == 4.5
    assert data.told == [("before", torch.bfloat16), ("transfer", "cpu"), ("after", torch.bfloat16)]


def test_a_hook_of_the_data_module_takes_precedence():
    class Module(pl.LightningModule):
        def on_after_batch_transfer(self, batch, dataloader_idx):
            return batch - 1

    class Data(pl.LightningDataModule):
        def on_after_batch_transfer(self, batch, dataloader_idx):
            return batch + 1

    assert batch_mover(Module(), Data(), CPU, None)(torch.tensor(5)).item() == 6
    assert batch_mover(Module(), Plain(), CPU, None)(torch.tensor(5)).item() == 4


def test_without_hooks_only_floating_point_tensors_are_cast():
    Pair = namedtuple("Pair", "images classes")
    batch = Pair(torch.ones(2, dtype=torch.float64), torch.ones(2, dtype=torch.int64))
    found = batch_mover(Silent(), Plain(), CPU, torch.float32)(batch)
    assert isinstance(found, Pair)
    assert (found.images.dtype, found.classes.dtype) == (torch.float32, torch.int64)
    assert move_batch({"text": "a", "x": [torch.ones(1)]}, CPU, None)["text"] == "a"


HOOKED = (
    "from accelsweep.testing.calibration import TimedData\n"
    "class Data(TimedData):\n"
    "    def on_after_batch_transfer(self, batch, dataloader_idx):\n"
    "        return batch * 0 + 7\n"
)
SEVENS = "assert (batch == 7).all(); return self.weight.sum()"
ANSWER = "\n    def predict_step(self, batch, batch_idx):\n        assert (batch == 7).all()\n"


@pytest.mark.parametrize("changes", [{"loop": "lightning"}, {"loop": "raw"}, {"task": "inference"}])
def test_every_loop_honours_the_data_modules_hooks(run, own_module, tmp_path, changes):
    (tmp_path / "hooked_data.py").write_text(HOOKED)
    result = run(model=own_module(SEVENS, ANSWER), data={"_target_": "hooked_data.Data"}, **changes)
    assert result.outcome is Outcome.measured, result.traceback


SCHEDULED = """
    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=1.0)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0 / (step + 1))
        return {value}
"""
STEPWISE = '{"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}'
IN_LISTS = '[optimizer], [{"scheduler": schedule, "interval": "step"}]'
RATE = "self.log('lr', torch.tensor(self.optimizers().param_groups[0]['lr'])); return self.weight.sum() * 0"


@pytest.mark.parametrize("value", [STEPWISE, IN_LISTS])
def test_both_loops_step_a_schedule_after_every_optimiser_step(run, own_module, value):
    found = {}
    for loop in ("lightning", "raw"):
        result = run(loop=loop, model=own_module("return self.weight.sum() * 0", SCHEDULED.replace("{value}", value)))
        assert result.outcome is Outcome.measured, result.traceback
        steps = result.effective.warmup_steps + result.effective.window_steps
        found[loop] = (steps, result.metrics["learning_rate"].value)
    for steps, rate in found.values():
        assert rate == pytest.approx(1.0 / (steps + 1)), found


@pytest.mark.parametrize("value", ["[optimizer], [schedule]", STEPWISE.replace('"step"', '"epoch"')])
def test_the_raw_loop_refuses_a_schedule_by_epochs(run, own_module, value):
    result = run(loop="raw", model=own_module("return self.weight.sum()", SCHEDULED.replace("{value}", value)))
    assert result.outcome is Outcome.unsupported
    assert "use loop=lightning" in result.reason


def test_an_exhausted_loader_restarts_and_reports_the_end_of_the_pass():
    ends = []
    batches = endless_batches(DataLoader(TensorDataset(torch.arange(6)), 2), ends.append, Heartbeat())
    assert [next(batches)[0].tolist() for _ in range(7)] == [[0, 1], [2, 3], [4, 5]] * 2 + [[0, 1]]
    assert ends == [3, 6]
    with pytest.raises(
        InputError, match="yielded no batch: the data set has 3 rows, and drop_last=True drops a batch of fewer"
    ):
        next(endless_batches(DataLoader(TensorDataset(torch.arange(3)), 4, drop_last=True), ends.append, Heartbeat()))


def test_every_training_record_says_how_long_a_pass_is_and_that_nothing_was_scaled(run):
    metrics = run(model=MLP, data=DIGITS).metrics
    assert (metrics["epoch_samples"].value, metrics["epoch_samples"].unit) == (1432, "samples")
    assert "16-mixed" in metrics["loss_scale"].reason
    assert "16-mixed" in metrics["skipped_steps"].reason
    assert run(model=TIMED, measure=MEASURE).metrics["epoch_samples"].value is None
