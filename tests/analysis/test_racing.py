"""Settings that are much slower than the baseline are decided early, and nothing else is."""

from __future__ import annotations

import math
from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from accelsweep.analysis.analyse_sweep import analyse
from accelsweep.analysis.racing import early_decisions_on
from accelsweep.analysis.run_results import RunRow
from accelsweep.records.early_decisions import EarlyDecision
from accelsweep.records.estimates import Verdict
from accelsweep.results import Doubt, Outcome

RATIOS = {32: 1.0, 64: 0.1, 128: 0.9, 256: 2.0, 512: 0.5}
BUSY = Doubt("busy_cpu", "other processes kept 1.40 of 2 cores busy", "stop them")


def runs_of(simulated: ModuleType, blocks: int, **fields: Any) -> list[RunRow]:
    """Return one run of each setting in each block, with 1 % of noise."""
    random = np.random.default_rng(3)
    return [
        simulated.make_run({"batch_size": batch}, block, 1000.0 * ratio * math.exp(random.normal(0, 0.01)), **fields)
        for block in range(blocks)
        for batch, ratio in RATIOS.items()
    ]


def decisions(simulated: ModuleType, runs: list[RunRow]) -> dict[int, EarlyDecision]:
    """Return the decisions on these runs by batch size."""
    manifest = simulated.make_manifest([{"batch_size": batch} for batch in RATIOS], 5)
    found = early_decisions_on(runs, manifest)
    return {batch: found[name] for batch in RATIOS if (name := simulated.name_of({"batch_size": batch})) in found}


def test_two_blocks_decide_on_settings_that_are_much_slower_and_on_no_other(simulated):
    found = decisions(simulated, runs_of(simulated, 2, wall_seconds=4))
    assert found.keys() == {64, 512}
    decision = found[64]
    assert (decision.blocks, decision.run_seconds) == (("b0", "b1"), 4.0)
    assert decision.ratio.low < 0.1 < decision.ratio.high < 0.8
    assert decision.ratio.confidence > 0.99
    assert decision.reason.startswith("decided after 2 repeats: 0.")


def test_one_block_decides_nothing(simulated):
    assert decisions(simulated, runs_of(simulated, 1)) == {}


@pytest.mark.parametrize(("disturbed", "blocks"), [(64, ("b1",)), (32, ("b0", "b1"))])
def test_a_setting_in_doubt_or_with_a_disturbed_baseline_is_not_decided(simulated, disturbed, blocks):
    runs = [
        replace(run, doubts=(BUSY,)) if run.axes["batch_size"] == disturbed and run.block in blocks else run
        for run in runs_of(simulated, 2)
    ]
    assert decisions(simulated, runs).keys() == ({512} if disturbed == 64 else set())


def test_more_looks_need_more_evidence(simulated):
    """The same two values are not judged by the same interval after three blocks, because less error is left."""
    second = decisions(simulated, runs_of(simulated, 2))[64].ratio
    third = decisions(simulated, runs_of(simulated, 3))[64].ratio
    assert third.confidence > second.confidence


def test_the_findings_of_a_decided_setting_have_the_interval_of_the_decision_and_count_no_missing_repeats(simulated):
    manifest = simulated.make_manifest([{"batch_size": batch} for batch in RATIOS], 5)
    slow, rows = simulated.name_of({"batch_size": 64}), runs_of(simulated, 5, wall_seconds=4)
    decision = early_decisions_on([run for run in rows if run.block in ("b0", "b1")], manifest)[slow]
    rows = [
        replace(run, outcome=Outcome.decided, decision=decision, metrics={}, record_sha256=None)
        if run.setting == slow and run.block not in decision.blocks
        else run
        for run in rows
    ]
    findings = analyse(rows, manifest)
    (found,) = [setting for setting in findings.settings if setting.setting == slow]
    assert (found.verdict, found.speedup.ratio) == (Verdict.slower, decision.ratio)
    assert found.verdict_reason == f"{decision.reason}; 3 repeats left out, which saved about 20 seconds"
    assert findings.outcomes[Outcome.decided] == 3
    assert "missing_repeats" not in {doubt.code for doubt in found.doubts}


@pytest.mark.parametrize("scenario", ["equal normal", "one setting 10x", "stalls of 30 %"])
def test_early_decisions_leave_all_intervals_covering_and_few_settings_out_wrongly(coverage, scenario):
    noise = 0.03 * coverage.SCENARIOS[scenario](np.random.default_rng(11), (400, 8, 5))
    held, wrong, saved = coverage.raced(noise)
    assert held >= coverage.COVERED - 0.02
    assert wrong <= coverage.FALSE
    assert saved >= 0.1
