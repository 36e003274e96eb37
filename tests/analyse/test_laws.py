"""The universal scalability law: known truth comes back, its intervals hold, and its ends are where the rate's are."""

from __future__ import annotations

import math
from types import ModuleType

import numpy as np
import pytest

from accelsweep.analysis.analyse_sweep import analyse
from accelsweep.analysis.intervals import Family
from accelsweep.analysis.scaling import HALF, fit_law, most_devices
from accelsweep.records.findings import LawForm, ScalingLaw
from accelsweep.report.report_tables import laws_table

COUNTS = (1, 2, 4, 8)
NOISE = np.array([[0.001, -0.0005, -0.001], [-0.001, 0.001, 0.0005], [0.0005, -0.001, 0.001], [0.0, 0.001, -0.001]])


def _rate(contention: float, coherency: float, devices: int) -> float:
    return devices / (1.0 + contention * (devices - 1) + coherency * devices * (devices - 1))


def _laws(
    simulated: ModuleType,
    truth: tuple[float, float],
    counts: tuple[int, ...] = COUNTS,
    accelerator: str = "cuda",
    **changes: object,
) -> tuple[ScalingLaw, ...]:
    cells = [{"accelerator": accelerator, "devices": count, "batch_size": 32} for count in counts]
    rows = [
        simulated.make_run(axes, block, 500.0 * _rate(*truth, axes["devices"]) * math.exp(noise), **changes)
        for axes, noises in zip(cells, NOISE, strict=False)
        for block, noise in enumerate(noises)
    ]
    return analyse(rows, simulated.make_manifest(cells, 3)).laws


@pytest.mark.parametrize("counts", [COUNTS, (2, 4, 6, 16), (1, 2, 3, 4, 5, 8)])
@pytest.mark.parametrize("truth", [(0.0, 0.0), (0.1, 0.0), (0.05, 0.003), (0.0, 0.02), (0.7, 0.1)])
def test_rates_without_noise_give_the_contention_and_coherency_that_they_were_made_with(truth, counts) -> None:
    logs = {count: {"a": math.log(50 * _rate(*truth, count)), "b": math.log(_rate(*truth, count))} for count in counts}
    found = fit_law(logs, Family(2))
    assert (found.contention, found.coherency) == pytest.approx(truth, abs=1e-6)
    assert found.misfit < 1e-5


@pytest.mark.parametrize(
    ("truth", "way"),
    [((0.0, 0.0), (0.05, 3, True)), ((0.05, 0.001), (0.01, 3, True)), ((0.3, 0.0), (0.01, 5, False))],
)
def test_the_intervals_of_both_numbers_hold_the_truth_together(coverage: ModuleType, truth, way) -> None:
    held, *_ = coverage.law_coverage(*truth, COUNTS, way, 150)
    assert held >= coverage.COVERED - 2.5 * math.sqrt(0.05 * 0.95 / 150)


@pytest.mark.parametrize("truth", [(0.05, 0.001), (0.0, 0.02), (0.3, 0.005), (0.2, 3.0)])
def test_the_peak_and_the_last_device_that_pays_are_those_of_the_rate_itself(truth) -> None:
    rates = {n: _rate(*truth, n) for n in range(1, 100)} | {0: 0.0}
    gains = {n: rates[n] - rates[n - 1] for n in range(1, 100)}
    assert most_devices(*truth, 0.0) == max(n for n, rate in rates.items() if rate == max(rates.values()))
    assert most_devices(*truth, HALF) == max(n for n, gain in gains.items() if gain >= HALF)


def test_amdahls_law_has_no_peak_and_ideal_scaling_no_end() -> None:
    assert most_devices(0.05, 0.0, 0.0) is None
    assert most_devices(0.0, 0.0, HALF) is None
    assert most_devices(0.05, 0.0, HALF) == 9


def test_a_cost_of_pairs_is_the_universal_law_and_ends_where_the_rate_is_highest(simulated: ModuleType) -> None:
    (law,) = _laws(simulated, (0.05, 0.02))
    assert (law.form, law.devices) == (LawForm.universal, COUNTS)
    assert law.contention.low < 0.05 < law.contention.high
    assert law.coherency.low < 0.02 < law.coherency.high
    assert law.contention.confidence == pytest.approx(0.975)
    assert law.peak.low <= 7 <= law.peak.high <= 8
    assert law.pays.low <= law.pays.value <= law.pays.high < law.peak.low


def test_without_a_cost_of_pairs_the_law_is_amdahls_and_the_rate_never_falls(simulated: ModuleType) -> None:
    (law,) = _laws(simulated, (0.2, 0.0))
    assert (law.form, law.coherency.low) == (LawForm.amdahl, 0.0)
    assert law.contention.low < 0.2 < law.contention.high
    assert law.peak.high is None
    assert law.pays.value == 2


def test_ideal_scaling_is_told_as_such_and_its_end_is_open(simulated: ModuleType) -> None:
    (law,) = _laws(simulated, (0.0, 0.0))
    assert law.form is LawForm.ideal
    assert law.pays.high is None
    assert law.pays.low > 8


def test_a_rate_that_grows_faster_than_the_devices_has_no_end_by_the_law(simulated: ModuleType) -> None:
    (law,) = _laws(simulated, (-0.05, 0.0))
    assert (law.form, law.pays, law.peak) == (LawForm.beyond, None, None)
    assert "faster than the number of devices" in law.reason


def test_disturbed_runs_give_numbers_and_no_conclusion(simulated: ModuleType) -> None:
    doubt = {"code": "busy_cpu", "message": "others took 3 cores", "remedy": "wait"}
    (law,) = _laws(simulated, (0.05, 0.02), doubts=[doubt])
    assert (law.form, law.pays) == (LawForm.disturbed, None)
    assert law.coherency.low > 0
    assert "others took 3 cores" in law.reason


def test_three_numbers_of_devices_fit_any_law_and_so_have_none(simulated: ModuleType) -> None:
    assert _laws(simulated, (0.05, 0.02), (1, 2, 4)) == ()


def test_ranks_that_share_a_processors_cores_have_no_law_and_ranks_with_threads_of_their_own_have(simulated) -> None:
    assert _laws(simulated, (0.05, 0.02), accelerator="cpu") == ()
    (law,) = _laws(simulated, (0.05, 0.02), accelerator="cpu", config={"threads": 1})
    assert law.form is LawForm.universal


def test_the_table_says_where_devices_stop_to_pay_and_what_is_endless(simulated: ModuleType) -> None:
    findings = analyse([], simulated.make_manifest([{"devices": 1}], 1))
    laws = (*_laws(simulated, (0.05, 0.02)), *_laws(simulated, (0.2, 0.0)), *_laws(simulated, (-0.05, 0.0)))
    table = laws_table(findings.model_copy(update={"laws": laws}))
    texts = [[entry.text for entry in row] for row in table.rows]
    assert [row[2] for row in texts] == ["universal law", "Amdahl's law", "better than ideal scaling"]
    assert [row[-1].replace("]", "").split()[-1] for row in texts] == ["7", "never", "-"]
    assert table.data[0]["coherency.low"] == laws[0].coherency.low
    assert "faster than the number of devices" in table.rows[2][2].detail
    assert findings.laws == ()
