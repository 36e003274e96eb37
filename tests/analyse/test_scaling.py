"""Strong and weak scaling are told apart, and efficiency carries the interval of its speed-up."""

from __future__ import annotations

import math
import statistics
from types import ModuleType

import pytest

from accelsweep.analysis.analyse_sweep import analyse
from accelsweep.analysis.intervals import critical_t
from accelsweep.records.findings import ScalingPoint

CELLS = [{"devices": devices, "batch_size": size} for devices in (1, 2, 4) for size in (64, 128, 256)]
NOISE = (0.0, 0.002, -0.002)


def _points(
    simulated: ModuleType, accumulated: int | None = 1, accelerator: str = "cuda", **changes: dict[str, object]
) -> tuple[ScalingPoint, ...]:
    cells = [{**axes, "accelerator": accelerator} for axes in CELLS]
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
        for axes in cells
        for block, noise in enumerate(NOISE)
    ]
    points = analyse(rows, simulated.make_manifest(cells, 3)).scaling
    return tuple(
        point.model_copy(update={"series": point.series.removeprefix(f"{accelerator} | ")}) for point in points
    )


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
