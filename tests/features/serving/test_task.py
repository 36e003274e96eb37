"""`measure.scenario=server` on one rank, from its spec to its result."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest
import torch
from one_rank import DIGITS, MEASURE, MLP, run_ranks

from accelsweep.errors import Unsupported
from accelsweep.features.serving.loadgen import Load, LoadTest, Peak
from accelsweep.features.serving.options import Serving
from accelsweep.features.serving.task import load_metrics, nothing_valid
from accelsweep.metrics import Metric
from accelsweep.results import Outcome
from accelsweep.worker.tasks.inference import collate, first_samples, split_batch

pytestmark = pytest.mark.heavy

SERVED = {
    "task": "inference",
    "model": MLP,
    "data": DIGITS,
    "measure": {**MEASURE, "min_seconds": 0.1, "scenario": "server"},
    "serving": {"latency_ms": 100.0, "latency_percentile": 0.9, "max_wait_ms": 1.0, "workers": 1},
}


TWO_AND_A_HALF_MS = """
    def predict_step(self, batch):
        import time
        until = time.perf_counter() + 0.0025
        time.sleep(0.0023)
        while time.perf_counter() < until:
            pass
        return batch
"""

FAILS_ON_RANK_1 = """
    def predict_step(self, batch):
        import os, threading
        if os.environ["RANK"] == "1" and threading.current_thread() is not threading.main_thread():
            raise ValueError("rank 1 is tired")
        return batch
"""


NO_COUNTER = Metric(value=None, unit="J", reason="unavailable: no counter")


@pytest.fixture
def loadgen():
    return pytest.importorskip("mlperf_loadgen", reason="accelsweep's extra `serving` is not installed")


@pytest.fixture
def brief(monkeypatch):
    """Tests need not be so long that a growing queue breaks the bound."""
    monkeypatch.setattr("accelsweep.features.serving.task.TEST_LATENCY_BOUNDS", 0.05)


def test_a_model_under_load_has_a_highest_load_and_the_latencies_there_and_at_half_of_it(run, loadgen, brief, tmp_path):
    result = run(**SERVED)
    assert result.outcome is Outcome.measured, result.traceback
    value = {name: metric.value for name, metric in result.metrics.items()}
    assert value["queries_per_second"] > 0
    assert value["query_seconds_p90"] <= 0.1, "or LoadGen would not have let it pass"
    assert value["half_load_query_seconds_p50"] <= value["half_load_query_seconds_p90"]
    assert 1 <= value["answered_together"] <= 8, "batch_size is the most"
    assert value["load_tests"] >= 2
    assert value["batch_samples_per_second"] == pytest.approx(value["window_samples"] / value["window_seconds"])
    assert "queries_per_second" in result.metrics["samples_per_second"].reason, "scenarios are not to be mixed"
    assert result.metrics["queries_per_second"].provenance.startswith("LoadGen 6")
    assert "90 % of the answers within 100 ms" in result.metrics["queries_per_second"].scope
    energy = result.metrics["joules_per_query"]
    assert (energy.value is None) == (energy.reason is not None), "few machines let their counters be read"
    assert not [doubt for doubt in result.doubts if "LoadGen" in doubt.message]
    summaries = sorted(path.name for path in (tmp_path / "loadgen").iterdir())
    assert summaries[0] == "00-summary.txt"
    assert len(summaries) == value["load_tests"] + 1, "and the one at half load"
    assert "schedule_rng_seed : 1\n" in (tmp_path / "loadgen" / "00-summary.txt").read_text(), "the run's seed"


STALLS = """
    def predict_step(self, batch):
        import threading, time
        time.sleep(0.002)
        self.asked = getattr(self, "asked", 0) + (threading.current_thread() is not threading.main_thread())
        if self.asked == %d:
            self.asked += 1
            time.sleep(0.6)
        return batch
"""


@pytest.mark.parametrize("batch", [1, 10], ids=["the first batch", "a later batch"])
def test_a_test_of_the_load_in_which_no_answer_came_for_long_is_doubted(batch, run, loadgen, brief, own_module):
    """A test has at least 100 queries, in batches of at most eight: so the first test has a tenth batch."""
    result = run(**{**SERVED, "model": own_module("return None", STALLS % batch)})
    assert result.outcome is Outcome.measured, result.traceback
    told = [one.message for one in result.doubts if one.code in ("stall", "processes_stopped")]
    assert any("of a LoadGen test)" in message for message in told)


def test_a_bound_that_one_query_alone_breaks_leaves_no_rate_but_a_reason(run, loadgen):
    """It is told before any load: LoadGen would go down and down with loads that take ever longer."""
    result = run(**{**SERVED, "serving": {**SERVED["serving"], "latency_ms": 0.5}})
    assert result.outcome is Outcome.measured, result.traceback
    for name in ("queries_per_second", "query_seconds_p50", "half_load_query_seconds_mean", "load_tests"):
        assert result.metrics[name].value is None
        assert "more than serving.latency_ms=0.5" in result.metrics[name].reason


def test_a_load_that_no_queue_survives_has_loadgens_reason_and_no_rate():
    refused = LoadTest(Load(12.5), "Reduce target QPS to improve latency.", 1000, 9.0, 3.0, {}, 1.0)
    peak = Peak(best=None, refused=refused, tests=12)
    metrics = load_metrics(Serving(), peak, None, nothing_valid(peak))
    lost = metrics["queries_per_second"]
    assert lost.value is None
    assert lost.reason.startswith("LoadGen: INVALID at 12.5 queries/s")
    assert lost.reason.endswith("Reduce target QPS to improve latency.")
    assert metrics["load_tests"].value == 12
    assert metrics["half_load_query_seconds_p50"].reason == lost.reason


def test_the_energy_of_a_query_is_that_of_the_test_at_the_highest_load():
    joules = Metric(value=50.0, unit="J", scope="GPU boards of all ranks", provenance="counter")
    best = LoadTest(Load(100.0), None, 1000, 99.0, 0.01, dict.fromkeys((0.5, 0.9, 0.99), 0.01), 1.0, joules)
    found = load_metrics(Serving(), Peak(best, None, 3), best, None)["joules_per_query"]
    assert (found.value, found.unit, found.scope) == (0.05, "J", "GPU boards of all ranks")
    lost = load_metrics(Serving(), Peak(replace(best, energy=NO_COUNTER), None, 3), best, None)["joules_per_query"]
    assert (lost.value, lost.reason) == (None, "unavailable: no counter")


def test_a_model_that_fails_under_load_is_a_crash_with_its_own_words(run, loadgen, own_module):
    fails = (
        "    def predict_step(self, batch):\n"
        "        if len(batch[0]) == 1:\n"
        "            raise ValueError('one sample is too few')\n"
        "        return batch\n"
    )
    result = run(**{**SERVED, "model": own_module("return None", fails)})
    assert (result.outcome, result.reason) == (Outcome.crashed, "ValueError: one sample is too few")


def test_without_the_load_generator_the_run_is_unsupported_and_says_what_to_install(run, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    result = run(**SERVED)
    assert result.outcome is Outcome.unsupported
    assert result.reason == "measure.scenario=server needs MLPerf's LoadGen: pip install accelsweep[serving]"


def test_workers_share_the_threads_of_the_rank_and_give_them_back(run, loadgen, brief, own_module):
    """Also for the query that is alone: with all threads it would tell nothing of the load to come."""
    told = (
        "    def predict_step(self, batch):\n"
        "        import threading, time\n"
        "        time.sleep(0.002)\n"
        "        here = (threading.current_thread() is threading.main_thread(), torch.get_num_threads())\n"
        "        Module.seen = getattr(Module, 'seen', set()) | {here}\n"
        "        return batch\n"
    )
    model = own_module("return None", told)
    serving = {**SERVED["serving"], "workers": 2}
    result = run(**{**SERVED, "model": model, "serving": serving, "threads": 2})
    assert result.outcome is Outcome.measured, result.traceback
    seen = sys.modules[model["_target_"].partition(".")[0]].Module.seen
    assert seen == {(True, 2), (True, 1), (False, 1)}, "the window, the query alone, and the workers"
    assert torch.get_num_threads() == 2


@pytest.mark.real
@pytest.mark.timing
def test_two_ranks_answer_from_one_queue_and_the_first_one_speaks_for_both(spec, loadgen, own_module, tmp_path):
    """Every query takes 2.5 ms, so one rank answers 400 a second at most."""
    module = own_module("return None", TWO_AND_A_HALF_MS)
    serving = {**SERVED["serving"], "latency_ms": 25.0, "max_wait_ms": 0.0}
    served = {**SERVED, "model": module, "serving": serving, "batch_size": 1}
    first, second = run_ranks(spec(**served, devices=2), tmp_path)
    assert first.outcome is second.outcome is Outcome.measured, (first.traceback, second.traceback)
    assert 420 < first.metrics["queries_per_second"].value <= 800
    assert "queries_per_second" not in second.metrics
    assert sorted(path.name for path in (tmp_path / "loadgen").iterdir())[0] == "00-summary.txt"


@pytest.mark.real
def test_a_rank_that_cannot_answer_is_the_reason_and_the_others_are_its_echo(spec, loadgen, own_module, tmp_path):
    module = own_module("return None", FAILS_ON_RANK_1)
    first, second = run_ranks(spec(**{**SERVED, "model": module}, devices=2), tmp_path)
    assert (second.error_kind, second.reason) == ("user_exception", "ValueError: rank 1 is tired")
    assert first.error_kind == "collective"


def test_a_batch_is_taken_apart_into_samples_and_samples_come_together_again():
    batch = {"x": torch.arange(12).reshape(4, 3), "y": [torch.arange(4), torch.arange(4) + 10]}
    samples = split_batch(batch, 4)
    assert samples[2]["x"].tolist() == [6, 7, 8]
    assert samples[2]["y"] == [2, 12]
    again = collate(samples[1:3])
    assert again["x"].tolist() == batch["x"][1:3].tolist()
    assert [part.tolist() for part in again["y"]] == [[1, 2], [11, 12]]
    assert len(first_samples(iter([batch, batch, batch]), 4, 6)) == 6


@pytest.mark.parametrize("batch", [torch.zeros(3, 4), "text", {"x": torch.zeros(4), "n": 4}, []])
def test_a_batch_that_is_no_row_of_samples_is_unsupported(batch):
    with pytest.raises(Unsupported, match="needs single samples, but a batch of 4 contains"):
        split_batch(batch, 4)


def test_several_streams_wait_for_each_group_of_samples(run):
    measure = {**MEASURE, "min_steps": 40, "max_steps": 40, "scenario": "multi_stream"}
    metrics = run(task="inference", batch_size=4, model=MLP, data=DIGITS, measure=measure).metrics
    assert metrics["query_seconds_p50"].value > 0
    assert metrics["window_samples"].value == 160
