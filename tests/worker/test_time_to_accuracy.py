"""Training to a target, with a fake clock, a fake device with a queue, and fake ranks."""

from __future__ import annotations

import math

import pytest
from fake_clock import FakeClock, FakeDevice, FakeGroup
from polling import PATIENCE_SECONDS
from tiny_sweep import CONFIG as SWEPT
from tiny_sweep import config_with, measure_sweep, plan_sweep

from accelsweep.errors import InputError
from accelsweep.results import Outcome
from accelsweep.worker.error_classification import Diverged
from accelsweep.worker.tasks import time_to_accuracy
from accelsweep.worker.tasks.time_to_accuracy import Target, TargetTraining


def config(devices=1, **measure):
    return config_with(batch_size=8, devices=devices, measure={"target": 0.9, **measure})


class FakeTraining:
    """A loop of steps that take 2 s on the device and validations that take 5 s on the host."""

    def __init__(self, values, *, group=None, loss=0.5, better="max", target=0.9, every=3, most=None):
        self.clock, self.log, self.loss = FakeClock(), [], loss
        self.device = FakeDevice(self.clock, self.log)
        target_rule = Target("val_accuracy", target, better, every, most)
        self.listener = TargetTraining(
            target_rule, device=self.device, group=group or FakeGroup(self.log), clock=self.clock
        )
        self.values, self.extra = iter(values), {}

    def run(self):
        self.listener.begin()
        for number in range(1, 100):
            self.device.work(2.0)
            self.clock.advance(self.extra.get(number, 0.0))
            enough = self.listener.step_done(8, self.loss)
            if enough or number % self.listener.every_steps == 0:
                self.clock.advance(5.0)
                enough = self.listener.validated({"val_accuracy": next(self.values)}) or enough
            if enough:
                break
        return self.listener.metrics()


def test_the_curve_has_the_training_time_of_each_step_and_validation():
    training = FakeTraining([0.5, 0.93])
    training.run()
    curve = training.listener.learning
    assert [(point.samples, point.seconds) for point in curve.losses] == [(8 * n, 2.0 * n) for n in range(1, 7)]
    assert [(point.samples, point.value, point.seconds) for point in curve.validations] == [
        (24, 0.5, 6.0),
        (48, 0.93, 12.0),
    ]


def test_the_time_to_the_target_excludes_validation():
    """Two rounds of three steps of 2 s; two validations of 5 s; the device's queue is waited for at each end."""
    metrics = FakeTraining([0.5, 0.93]).run()
    assert metrics["time_to_target_seconds"].value == pytest.approx(12.0)
    assert metrics["time_to_target_wall_seconds"].value == pytest.approx(22.0)
    assert metrics["quality_seconds"].value == pytest.approx(10.0)
    assert metrics["results_per_hour"].value == pytest.approx(300.0)
    assert metrics["samples_to_target"].value == 48
    assert (metrics["quality"].value, metrics["quality"].unit) == (0.93, "val_accuracy")
    assert metrics["validations"].value == 2


def test_a_stall_in_training_is_doubted_but_not_one_in_validation_or_a_restart_of_the_data():
    training = FakeTraining([0.1, 0.1, 0.93], every=10)
    training.extra = {15: 60.0, 21: 30.0}  # the twenty-first begins after a validation
    metrics = training.run()
    queued = 12.0  # what the device still has to do while the host stands still is done meanwhile
    assert metrics["time_to_target_seconds"].value == pytest.approx(30 * 2.0 + 60.0 + 30.0 - queued)
    (doubt,) = training.listener.doubts
    assert doubt.code == "stall"
    assert "% of the training to the target) longer than usual; without that it took" in doubt.message
    calm = FakeTraining([0.1, 0.1, 0.93], every=10)
    calm.run()
    assert calm.listener.doubts == ()


def test_a_machine_that_slept_during_training_is_doubted(monkeypatch):
    """The lid was closed for 40 s in the second round: durations do not hold them."""
    passed = iter([0.0, 0.0, 0.0, 0.0, 40.0, 40.0, 40.0, 40.0])
    monkeypatch.setattr(time_to_accuracy, "all_clocks", lambda: {"monotonic": 0.0, "wall": next(passed)})
    training = FakeTraining([0.5, 0.93])
    assert training.run()["time_to_target_seconds"].value == pytest.approx(12.0)
    assert [(doubt.code, doubt.disturbing) for doubt in training.listener.doubts] == [("clock_gap", True)]


def test_a_target_that_is_just_met_is_reached_in_either_direction():
    assert FakeTraining([0.9]).run()["samples_to_target"].value == 24
    metrics = FakeTraining([0.5, 0.2], better="min", target=0.2).run()
    assert metrics["samples_to_target"].value == 48


def test_a_missed_target_has_a_reason_with_the_best_value_and_no_time():
    metrics = FakeTraining([0.5, 0.8, 0.7], most=8).run()
    words = "target val_accuracy >= 0.9 not reached within 64 samples (best 0.8)"
    for name in ("time_to_target_seconds", "time_to_target_wall_seconds", "results_per_hour", "samples_to_target"):
        assert (metrics[name].value, metrics[name].reason) == (None, words)
    assert metrics["quality"].value == 0.7
    assert metrics["best_quality"].value == 0.8
    assert metrics["validations"].value == 3, "there is one after the last step, too"


def test_a_target_reached_with_the_last_sample_counts():
    assert FakeTraining([0.5, 0.95], most=4).run()["samples_to_target"].value == 32


def test_rank_0_decides_for_all_ranks_and_the_samples_of_all_count():
    log = []
    other = FakeTraining([0.95, 0.5], group=FakeGroup(log, rank=1, size=2, told=0), most=6)
    metrics = other.run()
    assert not other.listener.reached, "rank 0 says that it has not been reached"
    assert metrics["time_to_target_seconds"].value is None
    assert metrics["quality"].scope == "validation set, after 96 training samples"


def test_no_rank_starts_its_clock_before_the_others_have_validated():
    log = []
    training = FakeTraining([0.95], group=FakeGroup(log))
    training.run()
    assert log.count("barrier") == 2


def test_a_nan_loss_on_the_way_to_the_target_has_diverged():
    with pytest.raises(Diverged, match="step 0 on the way"):
        FakeTraining([0.5], loss=math.nan).run()


def test_a_nan_quality_is_not_recorded_as_a_value():
    metrics = FakeTraining([math.nan], most=3).run()
    assert metrics["quality"].value is None
    assert metrics["best_quality"].reason == "val_accuracy is nan"


def test_an_unlogged_target_metric_is_an_error_that_lists_the_logged_ones():
    training = FakeTraining([0.5])
    training.listener.begin()
    with pytest.raises(
        InputError, match=r"does not log 'val_accuracy' \(it logs: val_f1\): set measure.quality_metric"
    ):
        training.listener.validated({"val_f1": 0.5})


def test_a_validation_that_never_comes_is_an_error():
    training = FakeTraining([], every=1)
    training.listener.begin()
    training.listener.step_done(8, 0.5)
    with pytest.raises(InputError, match="no validation loop"):
        training.listener.step_done(8, 0.5)


def test_a_target_is_in_whole_optimiser_steps_of_all_ranks():
    target = Target.from_config(
        config(2, validate_every_samples=100, max_samples=1000), accumulate=3, epoch_samples=5000
    )
    assert (target.every_steps, target.max_steps) == (9, 63), "100 and 1000 samples in steps of 16, in threes"


def test_by_default_validation_runs_after_each_pass():
    target = Target.from_config(config(), accumulate=1, epoch_samples=1000)
    assert (target.every_steps, target.max_steps) == (125, None)


def test_data_of_unknown_length_needs_validate_every_samples():
    with pytest.raises(InputError, match=r"measure\.validate_every_samples"):
        Target.from_config(config(), accumulate=1, epoch_samples=None)


def test_each_validation_is_logged_once(capfd):
    FakeTraining([0.5, 0.93]).run()
    other = FakeGroup([], rank=1, size=2, told=1)
    FakeTraining([0.5], group=other).run()
    assert capfd.readouterr().err == (
        "accelsweep: val_accuracy 0.5 after 24 samples; target: val_accuracy >= 0.9\n"
        "accelsweep: val_accuracy 0.93 after 48 samples; target: val_accuracy >= 0.9\n"
    )


@pytest.mark.long  # executor/test_run_watchdog.py ends runs over their limit, the tests above say how far one came
@pytest.mark.real
def test_a_training_that_hits_the_time_limit_is_timed_out_and_reports_its_progress(tmp_path):
    """Nothing bounds its samples, and its target cannot be reached."""
    measure = {**SWEPT["measure"], "target": 1.1, "validate_every_samples": 320}
    settings = [{"task": "time_to_accuracy", "loop": "lightning", "measure": measure}]
    folder, block = plan_sweep(tmp_path / "home", settings, limits={"run_seconds": 10.0, "retries": 0})
    (record,), _ = measure_sweep(folder, block, within_seconds=PATIENCE_SECONDS)
    assert record.outcome is Outcome.timed_out
    assert record.reason.startswith("it ran longer than 10 s (limits.run_seconds); last lines of its log: ")
    assert "samples; target: val_accuracy >= 1.1" in record.reason
    assert record.metrics.keys() <= {"sampler_cpu_cores"}, "no rate and no time of a run that was ended"
