"""Real runs with torch and Lightning through the executor's command line, forked and spawned."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
import yaml
from polling import PATIENCE_SECONDS
from tiny_sweep import measure_sweep, plan_sweep

from accelsweep.installation import shipped_root
from accelsweep.results import Outcome

pytestmark = pytest.mark.real


def test_forked_and_spawned_runs_on_one_and_two_ranks_give_the_same_records(tmp_path: Path) -> None:
    settings = [
        {"launcher": "fork", "devices": 1, "loop": "lightning"},
        {"launcher": "fork", "devices": 1, "loop": "lightning", "env": {"TOKENIZERS_PARALLELISM": "false"}},
        {"launcher": "fork", "devices": 2, "loop": "lightning"},
    ]
    folder, block = plan_sweep(tmp_path / "home", settings)
    records, output = measure_sweep(folder, block, within_seconds=PATIENCE_SECONDS, fresh=True)
    assert "not safe" not in output
    for record, setting in zip(records, settings, strict=True):
        assert (record.outcome, record.reason) == (Outcome.measured, None)
        assert record.effective is not None
        launcher = "spawn" if "env" in setting else setting["launcher"]  # variables must be set before libraries load
        assert (record.effective.launcher, record.effective.world_size) == (launcher, setting["devices"])
        steps = pyarrow.parquet.read_table(folder.steps(record.run)).to_pydict()
        assert set(steps["rank"]) == set(range(int(str(setting["devices"]))))
    forked, spawned = records[0].effective, records[1].effective
    assert forked is not None
    assert spawned is not None
    ignored: dict[str, Any] = {
        "launcher": "",
        "window_steps": 0,
    }  # the number of steps in the window depends on the machine
    assert replace(forked, **ignored) == replace(spawned, **ignored)
    losses = [record.metrics["final_train_loss"].value for record in records]
    assert all(loss is not None for loss in losses)


ALLOCATING = """
import torch, lightning.pytorch as pl

class Allocating(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)

    def training_step(self, batch, number):
        buffer = torch.ones(len(batch[0]), 2**18)  # 1 MiB per sample, until the step ends
        return self.layer(buffer[:, :1]).mean()
"""


def test_the_largest_batch_within_a_memory_limit_matches_the_arithmetic(tmp_path: Path) -> None:
    """A model that takes 1 MiB per sample, on one rank and on two, each with 300 MB."""
    home = tmp_path / "home"
    home.mkdir()
    (home / "allocating.py").write_text(ALLOCATING)
    measure = {"warmup_steps": 5, "min_steps": 20, "min_seconds": 0.1, "max_steps": 200}
    measure |= {"rank_memory_bytes": 300_000_000, "headroom": 0.2, "batch_resolution": 0.05}
    common = {"task": "largest_batch", "model": {"_target_": "allocating.Allocating"}, "measure": measure}
    folder, block = plan_sweep(home, [{**common, "devices": count, "batch_size": 100} for count in (1, 2)])
    for record in measure_sweep(folder, block, within_seconds=PATIENCE_SECONDS)[0]:
        assert (record.outcome, record.reason) == (Outcome.measured, None)
        largest_batch = record.largest_batch
        assert largest_batch is not None
        assert (largest_batch.limit, largest_batch.limit_bytes) == ("measure.rank_memory_bytes", 240_000_000)
        assert largest_batch.bytes_per_sample.value == pytest.approx(2**20, rel=0.05)
        assert largest_batch.fixed_bytes.value is not None
        expected = (240_000_000 - largest_batch.fixed_bytes.value) / 2**20
        # Above `expected` the bound is arithmetic's own: fixed_bytes is the intercept of a fit, 0 at the least.
        assert max(180, 0.9 * expected) < largest_batch.largest < 229, "240 MB hold at most 228 samples"
        assert record.effective is not None
        assert record.effective.batch_size == largest_batch.largest


@pytest.mark.long  # two searches of up to ten trials; tests/worker/test_strategies.py finds most faults sooner
def test_a_model_sharded_over_two_processes_leaves_room_for_a_larger_batch(tmp_path: Path) -> None:
    """The model takes 30 MB, and training it three times that: a limit of 150 MB leaves little for a batch."""
    home = tmp_path / "home"
    home.mkdir()
    measure = {"warmup_steps": 5, "min_steps": 20, "min_seconds": 0.1, "max_steps": 200}
    measure |= {"rank_memory_bytes": 150_000_000, "headroom": 0.1, "batch_resolution": 0.2, "max_batch": 2048}
    model = {"_target_": "accelsweep.workloads.image_models.MLP", "width": 1024, "depth": 8}
    data = {"_target_": "accelsweep.workloads.datasets.RandomImages", "image_size": 8, "channels": 1, "samples": 4096}
    common = {"task": "largest_batch", "loop": "lightning", "batch_size": 128, "model": model, "data": data}
    common |= {"measure": measure, "optimizer": {"_target_": "torch.optim.SGD", "lr": 0.01, "momentum": 0.9}}
    trainer = yaml.safe_load((shipped_root() / "conf" / "trainer" / "fsdp_parts.yaml").read_text())
    sharded = {"strategy": trainer["strategy"]}
    folder, block = plan_sweep(home, [{**common, "devices": 1}, {**common, "devices": 2, "trainer": sharded}])
    largest = {}
    for record in measure_sweep(folder, block, within_seconds=PATIENCE_SECONDS)[0]:
        assert (record.outcome, record.reason) == (Outcome.measured, None)
        assert record.largest_batch is not None
        assert record.effective is not None
        largest[record.effective.strategy] = record.largest_batch.largest
    assert largest["fsdp"] > 1.3 * largest["single_device"]


FAILING_LATER = """
import ctypes, os
import lightning.pytorch as pl, torch
from accelsweep.workloads.image_models import SmallCNN

class Failing(SmallCNN):
    def __init__(self, how, width=8, depth=2):
        super().__init__(width=width, depth=depth)
        self.how = how

    def validation_step(self, batch, number):
        if self.how == "validation":
            self(batch[0]).to(torch.bfloat16).numpy()
        elif self.how == "validation metric":
            self.log("val_accuracy", torch.zeros(3))
        elif self.how == "dies":
            ctypes.string_at(0)
        elif self.how == "lasts":
            import time
            time.sleep(1000)
        else:
            super().validation_step(batch, number)

class FailingHooks(Failing):
    def on_train_batch_end(self, *_):
        if self.how == "after the last batch" and self.trainer.should_stop:
            raise KeyError("no more batches")

    def on_train_epoch_end(self):
        self._fail("on_train_epoch_end")

    def on_train_end(self):
        self._fail("on_train_end")

    def on_fit_end(self):
        self._fail("on_fit_end")

    def teardown(self, stage):
        self._fail("teardown")

    def _fail(self, hook):
        if self.how == hook:
            raise RuntimeError("no display to plot on")
"""


def test_a_run_that_fails_after_its_window_is_measured(tmp_path: Path, last_line) -> None:
    """Each record has its rate and its steps, the failure as the reason of the missing quality, and is not retried."""
    measure = {"warmup_steps": 5, "min_steps": 20, "min_seconds": 0.1, "max_steps": 200}
    measure |= {"quality_samples": 64, "quality_metric": "val_accuracy", "probe_steps": 2}
    hooks = {
        hook: f"after the window: RuntimeError: no display to plot on, in {hook}, in _fail (failing_later.py, line 43)"
        for hook in ("on_train_epoch_end", "on_train_end", "on_fit_end", "teardown")
    }
    hooks["after the last batch"] = (
        "after the window: KeyError: 'no more batches', in on_train_batch_end (failing_later"
    )
    inside = {
        "validation": "after the window: TypeError: Got unsupported ScalarType BFloat16, in validation_step (",
        "validation metric": "after the window: ValueError: only one element tensors can be converted to Python",
        "dies": "after the window: it was ended by SIGSEGV (segmentation fault)",
    }
    lasts = "after the window: it ran longer than 5 s (limits.run_seconds)"
    settings = [
        *({"loop": "lightning", "model": {"_target_": "failing_later.FailingHooks", "how": how}} for how in hooks),
        *({"loop": "raw", "model": {"_target_": "failing_later.Failing", "how": how}} for how in inside),
        {"loop": "lightning", "devices": 2, "model": {"_target_": "failing_later.Failing", "how": "validation"}},
        {
            "loop": "lightning",
            "task": "time_to_accuracy",
            "model": {"_target_": "failing_later.Failing", "how": "validation"},
            "measure": measure | {"target": 0.9, "better": "max"},
        },
    ]
    home = tmp_path / "home"
    home.mkdir()
    (home / "failing_later.py").write_text(FAILING_LATER)
    reasons = [*hooks.values(), *inside.values(), f"after the window: rank 0: {inside['validation'][18:]}"]
    reasons.append(inside["validation"])
    folder, block = plan_sweep(home, [{"measure": measure} | setting for setting in settings], limits={"retries": 2})
    records, output = measure_sweep(folder, block, within_seconds=PATIENCE_SECONDS)
    limits = {"run_seconds": 5.0, "stop_grace_seconds": 1.0, "retries": 2}
    setting = {"loop": "raw", "model": {"_target_": "failing_later.Failing", "how": "lasts"}, "measure": measure}
    other, block = plan_sweep(home, [setting], limits=limits, name="limited")
    (lasting,), _ = measure_sweep(other, block, within_seconds=PATIENCE_SECONDS)
    for record, why in zip([lasting, *records], [lasts, *reasons], strict=True):
        assert (record.outcome, record.reason, record.attempt) == (Outcome.measured, None, 1)
        assert record.metrics["samples_per_second"].value is not None
        assert record.metrics["quality"].value is None
        assert str(record.metrics["quality"].reason).startswith(why)
        assert record.metrics["quality"].unit == "val_accuracy"
        sweep = other if record is lasting else folder
        assert pyarrow.parquet.read_table(sweep.steps(record.run)).num_rows > 0
        assert not list(sweep.run(record.run).rglob("*.window.json"))
        last_line("a failure after the window", str(record.metrics["quality"].reason))
    assert "measured after" in output
    assert "; it failed after the window: TypeError: Got unsupported ScalarType BFloat16" in output
    assert records[-1].metrics["time_to_target_seconds"].reason == records[-1].metrics["quality"].reason
    killed = [lasting, *(record for record in records if record.config.model.get("how") == "dies")]
    for record in (lasting, *records):
        reason = record.metrics["quality"].reason if record in killed else None
        assert record.metrics["forward_share"].reason == reason, "a rank that could report kept what it measured"


LOCKED = """
import threading
import lightning.pytorch as pl, torch
from torch.utils.data import DataLoader, Dataset

LOCK = threading.Lock()

class Rows(Dataset):
    def __len__(self):
        return 320
    def __getitem__(self, index):
        with LOCK:
            return torch.ones(8, 8), 0

class Locked(pl.LightningDataModule):
    def __init__(self, batch_size):
        super().__init__()
        self.batch_size = batch_size
    def train_dataloader(self):
        LOCK.acquire()  # as a library's thread may do while the workers are forked
        return DataLoader(Rows(), self.batch_size, num_workers=1, multiprocessing_context="fork")
"""


@pytest.mark.parametrize("loop", ["lightning", "raw"])
def test_a_loader_worker_that_hangs_is_found_in_the_stacks(tmp_path: Path, loop, last_line) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "locked.py").write_text(LOCKED)
    limits = {"run_seconds": 4.0, "stop_grace_seconds": 1.0, "retries": 0}
    folder, block = plan_sweep(home, [{"loop": loop, "data": {"_target_": "locked.Locked"}}], limits=limits)
    (record,), _ = measure_sweep(folder, block, within_seconds=PATIENCE_SECONDS)
    assert record.outcome is Outcome.timed_out
    assert record.reason == (
        "it ran longer than 4 s (limits.run_seconds); it was waiting for the first training batch of 1 worker, "
        "which was in __getitem__ (locked.py, line 12)"
    ), (folder.run(record.run) / "run.log").read_text()
    last_line(f"a loader's worker that hangs, loop={loop}", record.reason)


LEAVING = """
import multiprocessing, os
from os import _exit
from accelsweep.workloads.image_models import SmallCNN

def leave(code):
    _exit(code)

class Leaving(SmallCNN):
    def __init__(self, how, width=8, depth=2):
        super().__init__(width=width, depth=depth)
        self.how = how
        if how == "built":
            os._exit(5)

    def training_step(self, batch, number):
        if self.how == "step" and number == 3:
            leave(3)
        if self.how == "child" and number == 3:
            child = multiprocessing.get_context("fork").Process(target=leave, args=(9,))
            child.start()
            child.join()
        return super().training_step(batch, number)

    def validation_step(self, batch, number):
        if self.how == "validation":
            leave(0)
        super().validation_step(batch, number)

class LeavingHook(Leaving):
    def on_train_batch_start(self, *_):
        leave(4)
"""


def test_a_call_of_os_exit_is_reported_with_its_code_and_its_hook(tmp_path: Path, last_line) -> None:
    reasons = {
        "built": "os._exit(5) was called in __init__ (leaving.py, line 14): raise an exception or return",
        "step": "os._exit(3) was called in training_step, in leave (leaving.py, line 7): raise an exception or return",
        "hook": "os._exit(4) was called in on_train_batch_start, in leave (leaving.py, line 7): raise an exception or",
    }
    home = tmp_path / "home"
    home.mkdir()
    (home / "leaving.py").write_text(LEAVING)
    loops = {"hook": "lightning"}
    quality = {"warmup_steps": 5, "min_steps": 20, "min_seconds": 0.1, "max_steps": 200, "quality_samples": 64}
    settings = [
        {
            "loop": loops.get(how, "raw"),
            "model": {"_target_": f"leaving.Leaving{'Hook' if how == 'hook' else ''}", "how": how},
            "measure": quality | {"quality_metric": "val_accuracy"},
        }
        for how in (*reasons, "child", "validation")
    ]
    folder, block = plan_sweep(home, settings, limits={"retries": 2})
    *exited, child, validation = measure_sweep(folder, block, within_seconds=PATIENCE_SECONDS)[0]
    for record, why in zip(exited, reasons.values(), strict=True):
        assert (record.outcome, record.attempt) == (Outcome.crashed, 1)
        assert str(record.reason).startswith(why)
        last_line("`os._exit`", str(record.reason))
    assert (child.outcome, child.reason) == (Outcome.measured, None), "the exit of a child process is not the rank's"
    assert (validation.outcome, validation.reason) == (Outcome.measured, None)
    assert "os._exit(0) was called in validation_step, in leave (" in str(validation.metrics["quality"].reason)
