"""One rank from its spec to its result, for every way in which it can end."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch
from one_rank import BOTH_LOOPS, DIGITS, MEASURE, MLP, TIMED, TIMED_DATA, run_ranks
from own_models import PRELUDE

from accelsweep.core.recorded.outcome import Outcome
from accelsweep.state.progress import read_progress


@BOTH_LOOPS
def test_a_measured_rank_leaves_rates_steps_and_settings_that_agree(run, spec, loop):
    result = run(loop=loop)
    assert (result.outcome, result.reason, result.error_kind) == (Outcome.measured, None, "none")
    value = {name: metric.value for name, metric in result.metrics.items()}
    assert value["window_samples"] == value["window_steps"] * 8
    assert value["samples_per_second"] == pytest.approx(value["window_samples"] / value["window_seconds"])
    assert result.effective.loop == loop
    assert result.effective.precision == "32-true"
    assert result.effective.window_steps == value["window_steps"]
    assert result.effective.optimizer == "SGD"
    steps = pq.read_table(spec().rank_steps(0)).to_pydict()
    assert steps["phase"] == ["warmup"] * 4 + ["window"] * int(value["window_steps"])
    assert steps["step"] == list(range(len(steps["step"])))
    assert set(steps["samples"]) == {8}
    assert steps["train_loss"][-1] == pytest.approx(value["final_train_loss"])
    assert read_progress(spec().progress()) == len(steps["step"])
    assert {"before", "after"} == set(result.environment)


@pytest.mark.timing
@BOTH_LOOPS
def test_a_step_of_known_length_is_measured_as_that_long(run, loop):
    """A step that spins 15 ms longer is measured as 15 ms longer: what loop and machine cost is in both.

    No mean is shorter than the truth. Others may make steps longer: a pair is measured again, three times at most.
    """
    for _ in range(3):
        short, long = (spun(run, loop, seconds) for seconds in (0.005, 0.020))
        if long - short == pytest.approx(0.015, rel=0.2):
            return
    raise AssertionError(f"15 ms more were measured as {1000 * (long - short):.1f} ms more")


def spun(run, loop, seconds):
    """Return the length of half of the steps that spin so long, after 2 ms of waiting for data."""
    result = run(loop=loop, model={**TIMED, "seconds": seconds}, data={**TIMED_DATA, "wait_seconds": 0.002})
    assert result.metrics["step_seconds"].value >= seconds + 0.002
    return result.metrics["step_seconds_p50"].value


def test_a_slow_start_stays_out_of_the_rate_and_shows_as_first_step(run, ticking):
    result = run(model={**TIMED, "slow_warmup_steps": 2, "slow_factor": 50.0})
    assert result.metrics["step_seconds"].value == pytest.approx(0.002, rel=0.1)
    assert result.metrics["first_step_seconds"].value == pytest.approx(0.1, rel=0.1)


def test_a_level_that_changes_inside_the_window_is_doubted(run, ticking):
    """From 2 ms to 6 ms over the window: a drift that no fixed warm-up removes."""
    measure = {**MEASURE, "min_steps": 200, "max_steps": 200}
    result = run(model={**TIMED, "drift_per_step": 0.01}, measure=measure)
    assert "unsteady_window" in [doubt.code for doubt in result.doubts]


@pytest.mark.heavy
def test_a_module_that_keeps_something_of_every_step_is_doubted(run, own_module):
    """36 MiB a step, which no heap has left from before; the same code that keeps the last alone does not grow."""
    measure = {**MEASURE, "min_steps": 12, "max_steps": 12}
    for keep, doubts in (("[0:]", ["memory_grows"]), ("[-1:]", [])):
        body = f"self.kept = [*getattr(self, 'kept', []), torch.ones(9 << 20)]{keep}; return self.weight.sum()"
        found = [one for one in run(model=own_module(body), measure=measure).doubts if one.code == "memory_grows"]
        assert [one.code for one in found] == doubts
        assert all("a rank's memory on the host grew throughout the window" in one.message for one in found)


@pytest.mark.parametrize(
    ("stall", "code"),
    [("time.sleep(0.7)", "processes_stopped"), ("sum(range(10**8))", "stall")],
    ids=["a file system hangs", "a collection of garbage takes seconds"],
)
@BOTH_LOOPS
def test_one_giant_step_is_doubted_and_disturbs_the_run_only_where_nobody_worked(run, own_module, loop, stall, code):
    body = f"import time; self.n = getattr(self, 'n', 0) + 1; self.n == 20 and {stall}; return self.weight.sum()"
    result = run(loop=loop, model=own_module(body), measure={**MEASURE, "min_steps": 40})
    (doubt,) = (one for one in result.doubts if one.code in ("processes_stopped", "stall"))
    assert doubt.code == code
    value = {name: metric.value for name, metric in result.metrics.items()}
    assert value["stall_seconds"] > 0.5
    without = value["window_samples"] / (value["window_seconds"] - value["stall_seconds"])
    assert value["samples_per_second_without_stalls"] == pytest.approx(without)
    assert without > 2 * value["samples_per_second"]


def test_a_steady_window_has_no_second_rate_and_says_why(run, ticking):
    metrics = run(measure={**MEASURE, "min_steps": 40}).metrics
    assert metrics["stall_seconds"].value == 0.0
    assert metrics["samples_per_second_without_stalls"].reason == "no step took far longer than the others"


def test_a_window_cut_off_by_max_steps_is_doubted(run):
    result = run(measure={**MEASURE, "min_seconds": 60.0})
    assert "short_window" in [doubt.code for doubt in result.doubts]


@BOTH_LOOPS
def test_data_that_ends_is_begun_again_and_doubted(run, loop):
    result = run(loop=loop, data={**TIMED_DATA, "batches": 10})
    assert result.outcome is Outcome.measured
    assert result.metrics["epoch_ends_in_window"].value >= 2
    assert "epoch_boundary" in [doubt.code for doubt in result.doubts]


@BOTH_LOOPS
def test_data_that_ends_with_the_warm_up_is_begun_again_inside_the_window(run, loop):
    result = run(
        loop=loop, data={**TIMED_DATA, "batches": 44}, measure={**MEASURE, "warmup_steps": 44, "max_steps": 20}
    )
    assert result.metrics["epoch_ends_in_window"].value == 1


@BOTH_LOOPS
def test_running_out_of_memory_is_a_result_not_a_crash(run, own_module, loop):
    result = run(loop=loop, model=own_module("torch.empty(1 << 60)"))
    assert (result.outcome, result.error_kind) == (Outcome.out_of_memory, "out_of_memory")


@BOTH_LOOPS
@pytest.mark.parametrize("number", ["nan", "inf"])
def test_a_loss_that_is_no_number_has_diverged_and_keeps_its_rate(run, own_module, loop, number):
    result = run(loop=loop, model=own_module(f"return self.weight.sum() * float('{number}')"))
    assert (result.outcome, result.error_kind) == (Outcome.diverged, "diverged")
    assert result.reason == "the loss was not finite at step 0"
    assert result.metrics["samples_per_second"].value > 0


@BOTH_LOOPS
def test_an_error_of_the_users_code_is_a_result_with_their_traceback(run, own_module, loop, capfd):
    result = run(loop=loop, model=own_module("raise KeyError('no such label')"))
    assert (result.outcome, result.error_kind) == (Outcome.crashed, "user_exception")
    assert result.reason == "KeyError: 'no such label'"
    assert result.traceback.splitlines()[1].endswith("in training_step")
    assert "no such label" in capfd.readouterr().err


def test_code_that_exits_is_a_result_too(run, own_module):
    assert run(model=own_module("raise SystemExit(3)")).reason == "SystemExit: 3"


def test_a_signal_is_no_result_of_the_users_code(run, spec, own_module):
    """Lightning notes SIGTERM and ends training at the next batch; who sent it records why."""
    with pytest.raises(SystemExit):
        run(model=own_module("import os, signal; os.kill(os.getpid(), signal.SIGTERM); return self.weight.sum()"))
    assert not spec().rank_result(0).exists()


def test_a_module_that_cannot_be_imported_is_named(run):
    result = run(model={"_target_": "no_such_package.Module"})
    assert result.outcome is Outcome.crashed
    assert "no_such_package" in result.reason


@BOTH_LOOPS
def test_half_precision_with_scaling_on_a_cpu_is_unsupported_rather_than_another_precision(run, loop):
    result = run(loop=loop, precision="16-mixed")
    assert result.outcome is Outcome.unsupported
    assert "bf16-mixed" in result.reason


@BOTH_LOOPS
def test_an_accelerator_that_is_not_there_is_a_fault_of_the_machine(run, loop):
    if torch.cuda.is_available():
        pytest.skip("this machine has a CUDA device")
    result = run(loop=loop, accelerator="cuda")
    assert (result.outcome, result.error_kind) == (Outcome.crashed, "user_exception")
    assert "torch" in result.reason


@BOTH_LOOPS
@pytest.mark.parametrize("precision", ["32-true", "64-true", "bf16-true", "bf16-mixed"])
def test_the_precision_in_force_is_read_back(run, loop, precision):
    result = run(loop=loop, precision=precision, model=MLP, data=DIGITS)
    assert result.outcome is Outcome.measured, result.traceback
    assert result.effective.precision == precision


def test_a_batch_size_that_the_data_ignores_is_refused_with_what_to_change(run, tmp_path):
    (tmp_path / "deaf_data.py").write_text(
        "from accelsweep.workloads.calibration import TimedData\n"
        "class Deaf(TimedData):\n"
        "    def __init__(self, batch_size):\n"
        "        super().__init__(batch_size=3)\n"
    )
    result = run(data={"_target_": "deaf_data.Deaf"})
    assert result.outcome is Outcome.crashed
    assert "first batch holds 3 samples although batch_size=8" in result.reason


def test_what_a_run_decides_itself_is_refused_as_a_trainer_argument(run):
    assert "measure.min_steps" in run(trainer={"min_steps": 7}).reason
    assert "did you mean 'gradient_clip_val'?" in run(trainer={"gradient_clip_value": 1.0}).reason


def test_other_trainer_arguments_reach_lightning(run):
    result = run(trainer={"strategy": "auto", "accumulate_grad_batches": 3})
    assert result.outcome is Outcome.measured
    assert result.effective.global_batch_size == 24
    assert result.effective.window_steps % 3 == 0


def test_a_step_without_a_loss_is_measured_all_the_same(run, own_module):
    result = run(model=own_module("return self.weight.sum() if batch_idx < 5 else None"))
    assert result.outcome is Outcome.measured, result.traceback
    assert result.metrics["final_train_loss"].reason == "the training step gave no loss"


def test_what_the_module_logs_is_kept(run, own_module):
    body = "self.log('norm', self.weight.detach().sum()); return self.weight.sum() * 0"
    for loop in ("lightning", "raw"):
        assert run(loop=loop, model=own_module(body)).metrics["logged.norm"].value == 1.0


@BOTH_LOOPS
def test_what_is_logged_while_training_counts_as_it_was_last_and_over_an_epoch_as_its_mean(run, own_module, loop):
    body = (
        "self.log('number', float(batch_idx)); self.log('odd', float(batch_idx % 2), on_epoch=True, on_step=False)"
        "; return self.weight.sum() * 0"
    )
    result = run(loop=loop, model=own_module(body))
    steps = result.effective.warmup_steps + result.effective.window_steps
    assert result.metrics["logged.number"].value == steps - 1
    assert result.metrics["logged.odd"].value == pytest.approx(steps // 2 / steps)


@BOTH_LOOPS
def test_quality_follows_from_the_seed_and_the_samples_not_from_the_window(run, loop):
    def quality(seed, min_steps):
        measure = {**MEASURE, "min_steps": min_steps, "quality_samples": 800, "quality_metric": "val_accuracy"}
        metrics = run(seed=seed, loop=loop, model=MLP, data=DIGITS, measure=measure).metrics
        assert metrics["quality"].unit == "val_accuracy"
        assert metrics["quality"].scope == "validation set, after 800 training samples"
        return metrics["quality"].value

    first = quality(1, 20)
    assert 0.2 < first < 1.0
    assert quality(1, 40) == first
    assert quality(2, 20) != first


def test_both_loops_train_to_the_same_quality(run):
    measure = {**MEASURE, "quality_samples": 800, "quality_metric": "val_accuracy"}
    found = [
        run(loop=loop, model=MLP, data=DIGITS, measure=measure).metrics["quality"].value
        for loop in ("lightning", "raw")
    ]
    assert found[0] == pytest.approx(found[1], abs=1e-6)


def test_quality_that_nobody_asked_for_or_logs_has_a_reason(run):
    assert "not asked for" in run().metrics["quality"].reason
    measure = {**MEASURE, "quality_samples": 80, "quality_metric": "val_f1"}
    assert "it logs: val_accuracy" in run(measure=measure).metrics["quality"].reason


@pytest.mark.real
@BOTH_LOOPS
def test_two_ranks_measure_together(spec, tmp_path, loop):
    measure = {**MEASURE, "quality_samples": 800, "quality_metric": "val_accuracy"}
    made = spec(devices=2, loop=loop, model=MLP, data=DIGITS, measure=measure)
    first, second = run_ranks(made, tmp_path)
    assert (first.outcome, second.outcome) == (Outcome.measured, Outcome.measured), first.traceback
    assert first.effective.world_size == 2
    assert first.effective.global_batch_size == 16
    assert first.effective.strategy == "ddp"
    assert first.metrics["window_samples"].value == 2 * 8 * first.metrics["window_steps"].value
    assert first.metrics["rank_skew_seconds"].value >= 0
    assert first.metrics["quality"].value == pytest.approx(second.metrics["quality"].value)


@pytest.mark.real
def test_parameters_without_a_gradient_end_with_the_override_that_trains_them(spec, own_module, tmp_path, last_line):
    extra = "    def setup(self, stage):\n        self.unused = torch.nn.Parameter(torch.ones(1))\n"
    unused = {"devices": 2, "model": own_module("return self.weight.sum()", extra)}
    first = run_ranks(spec(**unused), tmp_path)[0]
    last_line("unused parameters, devices=2", first.reason)
    assert "set trainer.strategy=ddp_find_unused_parameters_true" in first.reason
    mended = run_ranks(spec(**unused, trainer={"strategy": "ddp_find_unused_parameters_true"}), tmp_path)[0]
    assert (mended.outcome, mended.reason) == (Outcome.measured, None)


def test_a_last_batch_of_one_sample_before_batchnorm_ends_with_drop_last(run, tmp_path, last_line):
    """33 rows in batches of 8."""
    (tmp_path / "own_norm.py").write_text(
        f"{PRELUDE}\n"
        "class Own(Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.layer = torch.nn.Sequential(torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 2))\n"
        "class OwnData(Data):\n    def train_dataloader(self):\n"
        "        return DataLoader(TensorDataset(X[:33], Y[:33]), batch_size=self.batch_size)\n"
    )
    result = run(model={"_target_": "own_norm.Own"}, data={"_target_": "own_norm.OwnData"})
    last_line("BatchNorm and a last batch of one sample", result.reason)
    assert "give the training DataLoader drop_last=True" in result.reason


DIVIDING = """
class OwnData(Data):
    def setup(self, stage):
        self.batch_size = self.batch_size // self.trainer.world_size
    def train_dataloader(self):
        return DataLoader(TensorDataset(torch.randn(400, 4), torch.randint(2, (400,))), self.batch_size)
"""


@pytest.mark.real
def test_data_that_divides_its_batch_among_ranks_is_measured_with_the_batch_of_all_of_them(spec, tmp_path, last_line):
    (tmp_path / "own_dividing.py").write_text(PRELUDE + DIVIDING)
    own = {"devices": 2, "model": {"_target_": "own_dividing.Module"}}
    first = run_ranks(spec(**own, data={"_target_": "own_dividing.OwnData"}), tmp_path)[0]
    last_line("data module divides by world_size, devices=2", first.reason)
    assert "holds 4 samples although batch_size=8: that is 8 / 2 ranks" in first.reason
    assert "add +data.batch_size=16" in first.reason
    mended = run_ranks(spec(**own, data={"_target_": "own_dividing.OwnData", "batch_size": 16}), tmp_path)[0]
    assert (mended.outcome, mended.reason) == (Outcome.measured, None)
    assert (mended.effective.batch_size, mended.effective.global_batch_size) == (8, 16)


@pytest.mark.real
def test_a_stall_in_one_rank_sets_the_pace_of_all(spec, tmp_path):
    """Alone, rank 0 would take 2 ms a step."""
    model = {**TIMED, "stalled_rank": 1, "stall_seconds": 0.01}
    first = run_ranks(spec(devices=2, model=model), tmp_path)[0]
    assert first.metrics["step_seconds"].value >= 0.012


def test_the_first_step_says_whether_compile_caches_were_empty(run, monkeypatch, tmp_path):
    assert run().metrics["first_step_seconds"].scope == "rank 0, compile caches empty"
    result = run(env={"TORCHINDUCTOR_CACHE_DIR": str(tmp_path)})
    assert result.metrics["first_step_seconds"].scope == "rank 0, warm cache"


@pytest.mark.real
def test_the_rank_that_fails_tells_why_and_its_peer_only_that_it_lost_touch(spec, own_module, tmp_path):
    body = "import os; assert os.environ['RANK'] == '0', 'rank 1 gives up'; return self.weight.sum()"
    first, second = run_ranks(spec(devices=2, model=own_module(body)), tmp_path)
    assert (second.error_kind, second.reason) == ("user_exception", "AssertionError: rank 1 gives up")
    assert first.error_kind == "collective"


@pytest.mark.real
def test_a_rank_that_the_plan_does_not_know_is_an_error(spec, tmp_path):
    made = spec(devices=2)
    made.write(Path(made.file()))
    process = subprocess.run(
        [sys.executable, "-m", "accelsweep.rank.rank", str(made.file())],
        env={**os.environ, "WORLD_SIZE": "1", "RANK": "0", "LOCAL_RANK": "0"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode != 0
    assert "WORLD_SIZE=1, but the plan has 2 ranks" in process.stderr
