"""Each task on one rank and on two, from its spec to its result."""

from __future__ import annotations

import pytest
from one_rank import BOTH_LOOPS, DIGITS, MEASURE, MLP, run_ranks

from accelsweep.results import Outcome

AIM = {**MEASURE, "quality_metric": "val_accuracy", "quality_better": "max", "validate_every_samples": 400}


@BOTH_LOOPS
def test_training_goes_on_until_the_target_is_reached(run, loop):
    measure = {**AIM, "target": 0.6}
    result = run(task="time_to_accuracy", loop=loop, model=MLP, data=DIGITS, measure=measure)
    assert result.outcome is Outcome.measured, result.traceback
    value = {name: metric.value for name, metric in result.metrics.items()}
    assert value["quality"] >= 0.6
    assert value["samples_to_target"] == 400 * value["validations"]
    assert 0 < value["time_to_target_seconds"] < value["time_to_target_wall_seconds"]
    assert value["results_per_hour"] == pytest.approx(3600 / value["time_to_target_seconds"])
    assert value["samples_per_second"] > 0, "the window comes with it"


def test_both_loops_reach_the_target_after_the_same_samples_with_the_same_quality(run):
    found = [
        run(task="time_to_accuracy", loop=loop, model=MLP, data=DIGITS, measure={**AIM, "target": 0.6}).metrics
        for loop in ("lightning", "raw")
    ]
    assert found[0]["samples_to_target"].value == found[1]["samples_to_target"].value
    assert found[0]["quality"].value == pytest.approx(found[1]["quality"].value, abs=1e-6)


@BOTH_LOOPS
def test_a_target_out_of_reach_leaves_a_measured_run_without_a_time(run, loop):
    measure = {**AIM, "target": 1.1, "max_samples": 1000}
    result = run(task="time_to_accuracy", loop=loop, model=MLP, data=DIGITS, measure=measure)
    assert result.outcome is Outcome.measured, result.traceback
    missed = result.metrics["results_per_hour"]
    assert missed.value is None
    assert missed.reason.startswith("target val_accuracy >= 1.1 not reached within 1000 samples (best 0.")
    assert result.metrics["validations"].value == 3, "after 400, 800 and, with the last sample, 1000"


@BOTH_LOOPS
def test_by_default_one_pass_lies_between_validations(run, loop):
    measure = {**AIM, "target": 1.1, "max_samples": 3000, "validate_every_samples": None}
    metrics = run(task="time_to_accuracy", loop=loop, model=MLP, data=DIGITS, measure=measure).metrics
    assert metrics["epoch_samples"].value == 1432, "1797 digits less the validation set, in whole batches of 8"
    assert metrics["validations"].value == 3, "after 1432, 2864 and 3000 samples"


@BOTH_LOOPS
def test_an_endless_stream_needs_validate_every_samples(run, loop):
    measure = {**AIM, "target": 0.5, "validate_every_samples": None}
    result = run(task="time_to_accuracy", loop=loop, measure=measure)
    assert "measure.validate_every_samples" in result.reason
    assert result.metrics["epoch_samples"].reason.startswith("no pass ended, and the loader does not report")


@BOTH_LOOPS
def test_a_module_that_does_not_validate_can_reach_no_target(run, own_module, loop):
    result = run(
        task="time_to_accuracy", loop=loop, model=own_module("return self.weight.sum()"), measure={**AIM, "target": 0.5}
    )
    assert result.outcome is Outcome.unsupported
    assert "validat" in result.reason


ROWS = """
import lightning.pytorch as pl, torch
from torch.utils.data import DataLoader, TensorDataset
class Rows(pl.LightningDataModule):
    def __init__(self, batch_size):
        super().__init__()
        self.batch_size = batch_size
    def train_dataloader(self):
        return DataLoader(TensorDataset(torch.ones(100, 1)), self.batch_size, drop_last=True)
    def val_dataloader(self):
        return DataLoader(TensorDataset(torch.ones(20, 1)), 10)
class Falling(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(1))
    def training_step(self, batch, batch_idx):
        return (self.weight * batch[0]).mean()
    def validation_step(self, batch, batch_idx):
        self.log("weight", self.weight.detach().sum(), batch_size=len(batch[0]))
"""


@pytest.fixture
def rows(tmp_path):
    """A module whose weight falls by 0.1 a step, on a set of 100 rows: twelve batches of 8 an epoch."""
    (tmp_path / "rows_of_ones.py").write_text(ROWS)
    return {"model": {"_target_": "rows_of_ones.Falling"}, "data": {"_target_": "rows_of_ones.Rows"}}


@BOTH_LOOPS
def test_a_dataset_with_rows_gives_the_samples_of_a_pass(run, rows, loop):
    """Its loader drops the last four of 100."""
    assert run(loop=loop, **rows).metrics["epoch_samples"].value == 96


@pytest.mark.parametrize(
    ("changes", "samples"),
    [
        ({"loop": "lightning"}, 2 * 160),
        ({"loop": "raw"}, 2 * 160),
        ({"trainer": {"strategy": "auto", "accumulate_grad_batches": 3}}, 5 * 168),
    ],
)
def test_samples_between_validations_are_counted_across_epochs_in_whole_optimiser_steps(run, rows, changes, samples):
    """160 samples are 20 batches, more than an epoch has; with three batches a step they are 21. 1 - 0.1 n <= -2.45."""
    aim = {"quality_metric": "weight", "quality_better": "min", "target": -2.45, "validate_every_samples": 160}
    metrics = run(task="time_to_accuracy", measure={**MEASURE, **aim}, **rows, **changes).metrics
    assert metrics["samples_to_target"].value == samples
    assert metrics["validations"].value == samples // (168 if samples % 160 else 160)


@pytest.mark.real
@BOTH_LOOPS
def test_two_ranks_train_to_one_target(spec, tmp_path, loop):
    made = spec(devices=2, task="time_to_accuracy", loop=loop, model=MLP, data=DIGITS, measure={**AIM, "target": 0.6})
    first, second = run_ranks(made, tmp_path)
    assert (first.outcome, second.outcome) == (Outcome.measured, Outcome.measured), first.traceback
    for name in ("samples_to_target", "time_to_target_seconds", "quality"):
        assert first.metrics[name].value == pytest.approx(second.metrics[name].value), name
    assert first.metrics["samples_to_target"].value % 400 == 0


def test_offline_inference_has_a_rate_and_no_latencies(run):
    result = run(task="inference", model=MLP, data=DIGITS, measure={**MEASURE, "scenario": "offline"})
    assert result.outcome is Outcome.measured, result.traceback
    value = {name: metric.value for name, metric in result.metrics.items()}
    assert value["samples_per_second"] == pytest.approx(value["window_samples"] / value["window_seconds"])
    assert value["model_flops_per_sample"] == 2 * (64 * 16 + 16 * 16 + 16 * 10), "the forward pass alone"
    assert result.traits.flops == value["model_flops_per_sample"], "a projection starts from the same operations"
    assert "measure.scenario=single_stream" in result.metrics["query_seconds_p50"].reason
    assert (result.effective.loop, result.effective.optimizer) == ("inference", "none")


def test_a_single_stream_has_the_percentiles_that_its_queries_support(run):
    measure = {**MEASURE, "min_steps": 120, "max_steps": 120, "scenario": "single_stream"}
    metrics = run(task="inference", batch_size=1, model=MLP, data=DIGITS, measure=measure).metrics
    assert 0 < metrics["query_seconds_p50"].value <= metrics["query_seconds_p90"].value
    assert metrics["query_seconds_p50"].value <= metrics["step_seconds_p50"].value, "a step fetches its data, too"
    assert "120 queries" in metrics["query_seconds_p99"].reason


ANSWER = """
    def predict_step(self, batch, batch_idx):
        assert not self.training
        assert torch.is_inference_mode_enabled()
        assert torch.is_autocast_enabled('cpu') == {autocast}
        assert self.weight.dtype == torch.{dtype}
        return self.weight * batch
"""


@pytest.mark.parametrize(
    ("precision", "autocast", "dtype"),
    [("32-true", False, "float32"), ("bf16-mixed", True, "float32"), ("bf16-true", False, "bfloat16")],
)
def test_predict_step_runs_in_the_configs_precision(run, own_module, precision, autocast, dtype):
    model = own_module("return None", ANSWER.format(autocast=autocast, dtype=dtype))
    result = run(task="inference", precision=precision, model=model)
    assert result.outcome is Outcome.measured, result.traceback


def test_a_predict_step_without_batch_idx_works(run, own_module):
    model = own_module("return None", "    def predict_step(self, batch):\n        return batch @ self.weight[None]\n")
    result = run(task="inference", model=model)
    assert result.outcome is Outcome.measured, result.traceback
    assert result.metrics["model_flops_per_sample"].value == 2


def test_a_module_without_predict_step_or_forward_gets_a_remedy(run, own_module):
    result = run(task="inference", model=own_module("return None"))
    assert "has neither predict_step nor forward" in result.reason


def test_the_data_modules_predict_dataloader_is_used(run, tmp_path):
    (tmp_path / "predict_data.py").write_text(
        "from accelsweep.testing.calibration import TimedData, _TimedBatches, make_loader\n"
        "class Data(TimedData):\n"
        "    def setup(self, stage): assert stage == 'predict'\n"
        "    def train_dataloader(self): raise AssertionError('not to be trained on')\n"
        "    def predict_dataloader(self): return make_loader(_TimedBatches(8, 0.0, 5))\n"
    )
    model = {"_target_": "identity_model.Module"}
    (tmp_path / "identity_model.py").write_text(
        "import lightning.pytorch as pl\nclass Module(pl.LightningModule):\n    def forward(self, x): return x\n"
    )
    result = run(task="inference", model=model, data={"_target_": "predict_data.Data"})
    assert result.outcome is Outcome.measured, result.traceback
    assert result.metrics["epoch_ends_in_window"].value > 0


PREDICTING = """
import lightning.pytorch as pl, torch
from torch.utils.data import DataLoader
class Predicting(pl.LightningModule):
    def __init__(self, batch_size):
        super().__init__()
        self.batch_size = batch_size
    def forward(self, x):
        return x
    def predict_dataloader(self):
        return DataLoader(torch.full((40, 3), 7.0), self.batch_size)
class Both(Predicting):
    def forward(self, x):
        assert (x == 7).all(), "not to be trained on"
        return x
    def train_dataloader(self):
        return DataLoader(torch.ones(40, 3), self.batch_size)
"""


@pytest.mark.parametrize("module", ["Predicting", "Both"])
def test_the_modules_predict_dataloader_is_used(run, tmp_path, module):
    (tmp_path / "predicting.py").write_text(PREDICTING)
    data = {"_target_": "accelsweep.workloads.data_module.ModuleData"}
    result = run(task="inference", model={"_target_": f"predicting.{module}"}, data=data)
    assert result.outcome is Outcome.measured, result.traceback
    assert result.metrics["epoch_ends_in_window"].value > 0


def test_inference_refuses_trainer_arguments(run):
    result = run(task="inference", model=MLP, data=DIGITS, trainer={"gradient_clip_val": 1.0})
    assert (result.outcome, "task=inference has no trainer.gradient_clip_val=1.0: remove it" in result.reason) == (
        Outcome.unsupported,
        True,
    )


@pytest.mark.real
def test_each_rank_has_its_own_copy_and_all_samples_count(spec, tmp_path):
    first, second = run_ranks(spec(devices=2, task="inference", model=MLP, data=DIGITS), tmp_path)
    assert (first.outcome, second.outcome) == (Outcome.measured, Outcome.measured), first.traceback
    assert first.effective.strategy == "one copy per rank"
    assert first.metrics["window_samples"].value == 2 * 8 * first.metrics["window_steps"].value
