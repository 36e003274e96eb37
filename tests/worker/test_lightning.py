"""The length of training that modules see, and other properties of a run's Trainer."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest
from one_rank import MEASURE, SGD
from own_models import BATCH_SIZE, LOSS, PRELUDE

NUMBERS = itertools.count()
BATCHES = 5
"""Batches of an epoch of the module's data: 40 rows."""

STEPS = 4 + 40
"""Steps of warm-up and window, as `MEASURE` has them at most."""


@pytest.fixture
def asking(run, tmp_path):
    """Run `class Own(Module)` with this body, on 40 rows in batches of 8, for 4 steps of warm-up and 40 more."""

    def go(body, trainer=None, measure=None, **more):
        name = f"own_asking_{next(NUMBERS)}"
        (tmp_path / f"{name}.py").write_text(f"{PRELUDE}\nclass Own(Module):\n{body}")
        return run(
            batch_size=BATCH_SIZE,
            model={"_target_": f"{name}.Own"},
            data={"_target_": f"{name}.Data"},
            optimizer=SGD,
            trainer={"strategy": "auto", **(trainer or {})},
            measure={**MEASURE, "min_steps": 40, **(measure or {})},
            **more,
        )

    return go


TOLD = """
    def configure_optimizers(self):
        self.told = self.trainer.max_epochs, self.trainer.max_steps, self.trainer.estimated_stepping_batches
        return torch.optim.SGD(self.parameters(), lr=0.1)
    def on_validation_epoch_end(self):
        self.log_dict({f"told{number}": float(value) for number, value in enumerate(self.told)})
    def training_step(self, batch, batch_idx):
        self.log_dict({f"told{number}": float(value) for number, value in enumerate(self.told)})
        return cross_entropy(self.layer(batch[0]), batch[1])
"""


def told(result):
    assert (result.outcome, result.reason) == ("measured", None)
    return tuple(int(result.metrics[f"logged.told{number}"].value) for number in range(3))


@pytest.mark.parametrize(
    ("trainer", "expected"),
    [
        ({}, (9, 45, 45)),
        ({"max_epochs": 90}, (90, 450, 450)),
        ({"max_epochs": 2}, (9, 45, 45)),
        ({"max_epochs": -1}, (9, 45, 45)),
        ({"max_steps": 1000}, (200, 1000, 1000)),
        ({"max_steps": 7}, (9, 44, 44)),
        ({"max_epochs": 90, "max_steps": 100}, (90, 100, 100)),
        ({"accumulate_grad_batches": 3}, (10, 20, 20)),
    ],
    ids=str,
)
def test_a_module_sees_the_configs_length_or_more_if_the_phase_needs_it(asking, trainer, expected):
    """44 steps of 5 an epoch; three of them accumulated, 48 of them, with two optimiser steps an epoch."""
    assert told(asking(TOLD, trainer)) == expected


def test_the_run_ends_by_its_steps_whatever_max_epochs_says(asking):
    for trainer in ({"max_epochs": 1}, {"max_steps": 3}):
        assert asking(TOLD, trainer).metrics["window_steps"].value == 40


def test_the_quality_phase_has_a_length_of_its_own(asking):
    """168 samples are four passes over 40 rows, and one batch more."""
    measure = {"quality_samples": 168, "quality_metric": "val_accuracy"}
    assert told(asking(TOLD, measure=measure)) == (5, 25, 25)


def test_training_to_a_target_is_as_long_as_max_samples_or_max_epochs(asking):
    aim = {"quality_metric": "val_accuracy", "target": 2.0, "max_samples": 200}
    chased = {"measure": aim, "task": "time_to_accuracy"}
    result = asking(TOLD, **chased)
    assert told(result) == (5, 25, 25)
    result = asking(TOLD, {"max_epochs": 3}, measure=aim | {"max_samples": None}, task="time_to_accuracy")
    assert told(result) == (3, 15, 15)
    assert result.metrics["validations"].value == 3, "it ends there"
    result = asking(TOLD, measure=aim | {"max_samples": None}, task="time_to_accuracy")
    assert "which has no limit: set measure.max_samples or trainer.max_epochs" in result.reason


COSINE = """
    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1)
        return [optimizer], [torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=self.trainer.max_epochs)]
    def training_step(self, batch, batch_idx):
        rate = self.optimizers().param_groups[0]["lr"]
        assert getattr(self, "last", 1.0) >= rate, "it goes up again"
        self.last = rate
        return cross_entropy(self.layer(batch[0]), batch[1])
"""


def test_a_cosine_over_the_epochs_falls_from_begin_to_end(asking):
    """Over 9 epochs, of which the last one is cut off."""
    result = asking(COSINE)
    assert (result.outcome, result.reason) == ("measured", None)
    expected = 0.05 * (1 + math.cos(math.pi * 8 / 9))
    assert result.metrics["learning_rate"].value == pytest.approx(expected)


SCHEDULES = {
    "OneCycleLR by epochs": "OneCycleLR(optimizer, 0.1, epochs=self.trainer.max_epochs, steps_per_epoch=5)",
    "OneCycleLR by estimated_stepping_batches": (
        "OneCycleLR(optimizer, 0.1, total_steps=self.trainer.estimated_stepping_batches)"
    ),
    "PolynomialLR by max_steps": "PolynomialLR(optimizer, total_iters=self.trainer.max_steps)",
}


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_schedule_over_all_steps_is_never_stepped_too_often(asking, schedule):
    """Nor in the phases after the window, each of which trains anew."""
    body = (
        "    def configure_optimizers(self):\n"
        "        optimizer = torch.optim.SGD(self.parameters(), lr=0.1)\n"
        f"        schedule = torch.optim.lr_scheduler.{SCHEDULES[schedule]}\n"
        '        return [optimizer], [{"scheduler": schedule, "interval": "step"}]\n'
    )
    measure = {"quality_samples": 400, "quality_metric": "val_accuracy", "probe_steps": 8, "matmul_steps": 5}
    result = asking(body, measure=measure)
    assert (result.outcome, result.reason) == ("measured", None)
    assert result.metrics["quality"].value is not None
    assert 0.0 < result.metrics["learning_rate"].value < 0.02, "close to the end of the schedule"


AVERAGING = """
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Sequential(torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 2))
    def configure_callbacks(self):
        return [pl.callbacks.StochasticWeightAveraging(swa_lrs=0.01, swa_epoch_start=0.5)]
"""


def test_weights_are_averaged_over_the_configured_share_of_epochs(asking):
    """SWA lets Lightning train an epoch longer for BatchNorm, which must end no run before its steps."""
    result = asking(AVERAGING, measure={"quality_samples": 200, "quality_metric": "val_accuracy"})
    assert (result.outcome, result.reason) == ("measured", None)
    assert result.metrics["window_steps"].value == 40
    assert result.metrics["quality"].value is not None


def test_an_endless_stream_of_known_size_makes_as_many_steps_as_the_epochs_that_were_asked_for(run, tmp_path):
    """1432 digits in batches of 8 are 179 steps an epoch."""
    from one_rank import DIGITS

    (tmp_path / "own_endless.py").write_text(
        PRELUDE
        + f"class Own(Module):\n{TOLD}".replace("batch[0]), batch[1]", "batch[0].flatten(1)[:, :4]), batch[1] % 2")
    )
    own = {"model": {"_target_": "own_endless.Own"}, "data": DIGITS, "measure": MEASURE}
    assert told(run(**own, trainer={"strategy": "auto", "max_epochs": 3})) == (3, 537, 537)


FOLDERS = """
    def on_train_start(self):
        import os
        for place in (self.trainer.log_dir, self.logger.log_dir, self.logger.save_dir, self.logger.root_dir):
            with open(os.path.join(place, "weights.txt"), "a") as file:
                file.write("here")
        print("PLACE", self.trainer.log_dir)
"""


def test_a_hook_that_writes_next_to_its_logs_writes_into_the_scratch_folder(asking, tmp_path, capfd, last_line):
    result = asking(FOLDERS)
    assert (result.outcome, result.reason) == ("measured", None)
    place = capfd.readouterr().out.partition("PLACE ")[2].splitlines()[0]
    last_line("trainer.log_dir, logger.log_dir in a hook", f"{result.outcome}: {place.replace(str(tmp_path), 'RUN')}")
    assert place == str(tmp_path / "scratch")
    assert not (tmp_path / "scratch").exists(), "it is gone with the run"


def test_the_loop_without_a_trainer_has_the_same_logger(run, tmp_path):
    (tmp_path / "own_folders.py").write_text(
        PRELUDE
        + "class Own(Module):\n    def training_step(self, batch, batch_idx):\n"
        + f"        open(self.logger.log_dir + '/x', 'w').close()\n        return {LOSS}\n"
    )
    own = {"model": {"_target_": "own_folders.Own"}, "data": {"_target_": "own_folders.Data"}}
    result = run(loop="raw", batch_size=BATCH_SIZE, optimizer=SGD, **own)
    assert (result.outcome, result.reason) == ("measured", None)
    assert not (tmp_path / "scratch").exists()


VALIDATION = """
class Forever(IterableDataset):
    def __iter__(self):
        while True:
            yield X[0], Y[0]
class Streamed(Data):
    def val_dataloader(self):
        endless = DataLoader(Forever(), batch_size=4)
        return {loaders}
class Looking(Module):
    def validation_step(self, batch, batch_idx, dataloader_idx=0):
        self.log("val_accuracy", 1.0, batch_size=4)
"""


@pytest.mark.parametrize(
    ("loop", "loaders", "named", "key"),
    [
        ("lightning", "endless", "val_dataloader of Streamed", "set +trainer.limit_val_batches=NUMBER"),
        ("lightning", "[loader(8), endless]", "val_dataloader[1] of Streamed", "measure.quality_samples=null"),
        ("raw", "endless", "val_dataloader of Streamed", "measure.quality_samples=null"),
    ],
)
def test_endless_validation_data_is_an_error_before_the_time_limit(
    spec, tmp_path, loop, loaders, named, key, last_line
):
    from one_rank import place_of_a_rank

    from accelsweep.records.run_files import read_rank_result
    from accelsweep.worker.main import run_rank

    name = f"own_endless_{next(NUMBERS)}"
    (tmp_path / f"{name}.py").write_text(PRELUDE + VALIDATION.format(loaders=loaders))
    own = {"model": {"_target_": f"{name}.Looking"}, "data": {"_target_": f"{name}.Streamed"}, "optimizer": SGD}
    measure = {**MEASURE, "quality_samples": 16, "quality_metric": "val_accuracy"}
    made = replace(spec(loop=loop, batch_size=BATCH_SIZE, measure=measure, **own), run_seconds=1.0)
    with place_of_a_rank(tmp_path):
        run_rank(made)
    result = read_rank_result(made.rank_result(0))
    last_line(f"endless validation data, {loop}", result.reason or result.metrics["quality"].reason)
    said = result.reason or result.metrics["quality"].reason
    assert f"{named} has no length, and yielded " in said
    assert key in said


def test_limit_val_batches_bounds_endless_validation_data(run, tmp_path):
    (tmp_path / "own_limited.py").write_text(PRELUDE + VALIDATION.format(loaders="endless"))
    own = {"model": {"_target_": "own_limited.Looking"}, "data": {"_target_": "own_limited.Streamed"}}
    measure = {**MEASURE, "quality_samples": 16, "quality_metric": "val_accuracy"}
    trainer = {"strategy": "auto", "limit_val_batches": 3}
    result = run(batch_size=BATCH_SIZE, optimizer=SGD, measure=measure, trainer=trainer, **own)
    assert (result.outcome, result.metrics["quality"].value) == ("measured", 1.0)
