"""One rank from its spec to its result, for every way in which it can end."""

from __future__ import annotations

import gc
import itertools
import json
import os
import subprocess
import sys

import pytest
import torch
from one_rank import BOTH_LOOPS, DIGITS, MEASURE, MLP, TIMED, TIMED_DATA, run_ranks
from own_models import PRELUDE

from accelsweep.heartbeat import read_progress
from accelsweep.results import Outcome
from accelsweep.worker import main

NUMBERS = itertools.count()


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
    steps = json.loads(spec().rank_steps(0).read_text())
    assert (steps["rank"], steps["warmup_steps"]) == (0, 4)
    assert len(steps["step_seconds"]) == 4 + int(value["window_steps"])
    assert set(steps["samples"]) == {8}
    assert steps["train_loss"][-1] == pytest.approx(value["final_train_loss"])
    assert read_progress(spec().progress()) == len(steps["step_seconds"])
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


def test_a_slow_first_step_is_recorded_and_not_part_of_the_rate(run, ticking):
    result = run(model={**TIMED, "slow_warmup_steps": 2, "slow_factor": 50.0})
    assert result.metrics["step_seconds"].value == pytest.approx(0.002, rel=0.1)
    assert result.metrics["first_step_seconds"].value == pytest.approx(0.1, rel=0.1)


def test_a_level_shift_inside_the_window_is_doubted(run, ticking):
    """From 2 ms to 6 ms over the window: a drift that no fixed warm-up removes."""
    measure = {**MEASURE, "min_steps": 200, "max_steps": 200}
    result = run(model={**TIMED, "drift_per_step": 0.01}, measure=measure)
    assert "unsteady_window" in [doubt.code for doubt in result.doubts]


@pytest.mark.heavy
def test_a_module_that_leaks_memory_is_doubted(run, own_module):
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
@pytest.mark.real
@BOTH_LOOPS
def test_a_stall_is_doubted_and_disturbs_the_run_only_if_all_processes_were_idle(
    spec, own_module, tmp_path, loop, stall, code
):
    """In a process of its own: what other tests have left running in this one would work during the stall."""
    body = f"import time; self.n = getattr(self, 'n', 0) + 1; self.n == 20 and {stall}; return self.weight.sum()"
    (result,) = run_ranks(spec(loop=loop, model=own_module(body), measure={**MEASURE, "min_steps": 40}), tmp_path)
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
def test_data_that_ends_is_restarted_and_doubted(run, loop):
    result = run(loop=loop, data={**TIMED_DATA, "batches": 10})
    assert result.outcome is Outcome.measured
    assert result.metrics["epoch_ends_in_window"].value >= 2
    assert "epoch_boundary" in [doubt.code for doubt in result.doubts]


@BOTH_LOOPS
def test_data_that_ends_with_the_warm_up_is_restarted_inside_the_window(run, loop):
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
def test_a_nan_loss_has_diverged_and_keeps_its_rate(run, own_module, loop, number):
    result = run(loop=loop, model=own_module(f"return self.weight.sum() * float('{number}')"))
    assert (result.outcome, result.error_kind) == (Outcome.diverged, "diverged")
    assert result.reason == "the loss was not finite at step 0"
    assert result.metrics["samples_per_second"].value > 0


@BOTH_LOOPS
def test_an_error_in_user_code_is_a_result_with_a_traceback(run, own_module, loop, capfd):
    result = run(loop=loop, model=own_module("raise KeyError('no such label')"))
    assert (result.outcome, result.error_kind) == (Outcome.crashed, "user_exception")
    assert result.reason == "KeyError: 'no such label'"
    assert result.traceback.splitlines()[1].endswith("in training_step")
    assert "no such label" in capfd.readouterr().err


@pytest.fixture
def own_file(tmp_path):
    """Write a user's module with `extra` before or after a class `Module`; return its name."""

    def write(before="", after="", step="return self.weight.sum()", extra=""):
        name = f"own_file_{next(NUMBERS)}"
        (tmp_path / f"{name}.py").write_text(
            f"import lightning.pytorch as pl, torch\n{before}\n"
            "class Module(pl.LightningModule):\n"
            "    def __init__(self):\n        super().__init__()\n"
            "        self.weight = torch.nn.Parameter(torch.ones(1))\n"
            f"    def training_step(self, batch, batch_idx):\n        {step}\n{extra}\n{after}\n"
        )
        return name

    return write


PARSES = "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument({argument!r}{more})\n"


@pytest.mark.parametrize(
    ("before", "told"),
    [
        (
            PARSES.format(argument="--width", more=", required=True") + "given = parser.parse_args()",
            "parse_args() in the import of {name}.py (line 5) read [], because a run has no command line: the "
            "following arguments are required: --width; move code that only a script should run below `if __name__ == "
            '"__main__":`, and pass the values as arguments of the model or the data in the config',
        ),
        (
            PARSES.format(argument="folder", more="") + "def given():\n    return parser.parse_args()\ngiven()",
            "parse_args() in given ({name}.py, line 6) read [], because a run has no command line: the following "
            "arguments are required: folder; move code that only a script should run",
        ),
        (
            "import sys\nif len(sys.argv) < 2:\n    sys.exit('usage: train.py FOLDER')",
            "sys.exit('usage: train.py FOLDER') was called in the import of {name}.py (line 4): move code that "
            'only a script should run below `if __name__ == "__main__":`',
        ),
        (
            "import click\n@click.command()\n@click.argument('folder')\ndef main(folder):\n    pass\nmain()",
            "sys.exit(2) was called in the import of {name}.py (line 7): move code that only a script should run below",
        ),
    ],
    ids=["parse_args", "parse_args in a function, a positional argument", "sys.exit with words", "click"],
)
def test_a_module_that_runs_as_a_script_on_import_gets_a_remedy(run, own_file, before, told, last_line):
    name = own_file(before)
    result = run(model={"_target_": f"{name}.Module"})
    assert (result.outcome, result.error_kind) == (Outcome.crashed, "user_exception")
    assert result.reason.startswith(told.format(name=name))
    last_line("`parse_args()`, `sys.exit` or click at import", result.reason)


def test_a_module_that_parses_optional_arguments_on_import_gets_the_defaults(run, own_file):
    name = own_file(
        PARSES.format(argument="folder", more=", nargs='?', default='here'") + "given = parser.parse_args()"
    )
    result = run(model={"_target_": f"{name}.Module"})
    assert result.outcome is Outcome.measured, result.reason
    assert sys.modules[name].given.folder == "here"


@BOTH_LOOPS
@pytest.mark.parametrize(
    ("step", "called"),
    [("raise SystemExit(3)", "sys.exit(3)"), ("exit()", "sys.exit()"), ("quit('enough')", "sys.exit('enough')")],
)
def test_sys_exit_in_a_step_is_reported_with_its_hook(run, own_file, loop, step, called, last_line):
    name = own_file(step=step)
    result = run(loop=loop, model={"_target_": f"{name}.Module"})
    assert result.reason == (
        f"{called} was called in training_step ({name}.py, line 8): raise an exception or return instead; "
        "a module must not end the process that trains it"
    )
    last_line("`sys.exit` in a step", result.reason)


ODD = """
class Final(BaseException):
    pass
class Mute(ValueError):
    def __str__(self):
        raise KeyError("no words")
class Numb(Final):
    def __str__(self):
        raise SystemExit(1)
def helper():
    raise {error}
"""


@BOTH_LOOPS
@pytest.mark.parametrize(
    ("error", "told"),
    [
        ("Final('enough')", "Final in training_step, in helper ({name}.py, line 12): enough"),
        ("Mute(7)", "Mute (whose __str__ raised KeyError) in training_step, in helper ({name}.py, line 12)"),
        (
            "Mute('no image')",
            "Mute (whose __str__ raised KeyError) in training_step, in helper ({name}.py, line 12): no image",
        ),
        ("Numb", "Numb (whose __str__ raised SystemExit) in training_step, in helper ({name}.py, line 12)"),
        ("AssertionError", "AssertionError in training_step, in helper ({name}.py, line 12)"),
        ("GeneratorExit", "GeneratorExit in training_step, in helper ({name}.py, line 12)"),
    ],
)
def test_an_unusual_exception_is_reported_with_its_type_and_location(run, own_file, loop, error, told, last_line):
    name = own_file(ODD.format(error=error), step="helper()")
    result = run(loop=loop, model={"_target_": f"{name}.Module"})
    assert (result.outcome, result.error_kind) == (Outcome.crashed, "user_exception")
    assert result.reason == told.format(name=name)
    last_line(f"an exception: {error}", result.reason)


def test_an_error_in_lightnings_exception_handler_does_not_hide_the_root_cause(run, own_file, last_line):
    """A loader whose workers find /dev/shm read-only, as multiprocessing says it, and a teardown of the user's."""
    loader = (
        "class Loader(torch.utils.data.DataLoader):\n"
        "    def __iter__(self):\n"
        "        import multiprocessing.synchronize, unittest.mock\n"
        "        refused = OSError(30, 'Read-only file system')\n"
        "        with unittest.mock.patch('_multiprocessing.SemLock', side_effect=refused):\n"
        "            return super().__iter__()\n"
    )
    data = (
        "class Data(pl.LightningDataModule):\n"
        "    batch_size = 8\n"
        "    def train_dataloader(self):\n"
        "        return Loader(torch.zeros(64, 1), batch_size=self.batch_size, num_workers=1)\n"
    )
    name = own_file(loader, after=data)
    result = run(model={"_target_": f"{name}.Module"}, data={"_target_": f"{name}.Data"})
    assert result.reason.startswith(
        "OSError: [Errno 30] Read-only file system (a loader's workers share memory in /dev"
    )
    assert "set the loader's num_workers to 0, or mount /dev/shm with write access" in result.reason
    assert "combined_loader" not in result.reason
    last_line("a read-only /dev/shm", result.reason)


@pytest.mark.parametrize("hook", ["teardown(self, stage)", "on_exception(self, error)"])
def test_an_error_in_a_teardown_hook_does_not_hide_the_root_cause(run, own_file, hook):
    extra = f"    def {hook}:\n        self.never_made.close()\n"
    if "on_exception" in hook:
        data = f"class Data(pl.LightningDataModule):\n    batch_size = 8\n{extra}"
        data += "    def train_dataloader(self):\n"
        data += "        return torch.utils.data.DataLoader(torch.zeros(64, 1), batch_size=8)\n"
        name = own_file(step="raise KeyError('label')", after=data)
        result = run(model={"_target_": f"{name}.Module"}, data={"_target_": f"{name}.Data"})
    else:
        name = own_file(step="raise KeyError('label')", extra=extra)
        result = run(model={"_target_": f"{name}.Module"})
    assert result.reason == "KeyError: 'label'"


def test_an_exception_that_the_user_replaced_is_reported_as_replaced(run, own_file):
    """Only handlers of Lightning's are passed over: here the second exception is the one that explains."""
    before = (
        "def read():\n    try:\n        {}['x']\n    except KeyError:\n        raise ValueError('the file has no x')\n"
    )
    name = own_file(before, step="read()")
    assert run(model={"_target_": f"{name}.Module"}).reason == "ValueError: the file has no x"


def test_a_signal_is_not_a_result_of_user_code(run, spec, own_module):
    """Lightning notes SIGTERM and ends training at the next batch; who sent it records why."""
    with pytest.raises(SystemExit):
        run(model=own_module("import os, signal; os.kill(os.getpid(), signal.SIGTERM); return self.weight.sum()"))
    assert not spec().rank_result(0).exists()


def test_a_module_that_cannot_be_imported_is_named(run):
    result = run(model={"_target_": "no_such_package.Module"})
    assert result.outcome is Outcome.crashed
    assert "no_such_package" in result.reason


@BOTH_LOOPS
def test_fp16_mixed_on_a_cpu_is_unsupported_and_not_another_precision(run, loop):
    result = run(loop=loop, precision="16-mixed")
    assert result.outcome is Outcome.unsupported
    assert "bf16-mixed" in result.reason


@BOTH_LOOPS
def test_a_missing_accelerator_is_an_error_of_the_machine(run, loop):
    if torch.cuda.is_available():
        pytest.skip("this machine has a CUDA device")
    result = run(loop=loop, accelerator="cuda")
    assert (result.outcome, result.error_kind) == (Outcome.crashed, "user_exception")
    assert "torch" in result.reason


@BOTH_LOOPS
@pytest.mark.parametrize("precision", ["32-true", "64-true", "bf16-true", "bf16-mixed"])
def test_the_effective_precision_is_read_back(run, loop, precision):
    result = run(loop=loop, precision=precision, model=MLP, data=DIGITS)
    assert result.outcome is Outcome.measured, result.traceback
    assert result.effective.precision == precision


def test_data_that_ignores_batch_size_is_refused_with_a_remedy(run, tmp_path):
    (tmp_path / "deaf_data.py").write_text(
        "from accelsweep.testing.calibration import TimedData\n"
        "class Deaf(TimedData):\n"
        "    def __init__(self, batch_size):\n"
        "        super().__init__(batch_size=3)\n"
    )
    result = run(data={"_target_": "deaf_data.Deaf"})
    assert result.outcome is Outcome.unsupported
    assert "first batch contains 3 samples, but batch_size=8" in result.reason


BATCHES = """
from collections import UserDict
from dataclasses import dataclass, field
from torch.nn.utils.rnn import pack_sequence
import lightning.pytorch as pl, torch

class Given(UserDict):
    def __init__(self, x, y):
        super().__init__({"x": x, "y": y})
    def to(self, device, **_):
        return Given(self["x"].to(device), self["y"].to(device))

@dataclass
class Graph:
    x: torch.Tensor
    y: torch.Tensor = field(init=False)
    def to(self, device, **_):
        return self

class Pair(tuple):
    def __new__(cls, x, y, *, scale):
        return super().__new__(cls, (x, y))
    def to(self, device, **_):
        return self

def rows(samples, lengths=(8, 3, 1, 5, 2, 7, 4, 6)):
    return [torch.ones(length, 1) * sample for sample, length in zip(samples, lengths)]
def packed(samples):
    return pack_sequence(rows(samples), enforce_sorted=False)
def packed_with_targets(samples):
    return packed(samples), torch.ones(len(samples))
def nested(samples):
    return torch.nested.nested_tensor(rows(samples))
def jagged(samples):
    return torch.nested.nested_tensor(rows(samples), layout=torch.jagged)
def given(samples):
    return Given(torch.ones(len(samples), 1), torch.ones(len(samples), 1))
def graph(samples):
    made = Graph(torch.ones(len(samples), 1))
    made.y = torch.ones(len(samples), 1)
    return made
def pair(samples):
    return Pair(torch.ones(len(samples), 1), torch.ones(len(samples)), scale=2)

class Data(pl.LightningDataModule):
    def __init__(self, batch_size, form):
        super().__init__()
        self.batch_size, self.form = batch_size, globals()[form]
    def train_dataloader(self):
        return torch.utils.data.DataLoader(range(72), self.batch_size, collate_fn=self.form, drop_last=True)

class Module(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(1))
    def training_step(self, batch, batch_idx):
        return self.weight.sum()
    def predict_step(self, batch):
        return self.weight.sum()
"""


@pytest.mark.parametrize("form", ["packed", "packed_with_targets", "nested", "jagged", "given", "graph", "pair"])
@pytest.mark.parametrize("how", ["lightning", "raw", "inference"])
def test_a_batch_without_a_meta_copy_costs_only_the_operation_count(run, tmp_path, form, how):
    """Each batch holds eight samples, and the longest sequence eight steps: neither is taken for the other."""
    name = f"own_file_{next(NUMBERS)}"
    (tmp_path / f"{name}.py").write_text(BATCHES)
    task = {"task": "inference", "loop": "raw"} if how == "inference" else {"loop": how}
    result = run(model={"_target_": f"{name}.Module"}, data={"_target_": f"{name}.Data", "form": form}, **task)
    assert (result.outcome, result.reason) == (Outcome.measured, None), result.traceback
    value = {key: metric.value for key, metric in result.metrics.items()}
    assert value["window_samples"] == 8 * value["window_steps"]
    assert result.metrics["model_flops_per_sample"].value is None
    if form != "graph":
        assert "batch cannot be copied to the meta device" in result.metrics["model_flops_per_sample"].reason
        assert "batch cannot be copied to the meta device" in result.traits
    assert value["parameters"] == 1


def test_sequences_of_different_lengths_are_counted_as_samples(run, tmp_path):
    name = f"own_file_{next(NUMBERS)}"
    varied = (
        "\ndef varied(samples):\n"
        "    lengths = range(samples[0] + 1, samples[0] + 9)\n"
        "    return pack_sequence(rows(samples, lengths), enforce_sorted=False)\n"
    )
    (tmp_path / f"{name}.py").write_text(BATCHES + varied)
    result = run(model={"_target_": f"{name}.Module"}, data={"_target_": f"{name}.Data", "form": "varied"})
    value = {key: metric.value for key, metric in result.metrics.items()}
    assert value["window_samples"] == 8 * value["window_steps"]


MANUAL = "    automatic_optimization = False\n"
TWO = "    def configure_optimizers(self):\n        return [torch.optim.SGD([self.weight]) for _ in range(2)]\n"


@pytest.mark.parametrize(
    ("parts", "changes", "told"),
    [
        ({}, {"model": {"width": 3}}, "model.width: {name}.Module has no such argument; it accepts none"),
        (
            {"extra": MANUAL},
            {"trainer": {"gradient_clip_val": 1.0}},
            "Lightning rejected the configuration: Automatic gradient clipp",
        ),
        (
            {"extra": MANUAL},
            {"trainer": {"accumulate_grad_batches": 2}},
            "Lightning rejected the configuration: Automatic gradient acc",
        ),
        ({"extra": TWO}, {}, "Training with multiple optimizers is only supported with manual optimization"),
        (
            {"after": "Module.training_step = pl.LightningModule.training_step"},
            {},
            "No `training_step()` method defined",
        ),
        ({"after": "class Other(torch.nn.Linear):\n    pass"}, {"class": "Other"}, "requires in_features"),
        (
            {"after": "def Other():\n    return torch.nn.Linear(1, 1)"},
            {"class": "Other"},
            "a plain torch.nn.Module without a training_step; train it with: model=supervised",
        ),
        ({}, {"optimizer": {}}, "Module defines no configure_optimizers, and the config has no optimizer"),
    ],
    ids=[
        "an unknown argument",
        "clipping under manual optimisation",
        "accumulation under manual optimisation",
        "two optimisers",
        "no training step",
        "a missing argument",
        "a plain module",
        "no optimiser",
    ],
)
def test_a_refusal_inside_fit_is_unsupported_and_not_retried(run, own_file, parts, changes, told):
    changes, name = dict(changes), own_file(**parts)
    model = {"_target_": f"{name}.{changes.pop('class', 'Module')}", **changes.pop("model", {})}
    result = run(model=model, **changes)
    assert (result.outcome, result.error_kind) == (Outcome.unsupported, "unsupported"), result.traceback
    assert result.outcome.settled
    assert told.format(name=name) in result.reason


@pytest.mark.real
def test_sync_batchnorm_is_unsupported_on_cpus(spec, own_file, tmp_path):
    normed = (
        "    def configure_model(self):\n        self.norm = torch.nn.BatchNorm1d(1)\n"
        "    def forward(self, x):\n        return self.norm(x)\n"
    )
    model = {"_target_": f"{own_file(step='return self(torch.ones(4, 1)).sum()', extra=normed)}.Module"}
    for result in run_ranks(spec(devices=2, model=model, trainer={"sync_batchnorm": True}), tmp_path):
        assert (result.outcome, result.error_kind) == (Outcome.unsupported, "unsupported"), result.traceback
        assert result.reason.endswith("(trainer.sync_batchnorm=true works only on GPUs: remove it)")


def test_trainer_arguments_that_accelsweep_sets_are_refused(run):
    assert "measure.min_steps" in run(trainer={"min_steps": 7}).reason
    assert "did you mean 'gradient_clip_val'?" in run(trainer={"gradient_clip_value": 1.0}).reason


def test_other_trainer_arguments_reach_lightning(run):
    result = run(trainer={"strategy": "auto", "accumulate_grad_batches": 3})
    assert result.outcome is Outcome.measured
    assert result.effective.global_batch_size == 24
    assert result.effective.window_steps % 3 == 0


def test_a_step_without_a_loss_is_measured(run, own_module):
    result = run(model=own_module("return self.weight.sum() if batch_idx < 5 else None"))
    assert result.outcome is Outcome.measured, result.traceback
    assert result.metrics["final_train_loss"].reason == "the training step returned no loss"


def test_logged_values_are_recorded(run, own_module):
    body = "self.log('norm', self.weight.detach().sum()); return self.weight.sum() * 0"
    for loop in ("lightning", "raw"):
        assert run(loop=loop, model=own_module(body)).metrics["logged.norm"].value == 1.0


@BOTH_LOOPS
def test_logged_training_values_are_the_last_one_or_the_mean_over_an_epoch(run, own_module, loop):
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


def test_missing_quality_has_a_reason(run):
    assert "not requested" in run().metrics["quality"].reason
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
def test_unused_parameters_fail_with_the_override_that_helps(spec, own_module, tmp_path, last_line):
    extra = "    def setup(self, stage):\n        self.unused = torch.nn.Parameter(torch.ones(1))\n"
    unused = {"devices": 2, "model": own_module("return self.weight.sum()", extra)}
    first = run_ranks(spec(**unused), tmp_path)[0]
    last_line("unused parameters, devices=2", first.reason)
    assert "set trainer.strategy=ddp_find_unused_parameters_true" in first.reason
    mended = run_ranks(spec(**unused, trainer={"strategy": "ddp_find_unused_parameters_true"}), tmp_path)[0]
    assert (mended.outcome, mended.reason) == (Outcome.measured, None)


def test_a_last_batch_of_one_sample_fails_with_drop_last_as_the_remedy(run, tmp_path, last_line):
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
    assert "set drop_last=True in the training DataLoader" in result.reason


DIVIDING = """
class OwnData(Data):
    def setup(self, stage):
        self.batch_size = self.batch_size // self.trainer.world_size
    def train_dataloader(self):
        return DataLoader(TensorDataset(torch.randn(400, 4), torch.randint(2, (400,))), self.batch_size)
"""


@pytest.mark.real
def test_data_that_divides_its_batch_among_ranks_needs_the_global_batch_size(spec, tmp_path, last_line):
    (tmp_path / "own_dividing.py").write_text(PRELUDE + DIVIDING)
    own = {"devices": 2, "model": {"_target_": "own_dividing.Module"}}
    first = run_ranks(spec(**own, data={"_target_": "own_dividing.OwnData"}), tmp_path)[0]
    last_line("data module divides by world_size, devices=2", first.reason)
    assert "contains 4 samples, but batch_size=8: that is 8 / 2 ranks" in first.reason
    assert "add +data.batch_size=16" in first.reason
    mended = run_ranks(spec(**own, data={"_target_": "own_dividing.OwnData", "batch_size": 16}), tmp_path)[0]
    assert (mended.outcome, mended.reason) == (Outcome.measured, None)
    assert (mended.effective.batch_size, mended.effective.global_batch_size) == (8, 16)


@pytest.mark.real
def test_a_stall_in_one_rank_slows_down_all(spec, tmp_path):
    """Alone, rank 0 would take 2 ms a step."""
    model = {**TIMED, "stalled_rank": 1, "stall_seconds": 0.01}
    first = run_ranks(spec(devices=2, model=model), tmp_path)[0]
    assert first.metrics["step_seconds"].value >= 0.012


def test_a_rank_of_its_own_looks_for_no_garbage_among_what_it_imports_and_a_forked_one_changes_nothing(monkeypatch):
    enabled, frozen = [], gc.get_freeze_count()
    monkeypatch.setattr(main, "preload", lambda **_: enabled.append(gc.isenabled()))
    main.preload_without_garbage_collection(with_lightning=True)
    assert enabled == [True]
    assert gc.get_freeze_count() <= frozen, "what is frozen may be freed, but nothing is added"
    monkeypatch.delitem(sys.modules, "torch")
    main.preload_without_garbage_collection(with_lightning=True)
    assert (enabled, gc.isenabled()) == ([True, False], True)
    assert gc.get_freeze_count() > frozen


def test_the_first_step_says_whether_compile_caches_were_empty(run, monkeypatch, tmp_path):
    assert run().metrics["first_step_seconds"].scope == "rank 0, compile caches empty"
    result = run(env={"TORCHINDUCTOR_CACHE_DIR": str(tmp_path)})
    assert result.metrics["first_step_seconds"].scope == "rank 0, warm cache"


@pytest.mark.real
def test_the_failing_rank_reports_the_cause_and_its_peer_a_collective_error(spec, own_module, tmp_path):
    body = "import os; assert os.environ['RANK'] == '0', 'rank 1 gives up'; return self.weight.sum()"
    first, second = run_ranks(spec(devices=2, model=own_module(body)), tmp_path)
    assert (second.error_kind, second.reason) == ("user_exception", "AssertionError: rank 1 gives up")
    assert first.error_kind == "collective"


@pytest.mark.real
def test_a_world_size_that_contradicts_the_plan_is_an_error(spec, tmp_path):
    made = spec(devices=2)
    made.write()
    process = subprocess.run(
        [sys.executable, "-m", "accelsweep.worker.main", str(made.file())],
        env={**os.environ, "WORLD_SIZE": "1", "RANK": "0", "LOCAL_RANK": "0"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode != 0
    assert "WORLD_SIZE=1, but the plan has 2 ranks" in process.stderr
