"""The knee is where larger batches stop to pay, the frontier is where memory ends."""

from __future__ import annotations

from types import ModuleType

from accelsweep.analysis.analyse_sweep import analyse
from accelsweep.records.findings import BatchCurve

RATES = {8: 400.0, 16: 700.0, 32: 960.0, 64: 1000.0, 128: None, 256: None}


def _curves(simulated: ModuleType, rates: dict[int, float | None]) -> tuple[BatchCurve, ...]:
    cells = [{"batch_size": size} for size in rates]
    rows = [
        simulated.make_run(axes, block, rate and rate + block, outcome="measured" if rate else "out_of_memory")
        for axes, rate in zip(cells, rates.values(), strict=True)
        for block in range(3)
    ]
    return analyse(rows, simulated.make_manifest(cells, 3)).batch_curves


def test_the_knee_is_the_smallest_batch_near_the_best_rate(simulated: ModuleType) -> None:
    (curve,) = _curves(simulated, RATES)
    assert curve.knee == simulated.name_of({"batch_size": 32})
    assert curve.cells == tuple(simulated.name_of({"batch_size": size}) for size in sorted(RATES))


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


def test_cells_that_have_not_run_are_no_curve(simulated: ModuleType) -> None:
    """Their configs are known; on which hardware they will run is not."""
    cells = [{"batch_size": size} for size in (8, 16)]
    rows = [
        simulated.make_run(axes, block, None, outcome="not_run", hardware={}) for axes in cells for block in range(3)
    ]
    assert analyse(rows, simulated.make_manifest(cells, 3)).batch_curves == ()
