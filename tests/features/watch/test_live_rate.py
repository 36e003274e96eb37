"""A training's rate against the measured one: what a real loop of torch shows, on a clock that the test moves."""

from __future__ import annotations

import shutil
import sys
from dataclasses import replace

import pytest
import torch
from torch.optim.optimizer import _global_optimizer_post_hooks
from torch.utils.data import DataLoader, TensorDataset, dataloader, default_collate

from accelsweep import reporting
from accelsweep.devices.cpu import machine_identity
from accelsweep.features.watch import live_rate, training_observer
from accelsweep.features.watch.live_rate import (
    FOREIGN_STEPS,
    METRIC,
    WARMUP_STEPS,
    LiveRate,
    active_mlflow_run,
    say_on_stderr,
)
from accelsweep.features.watch.measured_rate import Expectation, MeasuredRate

MEASURED = MeasuredRate(
    setting="a",
    label="batch 8",
    samples_per_second=80.0,
    runs=3,
    measured_on="2026-11-20",
    machine=machine_identity(),
    host="node7",
    hardware={},
    software={},
    batch_size=8,
    global_batch_size=8,
    world_size=1,
    accelerator="cpu",
    precision="32-true",
    threads_per_rank=torch.get_num_threads(),
)


class Loop:
    """A training loop whose steps take as long as the test says, watched by a LiveRate."""

    def __init__(self, monkeypatch, *rates, **options):
        """`rates` are those that the sweep measured."""
        self.now, self.said, self.loading_seconds = 100.0, [], 0.0
        for module in (live_rate, training_observer):
            monkeypatch.setattr(module, "perf_counter", lambda: self.now)
        self.model = torch.nn.Linear(3, 2)
        self.optimizers = optimizers(self.model)
        self.loader = DataLoader(TensorDataset(torch.zeros(1600, 3)), 8, collate_fn=self.load)
        self.batches = iter(self.loader)
        named = options.pop("is_named", False)
        self.live = LiveRate(Expectation("mine", rates or (MEASURED,), named, 300.0), self.said.append, **options)
        self.live.start()

    def load(self, samples):
        """Collate a batch, which takes `loading_seconds`."""
        self.now += self.loading_seconds
        return default_collate(samples)

    def step(self, seconds, batches=1, autocast=False):
        """Make one step, with every optimiser; loading its batches comes on top of `seconds`."""
        for _ in range(batches):
            batch = next(self.batches, None)
            if batch is None:
                self.batches = iter(self.loader)
                batch = next(self.batches)
            with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
                loss = self.model(batch[0]).sum()
            loss.backward()
        self.now += seconds
        for optimizer in self.optimizers:
            optimizer.step()

    def train(self, steps, seconds, **options):
        """Make steps; comparisons that are due are waited for."""
        for _ in range(steps):
            self.step(seconds, **options)
            if self.live._thread.is_alive():
                self.live._thread.join(20)

    def train_for(self, total_seconds, seconds, **options):
        """Make steps of `seconds` each."""
        self.train(round(total_seconds / seconds), seconds, **options)


def optimizers(model, count=1):
    return [torch.optim.SGD(model.parameters(), 0.1) for _ in range(count)]


@pytest.fixture
def loop(monkeypatch):
    """Return a function that starts a watched loop; what is left of it is removed afterwards."""
    started = []

    def start(*rates, **options):
        started.append(Loop(monkeypatch, *rates, **options))
        return started[-1]

    before = dataloader._BaseDataLoaderIter.__next__, torch.autocast.__enter__, len(_global_optimizer_post_hooks)
    yield start
    for each in started:
        each.live.close()
    assert (
        dataloader._BaseDataLoaderIter.__next__,
        torch.autocast.__enter__,
        len(_global_optimizer_post_hooks),
    ) == before


def test_a_training_is_compared_after_a_minute_and_then_every_five(loop):
    training = loop()
    training.train_for(65, 0.2)
    assert len(training.said) == 1
    assert training.said[0].startswith(
        "50 % of what was measured here on 2026-11-20 (40.0 of 80.0 samples/s, batch 8): "
    )
    training.train_for(290, 0.2)
    assert len(training.said) == 1
    training.train_for(20, 0.2)
    assert len(training.said) == 2


def test_a_training_as_fast_as_measured_names_no_cause(loop):
    training = loop()
    training.train_for(65, 0.1)
    assert training.said == ["100 % of what was measured here on 2026-11-20 (80.0 of 80.0 samples/s, batch 8)"]


def test_the_end_of_a_training_is_compared_as_a_whole(loop):
    training = loop()
    training.train_for(65, 0.1)
    training.train_for(63, 0.3)
    training.live.close()
    training.live.close()
    *_, last = training.said
    assert last.startswith("the whole training: 67 % of what was measured here")
    assert len(training.said) == 2
    training.train(3, 0.1)
    assert len(training.said) == 2, "nothing is watched any more"


def test_pauses_are_no_part_of_the_rate_but_stated(loop):
    training = loop()
    for _ in range(8):
        training.train(59, 0.1)
        training.train(1, 2.1)
    (line,) = training.said
    assert "100 % of what was measured" in line
    assert line.endswith(". Pauses, such as evaluations, took another 26 % of the time")


def test_steps_that_are_all_slow_are_no_pauses(loop):
    training = loop()
    training.train(WARMUP_STEPS + 1, 0.1)
    training.train_for(65, 5.0)
    (line,) = training.said
    assert line.startswith("2 % of what was measured here"), line
    assert "Pauses" not in line


def test_waiting_for_data_is_a_cause(loop, monkeypatch):
    training = loop()
    training.loading_seconds = 0.08
    training.train(340, 0.12)
    assert "the training waits for its data loaders for 40 % of the time" in training.said[0]


@pytest.mark.parametrize(
    ("different", "cause"),
    [
        ({"hardware": {"host": "Another CPU"}}, "the host was Another CPU in the sweep and is "),
        ({"software": {"torch": "1.0"}}, "torch was 1.0 in the sweep and is "),
        ({"threads_per_rank": 77}, "; it used 77 in the sweep"),
    ],
)
def test_what_differs_from_the_sweep_is_a_cause(loop, different, cause):
    training = loop(replace(MEASURED, **different))
    training.train_for(65, 0.2)
    assert cause in training.said[0]


def test_accumulated_batches_are_one_step_with_more_samples(loop):
    training = loop()
    training.train_for(70, 0.4, batches=4)
    assert training.said[0].startswith("100 % of")


def test_autocast_shows_the_precision(loop):
    training = loop(MEASURED, replace(MEASURED, setting="b", label="batch 8 | bf16-mixed", precision="bf16-mixed"))
    training.train(WARMUP_STEPS + 1, 0.1, autocast=True)
    training.train_for(65, 0.1)
    assert training.said[0].endswith("batch 8 | bf16-mixed)")


def test_two_optimisers_that_take_turns_make_one_step_together(loop):
    training = loop()
    training.optimizers += optimizers(training.model)
    training.train_for(65, 0.1)
    assert training.said[0].startswith("100 % of")


def test_a_replaced_optimiser_is_watched_on(loop):
    training = loop()
    training.train_for(30, 0.1)
    training.optimizers[:] = optimizers(training.model)
    training.train_for(35, 0.1)
    assert training.said[0].startswith("100 % of")


def test_a_setting_that_was_not_measured_is_said_once_and_nothing_is_watched(loop):
    training = loop(replace(MEASURED, batch_size=16))
    training.train_for(400, 0.2)
    (line,) = training.said
    assert line.startswith("this training uses batch 8, 32-true, 1 rank on cpu, which mine has not measured")


def test_a_loop_without_loaders_is_compared_by_its_steps_with_a_named_setting(loop):
    training = loop(is_named=True)
    training.batches = iter([[torch.zeros(5, 3)]] * 4000)
    training.train_for(65, 0.2)
    assert training.said[0].startswith("50 % of")


def test_a_loop_without_loaders_needs_a_setting_whose_steps_are_alike(loop):
    training = loop(replace(MEASURED, global_batch_size=None), is_named=True)
    training.batches = iter([[torch.zeros(5, 3)]] * 4000)
    training.train_for(65, 0.2)
    assert training.said == ["this training uses no DataLoader of torch, so its samples cannot be counted"]


def test_a_rate_of_another_machine_names_it(loop):
    training = loop(replace(MEASURED, machine="another"))
    training.train_for(65, 0.1)
    assert "measured on node7 on 2026-11-20" in training.said[0]


def test_whatever_goes_wrong_ends_the_watching_with_one_warning(loop):
    def broken():
        raise OSError("the server is gone")

    training = loop(metric_logger=broken)
    training.train_for(400, 0.2)
    assert training.said == ["stopped comparing this training: OSError: the server is gone"]


def test_a_line_that_cannot_be_printed_does_not_reach_the_training(loop):
    training = loop()
    training.live._say = lambda _: 1 / 0
    training.train_for(400, 0.2)
    training.live.close()


def test_a_hook_of_the_user_after_ours_is_still_called_when_watching_ends(loop):
    from torch.optim.optimizer import register_optimizer_step_post_hook

    training, called = loop(replace(MEASURED, batch_size=16)), []
    theirs = register_optimizer_step_post_hook(lambda *_: called.append(1))
    training.train_for(10, 0.2)
    theirs.remove()
    assert len(called) == 50
    assert len(training.said) == 1


def test_a_logger_that_fails_is_left_alone_and_the_comparison_goes_on(loop):
    def failing(*_):
        raise OSError("no route to host")

    training = loop(metric_logger=lambda: failing)
    training.train_for(700, 0.2)
    assert [line[:20] for line in training.said[:2]] == ["50 % of what was mea", "the ratio is no long"]
    assert len(training.said) == 4, "the ratio, the warning, and two more ratios"


def test_an_empty_parameter_group_is_no_obstacle(loop):
    training = loop()
    groups = [{"params": []}, {"params": list(training.model.parameters())}]
    training.optimizers[:] = [torch.optim.SGD(groups, 0.1)]
    training.train_for(65, 0.2)
    assert training.said[0].startswith("50 % of")


def test_an_evaluation_before_the_training_does_not_hide_its_batches(loop):
    training = loop()
    for _ in DataLoader(TensorDataset(torch.zeros(3200, 3)), 16):
        pass
    training.train_for(65, 0.2)
    assert training.said[0].startswith("50 % of")


def test_short_last_batches_count_as_they_are(loop):
    training = loop()
    training.loader = DataLoader(TensorDataset(torch.zeros(36, 3)), 8)  # 8, 8, 8, 8, 4
    training.batches = iter(training.loader)
    training.train_for(65, 0.1)
    assert training.said[0].startswith(("89 % of", "90 % of", "91 % of"))


def test_data_that_comes_in_bursts_is_waited_for_and_no_pause(loop):
    training = loop()
    for _ in range(33):
        training.train(9, 0.1)
        training.loading_seconds = 1.0
        training.train(1, 0.1)
        training.loading_seconds = 0.0
    (line,) = training.said
    assert line.startswith(("50 % of", "51 % of")), line
    assert "waits for its data loaders for 50 % of the time" in line
    assert "Pauses" not in line


def test_a_step_that_waits_for_the_device_of_earlier_ones_is_no_pause(loop):
    training = loop()
    training.train(WARMUP_STEPS + 1, 0.2)
    for _ in range(16):
        training.train(19, 0.02)
        training.train(1, 3.62)
    (line,) = training.said
    assert line.startswith("50 % of"), line
    assert "Pauses" not in line


def test_another_training_in_the_same_process_is_compared_anew(loop):
    larger = replace(MEASURED, setting="b", label="batch 16", batch_size=16, global_batch_size=16)
    training = loop(MEASURED, larger)
    training.train_for(65, 0.1)
    first = training.optimizers[:]
    training.optimizers[:] = optimizers(training.model)
    training.loader = DataLoader(TensorDataset(torch.zeros(1600, 3)), 16)
    training.batches = iter(training.loader)
    training.train_for(75, 0.2)
    assert first, "the earlier optimiser is still there"
    assert [line.partition(" of")[0] for line in training.said] == ["100 %", "the whole training: 100 %", "100 %"]
    assert training.said[2].endswith("batch 16)")


def test_the_precision_of_another_training_is_seen_too(loop):
    mixed = replace(MEASURED, setting="b", label="bf16-mixed", precision="bf16-mixed")
    training = loop(MEASURED, mixed)
    training.train_for(65, 0.1)
    first, training.optimizers[:] = training.optimizers[:], optimizers(training.model)
    training.train(FOREIGN_STEPS + WARMUP_STEPS + 1, 0.1, autocast=True)
    training.train_for(65, 0.1)
    assert first, "the earlier optimiser is still there"
    assert training.said[-1].endswith("bf16-mixed)"), training.said


def test_a_named_setting_that_the_training_does_not_have_is_said(loop):
    training = loop(replace(MEASURED, batch_size=64, label="batch 64"), is_named=True)
    training.train_for(10, 0.2)
    assert training.said == [
        "this training uses batch 8, 32-true, 1 rank on cpu, and is compared with 'batch 64', as you asked"
    ]


def test_a_second_watcher_in_the_process_does_nothing(loop):
    training = loop()
    second = LiveRate(Expectation("mine", (MEASURED,), False, 300.0), training.said.append)
    second.start()
    training.train_for(65, 0.1)
    second.close()
    assert len(training.said) == 1


def test_nothing_is_compared_in_a_run_of_a_sweep(loop, monkeypatch):
    monkeypatch.setattr(reporting, "is_measured", True)
    training = loop()
    training.train_for(65, 0.1)
    training.live.close()
    assert training.said == []


def test_a_compiled_step_of_an_optimiser_makes_no_difference(loop):
    training = loop()
    (optimizer,) = training.optimizers
    optimizer.step = torch.compile(optimizer.step, backend="eager")
    training.train_for(10, 0.1)
    assert training.said == []


def test_a_scripted_module_may_use_autocast(loop):
    loop()

    class Casting(torch.nn.Module):
        def forward(self, x):
            with torch.autocast("cpu", torch.bfloat16):
                return x @ x

    assert torch.jit.script(Casting())(torch.ones(2, 2)).dtype is torch.bfloat16


def test_the_ratio_goes_to_the_open_mlflow_run(loop, tmp_path, monkeypatch, empty_database):
    import mlflow

    shutil.copy(empty_database, tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    with mlflow.start_run() as run:
        assert active_mlflow_run() is not None
        training = loop()
        training.train_for(65, 0.2)
    (found,) = mlflow.MlflowClient().get_metric_history(run.info.run_id, METRIC)
    assert found.value == pytest.approx(0.5, abs=0.01)
    assert found.step == pytest.approx(60 / 0.2 + WARMUP_STEPS, abs=1)
    assert active_mlflow_run() is None


def test_a_line_is_written_above_progress_bars(capsys, monkeypatch):
    from tqdm import tqdm

    with tqdm(total=3, ascii=True) as bar:
        bar.update()
        say_on_stderr("fine")
    assert "\raccelsweep: fine\n" in capsys.readouterr().err.replace(" " * 10, "")
    monkeypatch.delitem(sys.modules, "tqdm")
    say_on_stderr("fine")
    assert capsys.readouterr().err == "accelsweep: fine\n"
