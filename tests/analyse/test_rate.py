"""What cells are compared by: samples per second, or what the task or `analysis.rate` says."""

from __future__ import annotations

from types import ModuleType

import pytest
from pydantic import ValidationError

from accelsweep.analysis.analyse_sweep import analyse
from accelsweep.config.tasks import UNIT_OF, rates_by_task
from accelsweep.records.estimates import Verdict

CELLS = ({"batch_size": 32}, {"batch_size": 64})


def findings_of(simulated: ModuleType, task: str | None, **settings: object):
    """Three blocks: the second cell has twice the samples per second, but half the results per hour."""
    config = {} if task is None else {"task": task}
    rows = [
        simulated.make_run(
            axes,
            block,
            100.0 * factor + block,
            results_per_hour=8.0 / factor + 0.01 * block,
            config=config,
        )
        for block in range(3)
        for axes, factor in zip(CELLS, (1.0, 2.0), strict=True)
    ]
    return analyse(rows, simulated.make_manifest(CELLS, 3, **settings))


@pytest.mark.parametrize("task", [None, "train_throughput", "inference", "kernels"])
def test_tasks_are_compared_by_samples_per_second_unless_they_say_otherwise(simulated: ModuleType, task) -> None:
    findings = findings_of(simulated, task)
    assert (findings.rate_metric, findings.rate_unit) == ("samples_per_second", "1/s")
    assert findings.cells[1].verdict is Verdict.faster
    assert findings.cells[1].rate.value == pytest.approx(201, rel=1e-3)
    assert [run.rate for run in findings.cells[1].runs] == [200.0, 201.0, 202.0]


def test_time_to_accuracy_is_compared_by_results_per_hour(simulated: ModuleType) -> None:
    findings = findings_of(simulated, "time_to_accuracy")
    assert (findings.rate_metric, findings.rate_unit) == ("results_per_hour", "results/h")
    assert [cell.verdict for cell in findings.cells] == [Verdict.baseline, Verdict.slower]
    assert findings.cells[1].rate.unit == "results/h"
    assert findings.cells[1].speedup.ratio.value == pytest.approx(0.5, rel=0.01)


def test_the_config_may_name_another_rate(simulated: ModuleType) -> None:
    findings = findings_of(simulated, "train_throughput", rate="results_per_hour")
    assert findings.rate_metric == "results_per_hour"
    assert findings.cells[1].verdict is Verdict.slower


def test_a_rate_that_no_run_has_leaves_every_cell_without_one(simulated: ModuleType) -> None:
    findings = findings_of(simulated, None, rate="bytes_per_second")
    assert {cell.verdict for cell in findings.cells} == {Verdict.not_measured}
    assert findings.rate_unit == "B/s"


def test_a_rate_that_is_none_is_refused(simulated: ModuleType) -> None:
    with pytest.raises(ValidationError, match="samples_per_second"):
        simulated.make_manifest(CELLS, 3, rate="samples_per_secnd")


def test_every_tasks_rate_has_a_unit() -> None:
    assert {rate for rates in rates_by_task().values() for rate in rates} == set(UNIT_OF)


@pytest.mark.parametrize("kept", [4, 2])
def test_a_rate_of_those_repeats_alone_that_kept_the_latency_is_doubted(simulated: ModuleType, kept: int) -> None:
    rows = []
    for block in range(4):
        for axes in CELLS[:2]:
            value = {"value": 100.0 + block} if block < kept else {"value": None, "reason": "LoadGen: INVALID"}
            metrics = {"queries_per_second": {"unit": "queries/s", **value}}
            rows.append(simulated.make_run(axes, block, 1.0, metrics=metrics))
    findings = analyse(rows, simulated.make_manifest(CELLS[:2], 4, rate="queries_per_second"))
    codes = [[doubt.code for doubt in cell.doubts] for cell in findings.cells]
    assert all(("load_refused" in one) == (kept < 4) for one in codes)
    assert findings.rate_unit == "queries/s"
