"""Ladders: the gain of each rung over the last measured one and over the first, and a row for every other rung."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from simulated_sweep import CONFIG, make_manifest, make_run

from accelsweep.analysis.analyse_sweep import analyse
from accelsweep.config.schema import checked_config
from accelsweep.features.ladder.model import Rung
from accelsweep.features.ladder.report import rungs_of
from accelsweep.records.estimates import Verdict
from accelsweep.records.plan import Manifest

STEPS = ("0_naive", "1_larger_batch", "2_compiled")


def step(name: str, **axes: Any) -> dict[str, Any]:
    return {"rung": name, **axes}


def with_ladder(manifest: Manifest) -> Manifest:
    options = manifest.options.model_copy(update={"report": {"ladder": "rung"}})
    return manifest.model_copy(update={"options": options})


def climb(rates: dict[str, float | None], unsupported: str | None = None) -> tuple[Rung, ...]:
    """Return the rungs of a ladder with these rates (None crashes) over five blocks, each faster than the last."""
    settings = [step(name) for name in rates]
    rows = [
        make_run(axes, block, rate and rate * (1 + block) * math.exp(0.001 * (-1) ** block * number))
        for block in range(5)
        for number, (axes, rate) in enumerate(zip(settings, rates.values(), strict=True))
        if axes["rung"] != unsupported
    ]
    manifest = make_manifest(settings, 5)
    planned = tuple(
        setting.model_copy(update={"unsupported": "no such key" if setting.axes["rung"] == unsupported else None})
        for setting in manifest.settings
    )
    return rungs_of(analyse(rows, with_ladder(manifest.model_copy(update={"settings": planned}))))


def test_each_rung_is_compared_with_the_one_before_and_with_the_first() -> None:
    naive, batch, compiled = climb({"0_naive": 100.0, "1_larger_batch": 200.0, "2_compiled": 300.0})
    assert [rung.step for rung in (naive, batch, compiled)] == list(STEPS)
    assert (naive.gain, naive.total, naive.verdict) == (None, None, Verdict.baseline)
    assert batch.gain == batch.total
    assert (batch.gain.value, compiled.gain.value, compiled.total.value) == pytest.approx((2.0, 1.5, 3.0), rel=0.003)
    assert compiled.gain.low < 1.5 < compiled.gain.high
    assert (compiled.before, compiled.verdict, compiled.total_verdict) == (STEPS[1], Verdict.faster, Verdict.faster)


def test_gains_are_paired_within_blocks() -> None:
    """Rates differ by a factor of five between blocks; an unpaired interval could not be as narrow."""
    _, batch = climb({"0_naive": 100.0, "1_larger_batch": 200.0})
    assert batch.gain.high / batch.gain.low < 1.02


def test_the_intervals_of_all_gains_hold_simultaneously() -> None:
    """Three rungs give three ratios: two over the rung before, and one more over the first."""
    _, _, compiled = climb({"0_naive": 100.0, "1_larger_batch": 200.0, "2_compiled": 300.0})
    assert compiled.gain.confidence == pytest.approx(1 - 0.05 / 3)


def test_a_failed_rung_is_a_row_and_the_next_is_compared_with_the_last_measured_one() -> None:
    _, batch, compiled = climb({"0_naive": 100.0, "1_larger_batch": None, "2_compiled": 300.0})
    assert (batch.rate, batch.gain, batch.verdict) == (None, None, Verdict.not_measured)
    assert "crashed (RuntimeError: simulated)" in batch.reason
    assert compiled.before == STEPS[0]
    assert compiled.gain == compiled.total


def test_an_unsupported_rung_is_a_row_and_widens_no_interval() -> None:
    _, batch, compiled = climb({"0_naive": 100.0, "1_larger_batch": 1.0, "2_compiled": 300.0}, STEPS[1])
    assert batch.reason == "unsupported: no such key"
    assert compiled.gain.confidence == pytest.approx(0.95)


def test_a_ladder_whose_first_rung_failed_starts_at_the_next() -> None:
    naive, batch, compiled = climb({"0_naive": None, "1_larger_batch": 200.0, "2_compiled": 300.0})
    assert (naive.verdict, batch.verdict, batch.gain) == (Verdict.not_measured, Verdict.baseline, None)
    assert compiled.total.value == pytest.approx(1.5, rel=0.003)


def test_a_rung_that_always_missed_its_target_is_a_row_with_that_reason() -> None:
    settings = [step(name) for name in STEPS]
    missed = {"value": None, "unit": "results/h", "reason": "target val_accuracy >= 0.9 not reached"}
    rows = [
        make_run(axes, block, 100.0, config={"task": "time_to_accuracy"}, **fields)
        for block in range(3)
        for axes, fields in zip(
            settings,
            (
                {"results_per_hour": 10.0 + block},
                {"metrics": {"results_per_hour": missed}},
                {"results_per_hour": 20.1 + block * 2},
            ),
            strict=True,
        )
    ]
    manifest = make_manifest(settings, 3)
    rungs = rungs_of(analyse(rows, with_ladder(manifest)))
    assert (rungs[1].rate, rungs[1].gain, rungs[1].verdict) == (None, None, Verdict.not_measured)
    assert "3 of 3 runs: measured (target val_accuracy >= 0.9 not reached)" in rungs[1].reason
    assert (rungs[2].before, rungs[2].gain) == (STEPS[0], rungs[2].total)


def test_settings_that_differ_in_another_axis_are_on_different_ladders() -> None:
    settings = [step(name, devices=devices) for name in STEPS[:2] for devices in (1, 2)]
    rates = {("0_naive", 1): 100.0, ("1_larger_batch", 1): 200.0, ("0_naive", 2): 50.0, ("1_larger_batch", 2): 400.0}
    rows = [
        make_run(axes, block, rates[axes["rung"], axes["devices"]] * (1 + 0.001 * block * number))
        for block in range(3)
        for number, axes in enumerate(settings)
    ]
    manifest = make_manifest(settings, 3)
    rungs = rungs_of(analyse(rows, with_ladder(manifest)))
    gains = {rung.ladder: rung.gain.value for rung in rungs if rung.gain}
    assert gains == pytest.approx({"1 device": 2.0, "2 devices": 8.0}, rel=0.01)
    assert [rung.step for rung in rungs] == [*STEPS[:2], *STEPS[:2]]


def test_a_sweep_without_a_ladder_has_none() -> None:
    settings = [step(name) for name in STEPS]
    rows = [make_run(axes, block, 100.0 + block) for block in range(3) for axes in settings]
    assert rungs_of(analyse(rows, make_manifest(settings, 3))) == ()


def test_a_rung_may_change_any_key_of_the_config() -> None:
    """The keys that a rung's file sets are no reason to refuse its comparison."""
    settings = [step(name) for name in STEPS[:2]]
    configs = [checked_config({**CONFIG, "batch_size": 32 * (1 + number)}) for number in (0, 1)]
    rows = [  # `rung` is no key of the config
        replace(make_run(axes, block, 100.0 * (1 + number) + block), config=configs[number])
        for block in range(3)
        for number, axes in enumerate(settings)
    ]
    manifest = make_manifest(settings, 3)
    findings = analyse(rows, with_ladder(manifest))
    assert findings.refusals == ()
    assert rungs_of(findings)[1].gain is not None


def test_the_gains_of_a_ladder_pool_their_variances() -> None:
    """Noise of the first rungs widens the gain of the last one, which has little noise itself."""

    def gain(noise: float) -> float:
        settings = [step(name) for name in (*STEPS, "3_last")]
        sds, shape = (noise, noise, 0.001, 0.001), ((1, -1, 0), (0, 1, -1), (1, 1, -2), (-1, 2, -1))
        rows = [
            make_run(axes, block, 100.0 * (1 + number) * math.exp(sds[number] * shape[number][block]))
            for block in range(3)
            for number, axes in enumerate(settings)
        ]
        manifest = make_manifest(settings, 3)
        last = rungs_of(analyse(rows, with_ladder(manifest)))[3].gain
        assert last is not None
        return last.high / last.low

    assert gain(0.001) < gain(0.01)
