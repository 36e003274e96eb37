"""Ladders: each step's gain over the last measured step and over the first, and a row for every step that has none."""

from __future__ import annotations

import math
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest

from accelsweep.analysis.analyse_sweep import analyse
from accelsweep.config.schema import CellConfig
from accelsweep.features.ladder.model import Rung
from accelsweep.features.ladder.report import rungs_of
from accelsweep.records.estimates import Verdict

STEPS = ("0_naive", "1_larger_batch", "2_compiled")


def step(name: str, **axes: Any) -> dict[str, Any]:
    return {"rung": name, **axes}


@pytest.fixture
def climb(simulated: ModuleType):
    """Climb a ladder whose steps have these rates (None crashes), in five blocks that are each so much faster."""

    def climbed(rates: dict[str, float | None], unsupported: str | None = None, **more: Any) -> tuple[Rung, ...]:
        cells = [step(name, **more) for name in rates]
        rows = [
            simulated.make_run(axes, block, rate and rate * (1 + block) * math.exp(0.001 * (-1) ** block * number))
            for block in range(5)
            for number, (axes, rate) in enumerate(zip(cells, rates.values(), strict=True))
            if axes["rung"] != unsupported
        ]
        manifest = simulated.make_manifest(cells, 5)
        planned = tuple(
            cell.model_copy(update={"unsupported": "no such key" if cell.axes["rung"] == unsupported else None})
            for cell in manifest.cells
        )
        settings = manifest.settings.model_copy(update={"report": {"ladder": "rung"}})
        plan = manifest.model_copy(update={"cells": planned, "settings": settings})
        return rungs_of(analyse(rows, plan))

    return climbed


def test_each_step_is_compared_with_the_step_before_and_with_the_first(climb) -> None:
    naive, batch, compiled = climb({"0_naive": 100.0, "1_larger_batch": 200.0, "2_compiled": 300.0})
    assert [rung.step for rung in (naive, batch, compiled)] == list(STEPS)
    assert (naive.gain, naive.total, naive.verdict) == (None, None, Verdict.baseline)
    assert batch.gain == batch.total
    assert (batch.gain.value, compiled.gain.value, compiled.total.value) == pytest.approx((2.0, 1.5, 3.0), rel=0.003)
    assert compiled.gain.low < 1.5 < compiled.gain.high
    assert (compiled.before, compiled.verdict, compiled.total_verdict) == (STEPS[1], Verdict.faster, Verdict.faster)


def test_gains_are_paired_within_blocks(climb) -> None:
    """The blocks' rates differ by a factor of five; unpaired, no interval could be as narrow."""
    _, batch = climb({"0_naive": 100.0, "1_larger_batch": 200.0})
    assert batch.gain.high / batch.gain.low < 1.02


def test_all_gains_of_a_ladder_hold_together(climb) -> None:
    """Three steps print three ratios: two over the step before, and one more over the first."""
    _, _, compiled = climb({"0_naive": 100.0, "1_larger_batch": 200.0, "2_compiled": 300.0})
    assert compiled.gain.confidence == pytest.approx(1 - 0.05 / 3)


def test_a_step_that_failed_is_a_row_and_the_next_is_compared_with_the_last_that_did_not(climb) -> None:
    _, batch, compiled = climb({"0_naive": 100.0, "1_larger_batch": None, "2_compiled": 300.0})
    assert (batch.rate, batch.gain, batch.verdict) == (None, None, Verdict.not_measured)
    assert "crashed (RuntimeError: simulated)" in batch.reason
    assert compiled.before == STEPS[0]
    assert compiled.gain == compiled.total


def test_a_step_that_the_model_lacks_is_a_row_and_widens_no_interval(climb) -> None:
    _, batch, compiled = climb({"0_naive": 100.0, "1_larger_batch": 1.0, "2_compiled": 300.0}, STEPS[1])
    assert batch.reason == "unsupported: no such key"
    assert compiled.gain.confidence == pytest.approx(0.95)


def test_without_its_first_step_a_ladder_begins_at_the_next(climb) -> None:
    naive, batch, compiled = climb({"0_naive": None, "1_larger_batch": 200.0, "2_compiled": 300.0})
    assert (naive.verdict, batch.verdict, batch.gain) == (Verdict.not_measured, Verdict.baseline, None)
    assert compiled.total.value == pytest.approx(1.5, rel=0.003)


def test_a_step_that_missed_its_target_every_time_is_a_row_with_that_reason(simulated: ModuleType) -> None:
    """It was measured, and has no rate to compare."""
    cells = [step(name) for name in STEPS]
    missed = {"value": None, "unit": "results/h", "reason": "target val_accuracy >= 0.9 not reached"}
    rows = [
        simulated.make_run(axes, block, 100.0, config={"task": "time_to_accuracy"}, **fields)
        for block in range(3)
        for axes, fields in zip(
            cells,
            (
                {"results_per_hour": 10.0 + block},
                {"metrics": {"results_per_hour": missed}},
                {"results_per_hour": 20.1 + block * 2},
            ),
            strict=True,
        )
    ]
    manifest = simulated.make_manifest(cells, 3)
    settings = manifest.settings.model_copy(update={"report": {"ladder": "rung"}})
    found = rungs_of(analyse(rows, manifest.model_copy(update={"settings": settings})))
    assert (found[1].rate, found[1].gain, found[1].verdict) == (None, None, Verdict.not_measured)
    assert "3 of 3 runs: measured (target val_accuracy >= 0.9 not reached)" in found[1].reason
    assert (found[2].before, found[2].gain) == (STEPS[0], found[2].total)


def test_cells_that_differ_in_another_axis_stand_on_another_ladder(simulated: ModuleType) -> None:
    cells = [step(name, devices=devices) for name in STEPS[:2] for devices in (1, 2)]
    rates = {("0_naive", 1): 100.0, ("1_larger_batch", 1): 200.0, ("0_naive", 2): 50.0, ("1_larger_batch", 2): 400.0}
    rows = [
        simulated.make_run(axes, block, rates[axes["rung"], axes["devices"]] * (1 + 0.001 * block * number))
        for block in range(3)
        for number, axes in enumerate(cells)
    ]
    manifest = simulated.make_manifest(cells, 3)
    settings = manifest.settings.model_copy(update={"report": {"ladder": "rung"}})
    found = rungs_of(analyse(rows, manifest.model_copy(update={"settings": settings})))
    gains = {rung.ladder: rung.gain.value for rung in found if rung.gain}
    assert gains == pytest.approx({"devices=1": 2.0, "devices=2": 8.0}, rel=0.01)
    assert [rung.step for rung in found] == [*STEPS[:2], *STEPS[:2]]


def test_a_sweep_without_a_ladder_has_none(simulated: ModuleType) -> None:
    cells = [step(name) for name in STEPS]
    rows = [simulated.make_run(axes, block, 100.0 + block) for block in range(3) for axes in cells]
    assert rungs_of(analyse(rows, simulated.make_manifest(cells, 3))) == ()


def test_an_overlay_may_change_any_key_of_the_config(simulated: ModuleType) -> None:
    """A rung is a file that sets keys; what it sets must not make its gain a refused comparison."""
    cells = [step(name) for name in STEPS[:2]]
    configs = [CellConfig.model_validate({**simulated.CONFIG, "batch_size": 32 * (1 + number)}) for number in (0, 1)]
    rows = [  # a rung is no key of the config
        replace(simulated.make_run(axes, block, 100.0 * (1 + number) + block), config=configs[number])
        for block in range(3)
        for number, axes in enumerate(cells)
    ]
    manifest = simulated.make_manifest(cells, 3)
    settings = manifest.settings.model_copy(update={"report": {"ladder": "rung"}})
    findings = analyse(rows, manifest.model_copy(update={"settings": settings}))
    assert findings.refusals == ()
    assert rungs_of(findings)[1].gain is not None


def test_the_gains_of_a_ladder_share_what_their_blocks_show_of_the_noise(simulated: ModuleType) -> None:
    """The last step is quiet; over the step before it, what is usual on this ladder counts too."""

    def gain(noise: float) -> float:
        cells = [step(name) for name in (*STEPS, "3_last")]
        sds, shape = (noise, noise, 0.001, 0.001), ((1, -1, 0), (0, 1, -1), (1, 1, -2), (-1, 2, -1))
        rows = [
            simulated.make_run(axes, block, 100.0 * (1 + number) * math.exp(sds[number] * shape[number][block]))
            for block in range(3)
            for number, axes in enumerate(cells)
        ]
        manifest = simulated.make_manifest(cells, 3)
        settings = manifest.settings.model_copy(update={"report": {"ladder": "rung"}})
        last = rungs_of(analyse(rows, manifest.model_copy(update={"settings": settings})))[3].gain
        assert last is not None
        return last.high / last.low

    assert gain(0.001) < gain(0.01)
