"""Training to a target, exactly: a clock moved by hand, a device with a queue, ranks that answer as told."""

from __future__ import annotations

import math

import pytest
from fake_clock import FakeClock, FakeDevice, FakeGroup
from polling import PATIENCE_SECONDS
from tiny_sweep import CONFIG as SWEPT
from tiny_sweep import config_with, measure_sweep, plan_sweep

from accelsweep.errors import InputError
from accelsweep.results import Outcome
from accelsweep.worker.errors import Diverged
from accelsweep.worker.tasks import time_to_accuracy
from accelsweep.worker.tasks.time_to_accuracy import Chase, Goal


def config(devices=1, **measure):
    return config_with(batch_size=8, devices=devices, measure={"target": 0.9, **measure})


class Race:
    """A loop of steps that take 2 s on the device and validations that take 5 s on the host."""

    def __init__(self, values, *, group=None, loss=0.5, better="max", target=0.9, every=3, most=None):
        self.clock, self.log, self.loss = FakeClock(), [], loss
        self.device = FakeDevice(self.clock, self.log)
        goal = Goal("val_accuracy", target, better, every, most)
        self.chase = Chase(goal, device=self.device, group=group or FakeGroup(self.log), clock=self.clock)
        self.values, self.extra = iter(values), {}

    def run(self):
        self.chase.begin()
        for number in range(1, 100):
            self.device.work(2.0)
            self.clock.advance(self.extra.get(number, 0.0))
            enough = self.chase.step_done(8, self.loss)
            if enough or number % self.chase.every_steps == 0:
                self.clock.advance(5.0)
                enough = self.chase.examined({"val_accuracy": next(self.values)}) or enough
            if enough:
                break
        return self.chase.metrics()


def test_the_time_to_the_target_is_that_of_training_alone():
    """Two rounds of three steps of 2 s; two validations of 5 s; the device's queue is waited for at each end."""
    found = Race([0.5, 0.93]).run()
    assert found["time_to_target_seconds"].value == pytest.approx(12.0)
    assert found["time_to_target_wall_seconds"].value == pytest.approx(22.0)
    assert found["quality_seconds"].value == pytest.approx(10.0)
    assert found["results_per_hour"].value == pytest.approx(300.0)
    assert found["samples_to_target"].value == 48
    assert (found["quality"].value, found["quality"].unit) == (0.93, "val_accuracy")
    assert found["validations"].value == 2


def test_a_stall_on_the_way_is_doubted_and_neither_one_while_validating_nor_a_restart_of_the_data():
    race = Race([0.1, 0.1, 0.93], every=10)
    race.extra = {15: 60.0, 21: 30.0}  # the twenty-first begins after a validation
    found = race.run()
    queued = 12.0  # what the device still has to do while the host stands still is done meanwhile
    assert found["time_to_target_seconds"].value == pytest.approx(30 * 2.0 + 60.0 + 30.0 - queued)
    (doubt,) = race.chase.doubts
    assert doubt.code == "stall"
    assert "% of the training to the target) longer than a usual one; without that it took" in doubt.message
    calm = Race([0.1, 0.1, 0.93], every=10)
    calm.run()
    assert calm.chase.doubts == ()


def test_a_machine_that_slept_on_the_way_is_doubted(monkeypatch):
    """The lid was closed for 40 s in the second round: durations do not hold them."""
    passed = iter([0.0, 0.0, 0.0, 0.0, 40.0, 40.0, 40.0, 40.0])
    monkeypatch.setattr(time_to_accuracy, "all_clocks", lambda: {"monotonic": 0.0, "wall": next(passed)})
    race = Race([0.5, 0.93])
    assert race.run()["time_to_target_seconds"].value == pytest.approx(12.0)
    assert [(doubt.code, doubt.disturbing) for doubt in race.chase.doubts] == [("clock_gap", True)]


def test_a_target_that_is_just_met_is_reached_and_smaller_is_better_where_the_config_says_so():
    assert Race([0.9]).run()["samples_to_target"].value == 24
    found = Race([0.5, 0.2], better="min", target=0.2).run()
    assert found["samples_to_target"].value == 48


def test_a_target_that_is_missed_has_a_reason_with_the_best_and_no_time():
    found = Race([0.5, 0.8, 0.7], most=8).run()
    words = "target val_accuracy >= 0.9 not reached within 64 samples (best 0.8)"
    for name in ("time_to_target_seconds", "time_to_target_wall_seconds", "results_per_hour", "samples_to_target"):
        assert (found[name].value, found[name].reason) == (None, words)
    assert found["quality"].value == 0.7
    assert found["best_quality"].value == 0.8
    assert found["validations"].value == 3, "there is one after the last step, too"


def test_a_target_reached_with_the_last_sample_counts():
    assert Race([0.5, 0.95], most=4).run()["samples_to_target"].value == 32


def test_the_ranks_do_what_rank_0_decides_and_all_their_samples_count():
    log = []
    other = Race([0.95, 0.5], group=FakeGroup(log, rank=1, size=2, told=0), most=6)
    found = other.run()
    assert not other.chase.reached, "rank 0 says that it has not been reached"
    assert found["time_to_target_seconds"].value is None
    assert found["quality"].scope == "validation set, after 96 training samples"


def test_no_rank_starts_its_clock_before_the_others_have_validated():
    log = []
    race = Race([0.95], group=FakeGroup(log))
    race.run()
    assert log.count("barrier") == 2


def test_a_loss_that_is_no_number_on_the_way_has_diverged():
    with pytest.raises(Diverged, match="step 0 on the way"):
        Race([0.5], loss=math.nan).run()


def test_a_quality_that_is_no_number_is_no_quality():
    found = Race([math.nan], most=3).run()
    assert found["quality"].value is None
    assert found["best_quality"].reason == "val_accuracy is nan"


def test_a_metric_that_validation_does_not_log_is_named_with_those_that_it_does():
    race = Race([0.5])
    race.chase.begin()
    with pytest.raises(InputError, match=r"logs no 'val_accuracy' \(it logs: val_f1\): set measure.quality_metric"):
        race.chase.examined({"val_f1": 0.5})


def test_steps_that_go_on_although_a_validation_is_due_mean_that_there_is_none():
    race = Race([], every=1)
    race.chase.begin()
    race.chase.step_done(8, 0.5)
    with pytest.raises(InputError, match="no validation loop"):
        race.chase.step_done(8, 0.5)


def test_a_goal_is_in_whole_optimiser_steps_of_all_ranks():
    goal = Goal.of(config(2, validate_every_samples=100, max_samples=1000), accumulate=3, epoch_samples=5000)
    assert (goal.every_steps, goal.max_steps) == (9, 63), "100 and 1000 samples in steps of 16, in threes"


def test_without_another_word_there_is_a_validation_after_each_pass():
    goal = Goal.of(config(), accumulate=1, epoch_samples=1000)
    assert (goal.every_steps, goal.max_steps) == (125, None)


def test_data_that_tells_no_length_needs_the_samples_between_validations():
    with pytest.raises(InputError, match=r"measure\.validate_every_samples"):
        Goal.of(config(), accumulate=1, epoch_samples=None)


def test_each_validation_is_told_once_as_it_comes(capfd):
    Race([0.5, 0.93]).run()
    other = FakeGroup([], rank=1, size=2, told=1)
    Race([0.5], group=other).run()
    assert capfd.readouterr().err == (
        "accelsweep: val_accuracy 0.5 after 24 samples, to be val_accuracy >= 0.9\n"
        "accelsweep: val_accuracy 0.93 after 48 samples, to be val_accuracy >= 0.9\n"
    )


@pytest.mark.long  # executor/test_monitor.py ends runs over their limit, the tests above say how far one came
@pytest.mark.real
def test_a_chase_that_runs_into_the_time_limit_is_timed_out_and_says_how_far_it_came(tmp_path):
    """Nothing bounds its samples, and its target cannot be reached."""
    measure = {**SWEPT["measure"], "target": 1.1, "validate_every_samples": 320}
    settings = [{"task": "time_to_accuracy", "loop": "lightning", "measure": measure}]
    folder, block = plan_sweep(tmp_path / "home", settings, limits={"run_seconds": 10.0, "retries": 0})
    (record,), _ = measure_sweep(folder, block, within_seconds=PATIENCE_SECONDS)
    assert record.outcome is Outcome.timed_out
    assert record.reason.startswith("it ran longer than 10 s (limits.run_seconds); last lines of its log: ")
    assert "samples, to be val_accuracy >= 1.1" in record.reason
    assert record.metrics == {}, "no rate and no time of a run that was ended"
