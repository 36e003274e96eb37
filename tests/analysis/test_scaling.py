"""Scaling curves, batch curves and the universal scalability law."""

from __future__ import annotations

import math
import statistics
from types import ModuleType

import numpy as np
import pytest

from accelsweep.analysis.analyse_sweep import analyse
from accelsweep.analysis.intervals import Family, critical_t
from accelsweep.analysis.scaling import MIN_MARGINAL_GAIN, fit_law, most_devices
from accelsweep.records.findings import BatchCurve, LawForm, ScalingLaw, ScalingPoint
from accelsweep.report.report_tables import laws_table

SETTINGS = [{"devices": devices, "batch_size": size} for devices in (1, 2, 4) for size in (64, 128, 256)]
NOISE = (0.0, 0.002, -0.002)


def _points(
    simulated: ModuleType, accumulated: int | None = 1, accelerator: str = "cuda", **changes: dict[str, object]
) -> tuple[ScalingPoint, ...]:
    settings = [{**axes, "accelerator": accelerator} for axes in SETTINGS]
    rows = [
        simulated.make_run(
            axes,
            block,
            1000.0 * axes["devices"] ** 0.9 * (1.0 + noise * (1 + axes["devices"] / 10)),
            effective={
                "global_batch_size": None if accumulated is None else axes["devices"] * axes["batch_size"] * accumulated
            },
            **(changes if axes["devices"] == 4 else {}),
        )
        for axes in settings
        for block, noise in enumerate(NOISE)
    ]
    points = analyse(rows, simulated.make_manifest(settings, 3)).scaling
    return tuple(point.model_copy(update={"series": point.series.partition(", ")[2]}) for point in points)


def test_weak_scaling_keeps_the_batch_of_each_device_and_strong_scaling_the_global_one(simulated: ModuleType) -> None:
    found = {(point.kind, point.series): [] for point in _points(simulated)}
    for point in _points(simulated):
        found[point.kind, point.series].append(point.devices)
    assert found == {
        ("strong", "global batch 128"): [1, 2],
        ("strong", "global batch 256"): [1, 2, 4],
        ("strong", "global batch 512"): [2, 4],
        ("weak", "batch 64 per device"): [1, 2, 4],
        ("weak", "batch 128 per device"): [1, 2, 4],
        ("weak", "batch 256 per device"): [1, 2, 4],
    }


def test_the_global_batch_is_what_an_optimiser_step_has_with_its_accumulated_steps(simulated: ModuleType) -> None:
    strong = {point.series for point in _points(simulated, accumulated=4) if point.kind == "strong"}
    assert strong == {"global batch 512", "global batch 1024", "global batch 2048"}


def test_settings_whose_optimiser_steps_differ_among_themselves_have_no_strong_scaling(simulated: ModuleType) -> None:
    assert {point.kind for point in _points(simulated, accumulated=None)} == {"weak"}


def test_efficiency_is_the_speedup_over_the_ratio_of_devices_with_its_interval(simulated: ModuleType) -> None:
    for point in _points(simulated):
        if point.speedup.low is None or point.speedup.high is None:
            assert (point.speedup.value, point.efficiency.value) == (1.0, 1.0)
            assert point.speedup.reason is not None
            continue
        base = 2 if point.series == "global batch 512" else 1
        factor = point.devices / base
        assert point.efficiency.value == pytest.approx(factor**-0.1, rel=0.01)
        assert point.efficiency.low == pytest.approx(point.speedup.low / factor, rel=1e-5)
        assert point.efficiency.high == pytest.approx(point.speedup.high / factor, rel=1e-5)


def test_ranks_on_one_processor_cut_one_machine_and_have_a_speedup_but_no_efficiency(simulated: ModuleType) -> None:
    points = _points(simulated, accelerator="cpu")
    assert points
    assert {point.efficiency for point in points} == {None}
    assert max(point.speedup.value for point in points) > 3.0


def test_the_family_of_all_points_is_widened_together(simulated: ModuleType) -> None:
    points = _points(simulated)
    ratios = sum(point.speedup.low is not None for point in points)
    (confidence,) = {point.speedup.confidence for point in points}
    assert confidence == pytest.approx(1 - 0.05 / ratios, rel=1e-5)


def test_points_on_other_software_are_left_out_of_the_curve(simulated: ModuleType) -> None:
    points = _points(simulated, software={"torch": "2.12.1"})
    assert max(point.devices for point in points if point.kind == "weak") == 2


def test_the_points_of_all_curves_share_what_their_blocks_show_of_the_noise(simulated: ModuleType) -> None:
    """Nine points in three blocks: each alone would have a critical value above 13."""
    points = _points(simulated)
    plain = critical_t(2, 0.95, sum(point.speedup.low is not None for point in points))
    far = next(point.speedup for point in points if (point.kind, point.devices) == ("weak", 4))
    scatter = statistics.stdev(math.log1p(noise * 1.4) - math.log1p(noise * 1.1) for noise in NOISE)
    assert math.log(far.high / far.low) / 2.0 < 0.8 * plain * scatter / math.sqrt(3)


RATES = {8: 400.0, 16: 700.0, 32: 960.0, 64: 1000.0, 128: None, 256: None}


def _curves(simulated: ModuleType, rates: dict[int, float | None]) -> tuple[BatchCurve, ...]:
    settings = [{"batch_size": size} for size in rates]
    rows = [
        simulated.make_run(axes, block, rate and rate + block, outcome="measured" if rate else "out_of_memory")
        for axes, rate in zip(settings, rates.values(), strict=True)
        for block in range(3)
    ]
    return analyse(rows, simulated.make_manifest(settings, 3)).batch_curves


def test_the_knee_is_the_smallest_batch_near_the_best_rate(simulated: ModuleType) -> None:
    (curve,) = _curves(simulated, RATES)
    assert curve.knee == simulated.name_of({"batch_size": 32})
    assert curve.settings == tuple(simulated.name_of({"batch_size": size}) for size in sorted(RATES))


def test_the_frontier_lies_between_the_largest_that_ran_and_the_smallest_that_did_not(simulated: ModuleType) -> None:
    (curve,) = _curves(simulated, RATES)
    assert (curve.largest_measured, curve.smallest_out_of_memory) == (64, 128)


def test_without_two_measured_batch_sizes_there_is_no_knee_and_without_failure_no_frontier(
    simulated: ModuleType,
) -> None:
    (one,) = _curves(simulated, {8: 400.0, 16: None})
    (fitting,) = _curves(simulated, {8: 400.0, 16: 700.0})
    assert (one.knee, one.smallest_out_of_memory) == (None, 16)
    assert fitting.smallest_out_of_memory is None


def test_settings_that_have_not_run_are_no_curve(simulated: ModuleType) -> None:
    """Their configs are known; on which hardware they will run is not."""
    settings = [{"batch_size": size} for size in (8, 16)]
    rows = [
        simulated.make_run(axes, block, None, outcome="not_run", hardware={}) for axes in settings for block in range(3)
    ]
    assert analyse(rows, simulated.make_manifest(settings, 3)).batch_curves == ()


COUNTS = (1, 2, 4, 8)
LOG_NOISE = np.array([[0.001, -0.0005, -0.001], [-0.001, 0.001, 0.0005], [0.0005, -0.001, 0.001], [0.0, 0.001, -0.001]])


def _rate(contention: float, coherency: float, devices: int) -> float:
    return devices / (1.0 + contention * (devices - 1) + coherency * devices * (devices - 1))


def _laws(
    simulated: ModuleType,
    truth: tuple[float, float],
    counts: tuple[int, ...] = COUNTS,
    accelerator: str = "cuda",
    **changes: object,
) -> tuple[ScalingLaw, ...]:
    settings = [{"accelerator": accelerator, "devices": count, "batch_size": 32} for count in counts]
    rows = [
        simulated.make_run(axes, block, 500.0 * _rate(*truth, axes["devices"]) * math.exp(noise), **changes)
        for axes, noises in zip(settings, LOG_NOISE, strict=False)
        for block, noise in enumerate(noises)
    ]
    return analyse(rows, simulated.make_manifest(settings, 3)).laws


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
    assert most_devices(*truth, MIN_MARGINAL_GAIN) == max(n for n, gain in gains.items() if gain >= MIN_MARGINAL_GAIN)


def test_amdahls_law_has_no_peak_and_ideal_scaling_no_end() -> None:
    assert most_devices(0.05, 0.0, 0.0) is None
    assert most_devices(0.0, 0.0, MIN_MARGINAL_GAIN) is None
    assert most_devices(0.05, 0.0, MIN_MARGINAL_GAIN) == 9


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
