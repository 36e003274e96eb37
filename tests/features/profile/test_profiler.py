"""A profile in place of a measurement: some steps under torch's profiler, after some that do not count."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace

import pytest
from one_rank import BOTH_LOOPS, MEASURE
from pydantic import TypeAdapter

from accelsweep.features.profile.command import ENTRY_POINT
from accelsweep.features.profile.profiler import FEWEST_WARMUP_STEPS
from accelsweep.features.profile.step_profile import StepProfile, trace_of
from accelsweep.records.run_files import read_rank_result
from accelsweep.results import Outcome

TWO_LAYERS = """
import lightning.pytorch as pl, torch, time
class Slow(torch.nn.Linear):
    calls = 0
    def forward(self, inputs):
        Slow.calls += 1
        time.sleep(0.6 if Slow.calls == 1 else 0.04)
        return super().forward(inputs)
def wide(batch):
    return torch.ones(len(batch), 64)
class Module(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.slow, self.large = Slow(64, 512), torch.nn.Linear(512, 512)
    def training_step(self, batch, batch_idx):
        return self.large(self.slow(wide(batch))).square().mean()
    def predict_step(self, batch, batch_idx):
        return self.slow(wide(batch))
"""


@pytest.fixture
def profiled(tmp_path, spec, run):
    """Profile steps of a module with a layer that sleeps 40 ms; return the rank's result, the profile and its trace.

    All else takes far less, on a busy machine too.
    """
    from accelsweep.worker.main import run_rank

    (tmp_path / "two_layers.py").write_text(TWO_LAYERS)

    def go(steps=4, **changes):
        made = replace(
            spec(model={"_target_": "two_layers.Module"}, **changes), substitute=ENTRY_POINT, extra_steps=steps
        )
        run_rank(made)
        result = read_rank_result(made.rank_result(0))
        assert (result.outcome, result.reason) == (Outcome.measured, None)
        trace = json.loads(gzip.decompress(trace_of(made).read_bytes()))["traceEvents"]
        return result, TypeAdapter(StepProfile).validate_python(result.extra), trace

    return go


@pytest.mark.timing  # time without a processor counts in the step, and in none of its operators
@BOTH_LOOPS
def test_time_is_found_where_it_is_known_to_go(profiled, loop):
    _, found, trace = profiled(loop=loop)
    assert (found.steps, found.warmup_steps) == (4, FEWEST_WARMUP_STEPS)
    assert len({one["name"] for one in trace if one["name"].startswith("ProfilerStep#") and one.get("dur")}) == 4
    rows = {row.title: row for row in found.modules}
    assert rows["slow forward"].host_seconds >= 0.04
    assert (rows["slow forward"].form, rows["slow forward"].calls) == ("Slow", 1)
    assert rows["large backward"].host_seconds > 0
    assert rows["(optimizer)"].host_seconds > 0
    assert found.modules[0].title == "slow forward"
    summed = sum(row.host_seconds for row in found.operators)
    assert summed == pytest.approx(found.step_seconds, rel=0.25), "on one thread of a CPU the rows are the step"
    assert sum(row.host_seconds for row in found.modules) == pytest.approx(summed)
    assert found.step_seconds < 0.12, "the first step, fifteen times as long, does not count"


def test_a_profile_measures_nothing(profiled, spec):
    result, _, _ = profiled()
    assert result.metrics == {}
    assert not spec().rank_steps(0).exists()


def test_answers_can_be_profiled_too(profiled):
    _, found, _ = profiled(task="inference")
    assert {row.part for row in found.modules} == {"forward", "outside", "data"}


def test_steps_that_share_an_optimiser_step_are_profiled_together(profiled):
    _, found, _ = profiled(trainer={"strategy": "auto", "accumulate_grad_batches": 3})
    assert found.steps == 6


def test_as_many_steps_come_first_as_before_a_window(profiled):
    _, found, _ = profiled(measure={**MEASURE, "warmup_steps": 9})
    assert found.warmup_steps == 9


def test_an_error_of_the_users_code_is_a_result_too(spec, run, own_module):
    from accelsweep.worker.main import run_rank

    made = replace(spec(model=own_module("raise KeyError('no such label')")), substitute=ENTRY_POINT, extra_steps=2)
    run_rank(made)
    assert read_rank_result(made.rank_result(0)).reason == "KeyError: 'no such label'"
