"""LoadGen beside our own scenarios: the same module, asked twice."""

from __future__ import annotations

import pytest
from one_rank import MEASURE

from accelsweep.results import Outcome

pytestmark = pytest.mark.heavy

pytest.importorskip("mlperf_loadgen", reason="accelsweep's extra `serving` is not installed")

SLEEPING = "    def predict_step(self, batch):\n        import time\n        time.sleep(0.01)\n        return batch\n"


@pytest.fixture
def asked(run, own_module):
    """Answer for 10 ms a batch, in a scenario, asked by both."""

    def ask(scenario: str, batch_size: int, seconds: float):
        measure = {**MEASURE, "min_steps": 20, "min_seconds": seconds, "max_steps": 2000, "scenario": scenario}
        serving = {"latency_percentile": 0.9, "generator": "loadgen"}
        model = own_module("return None", SLEEPING)
        return run(task="inference", model=model, measure=measure, batch_size=batch_size, serving=serving)

    return ask


@pytest.mark.parametrize(("scenario", "batch_size"), [("offline", 8), ("single_stream", 1), ("multi_stream", 4)])
def test_loadgens_figures_stand_beside_ours(asked, scenario, batch_size):
    result = asked(scenario, batch_size, 0.1)
    assert result.outcome is Outcome.measured, result.traceback
    metrics = result.metrics
    assert 0 < metrics["loadgen_samples_per_second"].value <= batch_size / 0.01
    assert metrics["samples_per_second"].value <= batch_size / 0.01
    if scenario == "offline":
        assert "all queries arrive at once" in metrics["loadgen_query_seconds_p50"].reason
    else:
        assert metrics["loadgen_query_seconds_p90"].value >= 0.01


@pytest.mark.timing
@pytest.mark.long  # a busy machine parts them; the test above holds that both figures stand there
@pytest.mark.parametrize(("scenario", "batch_size"), [("offline", 8), ("single_stream", 1), ("multi_stream", 4)])
def test_loadgen_agrees_with_our_own_scenarios(asked, scenario, batch_size):
    """Both ask a module that sleeps. What each adds of its own is a small part of 10 ms."""
    metrics = asked(scenario, batch_size, 1.5).metrics
    assert metrics["loadgen_samples_per_second"].value == pytest.approx(metrics["samples_per_second"].value, rel=0.05)
    if scenario != "offline":
        ours, theirs = metrics["query_seconds_p50"].value, metrics["loadgen_query_seconds_p50"].value
        assert theirs == pytest.approx(ours, rel=0.05)
