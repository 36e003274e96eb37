"""A script without a Lightning Trainer: its steps, samples and precision are seen from outside, without its pauses."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
import torch
from one_rank import MEASURE, make_spec, run_ranks

from accelsweep.results import Outcome, RankResult
from accelsweep.worker.loops.script import Fed, SampleCount, strategy_of
from accelsweep.worker.tasks.script import pauses

pytestmark = pytest.mark.real

MODEL = """
import time, torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
optimizer = torch.optim.Adam(model.parameters(), 1e-3)
criterion = nn.CrossEntropyLoss()
data = TensorDataset(torch.randn(100, 8), torch.randint(0, 2, (100,)))
loader = DataLoader(data, batch_size=16, shuffle=True)
def step(batch):
    optimizer.zero_grad()
    criterion(model(batch[0]), batch[1]).backward()
    optimizer.step()
"""

LOOP = """
for epoch in range(100_000):
    for batch in loader:
        step(batch)
"""


def measured(folder: Path, text: str, *, ranks: int = 1, **changes: Any) -> list[RankResult]:
    """Run a script as a setting does, on so many CPU ranks; `changes` are those of its config."""
    home, attempt = folder / "home", folder / "attempt"
    home.mkdir()
    attempt.mkdir()
    (home / "train.py").write_text(text)
    entry = {"kind": "script", "command": ["train.py"], "package": None, **changes.pop("entry", {})}
    empty: dict[str, Any] = {"model": {}, "data": {}, "optimizer": None, "trainer": {}}
    config = {"loop": "script", **empty, "batch_size": 16, "devices": ranks, "measure": MEASURE, **changes}
    return run_ranks(make_spec(attempt, entry=entry, **config), home)


def test_a_plain_loop_is_measured_and_its_short_last_batches_are_counted(tmp_path: Path) -> None:
    (result,) = measured(tmp_path, MODEL + LOOP)
    assert result.outcome is Outcome.measured, result.traceback
    assert result.effective is not None
    assert (result.effective.batch_size, result.effective.global_batch_size) == (16, 16)
    assert (result.effective.loop, result.effective.optimizer, result.effective.precision) == (
        "script",
        "Adam",
        "32-true",
    )
    steps, samples = (result.metrics[name].value for name in ("window_steps", "window_samples"))
    assert steps is not None
    assert samples is not None
    assert 16 * steps * 0.8 < samples < 16 * steps, "each 7th batch has 4 samples"
    assert result.metrics["epoch_ends_in_window"].value
    assert result.metrics["learning_rate"].value == 1e-3
    reason = result.metrics["forward_share"].reason
    assert reason is not None
    assert reason.startswith("not watched")


def test_the_batch_size_is_that_of_the_first_batch_even_if_the_window_begins_with_a_short_one(tmp_path: Path) -> None:
    body = "loader = DataLoader(TensorDataset(*data[:52]), batch_size=16)\n"  # the fourth batch has 4 samples
    (result,) = measured(tmp_path, MODEL + body + LOOP)
    assert result.outcome is Outcome.measured, result.traceback
    assert result.effective is not None
    assert (result.effective.batch_size, result.effective.global_batch_size) == (16, 16)


def test_the_batches_of_an_accumulated_step_are_added_up(tmp_path: Path) -> None:
    body = """
n = 0
while True:
    for batch in DataLoader(data, batch_size=16, drop_last=True):
        criterion(model(batch[0]), batch[1]).backward()
        n += 1
        if n % 4 == 0:
            optimizer.step(); optimizer.zero_grad()
"""
    (result,) = measured(tmp_path, MODEL + body)
    assert result.outcome is Outcome.measured, result.traceback
    assert result.effective is not None
    assert (result.effective.batch_size, result.effective.global_batch_size) == (16, 64)
    steps, samples = (result.metrics[name].value for name in ("window_steps", "window_samples"))
    assert samples == 64 * (steps or 0)


def test_a_model_that_is_called_twice_for_a_batch_trains_on_the_loaders_samples(tmp_path: Path) -> None:
    body = """
def step(batch):
    optimizer.zero_grad()
    (criterion(model(batch[0]), batch[1]) + model(batch[0] * 2).square().mean()).backward()
    optimizer.step()
"""
    (result,) = measured(tmp_path, MODEL + body + LOOP)
    assert result.effective is not None
    assert (result.effective.batch_size, result.effective.global_batch_size) == (16, 16)


def test_the_placeholder_for_a_runs_folder_is_replaced(tmp_path: Path) -> None:
    body = "import pathlib, sys\npathlib.Path(sys.argv[1], 'made').write_text('here')\nprint('in', sys.argv[1])\n"
    (result,) = measured(tmp_path, body + MODEL + LOOP, entry={"command": ["train.py", "{run_dir}"]})
    assert result.outcome is Outcome.measured, result.traceback
    assert "rank-0" in (tmp_path / "home" / "rank-0.log").read_text()


def test_a_step_of_two_models_in_turn_ends_with_the_second_one(tmp_path: Path) -> None:
    body = """
generator = nn.Linear(8, 8)
second = torch.optim.SGD(generator.parameters(), 0.1)
while True:
    for batch in loader:
        step(batch)
        second.zero_grad()
        model(generator(batch[0])).square().mean().backward()
        second.step()
"""
    (result,) = measured(tmp_path, MODEL + body)
    assert result.outcome is Outcome.measured, result.traceback
    assert result.effective is not None
    assert (result.effective.optimizer, result.effective.batch_size) == ("Adam, SGD", 16)


def test_tokens_are_counted_and_the_second_dimension_is_the_batch_if_it_has_its_size(tmp_path: Path) -> None:
    body = """
model = nn.Sequential(nn.Embedding(50, 8), nn.Linear(8, 50))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
while True:
    words = torch.randint(0, 50, (35, 20))
    optimizer.zero_grad()
    model(words).square().mean().backward()
    optimizer.step()
"""
    (result,) = measured(tmp_path, MODEL + body, batch_size=20)
    assert result.outcome is Outcome.measured, result.traceback
    rate, tokens = result.metrics["samples_per_second"].value, result.metrics["tokens_per_second"].value
    assert rate is not None
    assert tokens == pytest.approx(35 * rate)


def test_a_loader_that_fetches_one_batch_ahead_is_counted_as_it_yields() -> None:
    steps = [Fed([(16, 8)], [0], {1: [16] * batches}) for batches in (2, 1, 1)]
    count = SampleCount(steps, 16, None)
    assert (count.batches, count.batch_size, count.loader) == (1, 16, 1)
    fetched: list[dict[int, list[int]]] = [{1: [16]}, {1: [4]}, {}]
    assert [count.take(Fed(loaders=defaultdict(list, loaders))) for loaders in fetched] == [16, 4, 0]


def test_the_precision_is_read_where_the_arithmetic_is(tmp_path: Path) -> None:
    body = """
while True:
    for batch in loader:
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = criterion(model(batch[0]), batch[1])
        loss.backward()
        optimizer.step()
"""
    (result,) = measured(tmp_path, MODEL + body)
    assert result.effective is not None
    assert result.effective.precision == "bf16-mixed"
    doubts = {doubt.code: doubt.message for doubt in result.doubts}
    assert doubts["other_precision"] == "the setting asks for 32-true, but the script computes in bf16-mixed"


def test_pauses_are_cut_out_of_the_rate_and_stated(tmp_path: Path) -> None:
    body = """
n = 0
while True:
    for batch in loader:
        time.sleep(0.004)
        step(batch)
        n += 1
        if n % 10 == 0:
            time.sleep(0.5)
"""
    (result,) = measured(tmp_path, MODEL + body, measure={**MEASURE, "min_steps": 30, "max_steps": 30})
    assert result.outcome is Outcome.measured, result.traceback
    assert result.metrics["pauses"].value == 3
    assert result.metrics["pause_seconds"].value == pytest.approx(1.5, rel=0.2)
    step_seconds = result.metrics["step_seconds"].value
    assert step_seconds is not None
    assert 0.004 < step_seconds < 0.04, "with the pauses, it is 0.054"
    assert str(result.metrics["window_seconds"].scope).endswith(", pauses included")
    messages = [doubt.message for doubt in result.doubts if doubt.code == "pauses"]
    assert messages
    assert messages[0].startswith("about every 10 steps, the script pauses for 0.5")


def test_only_steps_of_more_than_five_medians_and_a_tenth_of_a_second_contain_a_pause() -> None:
    assert pauses([1.0, 1.0, 1.0, 4.9, 6.0]) == [5.0]
    assert pauses([0.001, 0.001, 0.001, 0.05]) == []


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("", "train.py ended after 0 steps of an optimiser in this process"),
        ("raise SystemExit(3)", r"train.py ended with sys.exit\(3\) after 0 steps"),
        (
            "for batch in loader:\n    step(batch)",
            "training ended by itself after . steps, before the measurement.* measure=quick",
        ),
        (
            "for n in range(99):\n    optimizer.zero_grad()\n    model(torch.randn(n + 1, 8)).sum().backward()\n"
            "    optimizer.step()",
            "steps contain 1 or 2 or 3 samples: set samples_per_step",
        ),
        (
            "weight = nn.Parameter(torch.ones(3))\nother = torch.optim.SGD([weight], 0.1)\nfor _ in range(99):\n"
            "    weight.square().sum().backward()\n    other.step()",
            "no module of torch with trainable parameters was called",
        ),
        (
            "batch_size = 4\nloader = DataLoader(data, batch_size=8)" + LOOP,
            "batch_size=16 gave a first batch of 8 samples",
        ),
    ],
)
def test_what_cannot_be_measured_is_said_in_one_sentence(tmp_path: Path, body: str, message: str) -> None:
    (result,) = measured(tmp_path, MODEL + body)
    assert result.outcome is Outcome.unsupported
    assert result.reason is not None
    assert re.search(message, result.reason), result.reason


def test_a_script_that_catches_everything_is_measured_and_left(tmp_path: Path) -> None:
    body = """
for batch in (batch for _ in range(100_000) for batch in loader):
    try:
        step(batch)
    except BaseException as error:
        if type(error).__name__ == "Measured":
            break
"""
    (result,) = measured(tmp_path, MODEL + body)
    assert result.outcome is Outcome.measured, result.traceback


@pytest.mark.parametrize("steps", [1, 7])
def test_an_error_of_the_script_is_its_own_before_and_while_it_is_measured(tmp_path: Path, steps: int) -> None:
    body = f"for n, batch in enumerate(loader):\n    step(batch)\n    if n == {steps - 1}: raise RuntimeError('mine')\n"
    (result,) = measured(tmp_path, MODEL + body)
    assert result.error_kind == "user_exception"
    assert "mine" in str(result.reason)


def test_two_ranks_that_train_one_model_are_measured_together(tmp_path: Path) -> None:
    body = """
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("gloo")
model = DistributedDataParallel(model)
optimizer = torch.optim.Adam(model.parameters(), 1e-3)
"""
    first, second = measured(tmp_path, MODEL + body + LOOP, ranks=2)
    assert (first.outcome, second.outcome) == (Outcome.measured, Outcome.measured), first.traceback
    assert first.effective is not None
    assert (first.effective.world_size, first.effective.strategy, first.effective.global_batch_size) == (2, "ddp", 32)


def test_ranks_whose_gradients_nothing_exchanges_are_doubted(tmp_path: Path) -> None:
    join = "import torch.distributed as dist; dist.init_process_group('gloo')\n"
    first, _ = measured(tmp_path, MODEL + join + LOOP, ranks=2)
    assert first.effective is not None
    assert first.effective.strategy == "unknown"
    doubts = {doubt.code: doubt.message for doubt in first.doubts}
    assert doubts["separate_ranks"].endswith("the 2 ranks may train separate models")


def test_a_wrapper_within_another_one_is_found() -> None:
    class Outer(torch.nn.Module):
        def __init__(self, inner: str) -> None:
            super().__init__()
            self.inner = type(inner, (torch.nn.Linear,), {})(2, 2)

    found = [strategy_of(Outer(name), 2) for name in ("DistributedDataParallel", "FSDPLinear", "Linear")]
    assert found == ["ddp", "fsdp", "unknown"]
    assert strategy_of(Outer("Linear"), 1) == "single_device"


def test_ranks_that_train_alone_are_refused(tmp_path: Path) -> None:
    first, _ = measured(tmp_path, MODEL + LOOP, ranks=2)
    assert first.outcome is Outcome.unsupported
    assert "the setting asks for 2 ranks, but the script trains with 1 ranks" in str(first.reason)


FEW_EPOCHS = """
for epoch in range(20):
    for batch in loader:
        step(batch)
    print(f"epoch {epoch}: accuracy {epoch / 100:.2f}")
"""

QUALITY = {**MEASURE, "quality_metric": "accuracy"}


def test_a_printed_quality_is_that_of_the_scripts_own_end(tmp_path: Path) -> None:
    entry = {"quality_pattern": "accuracy ([0-9.]+)"}
    (result,) = measured(tmp_path, MODEL + FEW_EPOCHS, entry=entry, measure=QUALITY)
    assert result.outcome is Outcome.measured, result.traceback
    quality = result.metrics["quality"]
    assert (quality.value, quality.unit, quality.scope) == (0.19, "accuracy", "at the script's own end")
    assert result.metrics["quality_seconds"].value
    assert "epoch 19" in (tmp_path / "home" / "rank-0.log").read_text()


@pytest.mark.parametrize("printed", ["accuracy 0.5.\\n", "accuracy 0.5%", "accuracy 0.\\raccuracy 0.5"])
def test_punctuation_and_a_line_without_an_end_do_not_hide_the_quality(tmp_path: Path, printed: str) -> None:
    body = FEW_EPOCHS + f"print('{printed}', end='')"
    (result,) = measured(tmp_path, MODEL + body, entry={"quality_pattern": r"accuracy ([0-9.]+%?)"}, measure=QUALITY)
    assert result.metrics["quality"].value == 0.5, result.traceback


def test_a_reported_quality_is_read_without_a_pattern(tmp_path: Path) -> None:
    body = FEW_EPOCHS.replace("print(", "accelsweep.quality(epoch); print(")
    (result,) = measured(tmp_path, "import accelsweep\n" + MODEL + body, measure=QUALITY)
    assert result.metrics["quality"].value == 19


@pytest.mark.parametrize(
    ("pattern", "ending", "reason"),
    [
        ("loss ([0-9.]+)", "", "the script printed no line that matches 'loss ([0-9.]+)'"),
        ("accuracy ([0-9a-z.]+)", "print('accuracy nan')", "accuracy is nan"),
        ("top ([a-z]+)", "print('top model')", "'model', which the script printed, is not a number"),
        (None, "", "the script did not call accelsweep.quality, and no evaluation returned accuracy"),
    ],
)
def test_a_quality_that_is_not_found_is_absent_with_the_reason(
    tmp_path: Path, pattern: str | None, ending: str, reason: str
) -> None:
    (result,) = measured(tmp_path, MODEL + FEW_EPOCHS + ending, entry={"quality_pattern": pattern}, measure=QUALITY)
    assert result.outcome is Outcome.measured, result.traceback
    assert result.metrics["quality"].reason == reason


def test_a_script_that_fails_after_its_window_keeps_its_rate(tmp_path: Path) -> None:
    body = FEW_EPOCHS + "raise RuntimeError('too late')\n"
    (result,) = measured(tmp_path, MODEL + body, entry={"quality_pattern": "acc ([0-9.]+)"}, measure=QUALITY)
    assert (result.error_kind, result.window_is_valid) == ("user_exception", True)
    assert result.metrics["samples_per_second"].value
    assert result.metrics["quality"].value is None


def test_steps_and_samples_are_reported_by_a_loop_without_an_optimiser_of_torch(tmp_path: Path) -> None:
    body = """
import time, accelsweep
while True:
    for batch in accelsweep.steps([]):
        pass
    for batch in accelsweep.steps(range(7)):
        time.sleep(0.004)
        accelsweep.samples(12)
        accelsweep.samples(4)
"""
    (result,) = measured(tmp_path, body)
    assert result.outcome is Outcome.measured, result.traceback
    steps, samples = (result.metrics[name].value for name in ("window_steps", "window_samples"))
    assert samples == 16 * (steps or 0)
    rate = result.metrics["samples_per_second"].value
    assert rate is not None
    assert 16 / 0.02 < rate <= 16 / 0.004
    assert result.effective is not None
    assert result.effective.precision == "unknown", "nothing shows it"
    assert result.metrics["epoch_ends_in_window"].value


def test_reported_steps_are_those_of_the_loop_even_if_it_calls_an_optimiser(tmp_path: Path) -> None:
    body = """
import accelsweep
while True:
    for batch in accelsweep.steps(loader):
        step(batch)
        step(batch)
"""
    (result,) = measured(tmp_path, MODEL + body)
    assert result.outcome is Outcome.measured, result.traceback
    steps, samples = (result.metrics[name].value for name in ("window_steps", "window_samples"))
    assert 16 * (steps or 0) * 0.8 < (samples or 0) < 16 * (steps or 0)


HANDLER = """
import sys, types
module = types.ModuleType("transformers.trainer_callback")
class Control:
    should_log = should_evaluate = should_save = True
class CallbackHandler:
    def on_step_end(self, args, state, control, **options): return Control()
    def on_epoch_end(self, args, state, control, **options): return Control()
    def on_evaluate(self, args, state, control, metrics): return control
module.CallbackHandler = CallbackHandler
sys.modules[module.__name__] = module
handler, seen = CallbackHandler(), []
"""


def test_a_hugging_face_trainer_does_not_log_evaluate_or_save_while_it_is_timed(tmp_path: Path) -> None:
    body = """
n = 0
for epoch in range(20):
    for batch in loader:
        step(batch)
        control, n = handler.on_step_end(None, None, None), n + 1
        seen.append(control.should_log + control.should_evaluate + control.should_save)
handler.on_evaluate(None, None, None, {"eval_accuracy": 0.5, "eval_loss": 1})
print("seen", "".join(map(str, seen)))
"""
    (result,) = measured(tmp_path, HANDLER + MODEL + body, measure=QUALITY)
    assert result.metrics["quality"].value == 0.5
    (seen,) = re.findall("seen ([03]+)", (tmp_path / "home" / "rank-0.log").read_text())
    assert re.fullmatch("3{2}0{44}3+", seen), seen


# Scripts that do unusual things.


@pytest.mark.parametrize(
    "body",
    [
        "import sys; sys.argv = ['other.py']\n",
        "import os, tempfile; os.chdir(tempfile.mkdtemp())\n",
        "import multiprocessing; multiprocessing.set_start_method('spawn', force=True)\n",
        "import os\nif os.fork() == 0: os._exit(0)\n",
        "import os\nfor n in range(20_000): print('x' * 100)\n",
        "optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3)\ndef step(batch):\n    def closure():\n"
        "        optimizer.zero_grad()\n        loss = criterion(model(batch[0]), batch[1])\n        loss.backward()\n"
        "        return loss\n    optimizer.step(closure)\n",
        "model = torch.compile(model, backend='eager')\n",
    ],
    ids=["argv", "folder", "spawn", "fork", "prints", "lbfgs", "compiled"],
)
def test_an_unusual_script_is_measured_right(tmp_path: Path, body: str) -> None:
    (result,) = measured(tmp_path, MODEL + body + LOOP)
    assert result.outcome is Outcome.measured, result.traceback
    assert result.effective is not None
    assert (result.effective.batch_size, result.effective.global_batch_size) == (16, 16)
    steps, samples = (result.metrics[name].value for name in ("window_steps", "window_samples"))
    assert 16 * (steps or 0) * 0.8 < (samples or 0) < 16 * (steps or 0)


def test_threads_that_the_script_sets_itself_are_a_doubt(tmp_path: Path) -> None:
    (result,) = measured(tmp_path, MODEL + "torch.set_num_threads(2)\n" + LOOP)
    doubts = {doubt.code: doubt.message for doubt in result.doubts}
    assert doubts["other_threads"] == "each rank was given 1 thread, but the script computes with 2"


@pytest.mark.parametrize("steps", [0, 1])
def test_a_script_that_resumes_from_a_checkpoint_is_refused(tmp_path: Path, steps: int) -> None:
    body = f"""
for batch in list(loader)[:{steps}]:
    step(batch)
state = optimizer.state_dict()
optimizer = torch.optim.Adam(model.parameters(), 1e-3)
optimizer.load_state_dict(state)
"""
    (result,) = measured(tmp_path, MODEL + body + LOOP)
    if steps:
        assert result.outcome is Outcome.unsupported
        assert "the script resumed an earlier training" in str(result.reason)
    else:
        assert result.outcome is Outcome.measured, "an empty state is no earlier training"


def test_a_script_that_trains_in_a_process_of_its_own_is_refused(tmp_path: Path) -> None:
    body = """
import os
if os.fork() == 0:
    for batch in loader: pass
    os._exit(0)
os.wait()
"""
    (result,) = measured(tmp_path, MODEL + body)
    assert result.outcome is Outcome.unsupported
    assert "after 0 steps of an optimiser in this process" in str(result.reason)
