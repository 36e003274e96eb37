"""Figures of claims between two sweeps: Welch's interval, refusals as in any comparison, a reason if one is missing."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
from pydantic import ValidationError

from accelsweep.analysis.analyse_sweep import Analysis
from accelsweep.analysis.run_results import CellRuns, group
from accelsweep.features.claims.cross_sweep import claims_beside
from accelsweep.features.claims.model import ClaimFigure, ClaimFinding, ClaimsOptions, ClaimVerdict

ONE, TWO = {"num_nodes": 1}, {"num_nodes": 2}
FIGURE = {"claimed": 1, "tolerance": 0.02, "between": ["slurm", "here"], "cell": ONE, "against": ONE}
NOISE = (0.0, 0.001, -0.001)


def _groups(simulated: ModuleType, rates: dict[int, float], blocks: int = 3, **fields: Any) -> list[CellRuns]:
    cells = [{"num_nodes": nodes} for nodes in rates]
    runs = [
        simulated.make_run(axes, block, rates[axes["num_nodes"]] * (1 + NOISE[block] * axes["num_nodes"]), **fields)
        for axes in cells
        for block in range(blocks)
    ]
    return group(simulated.make_manifest(cells, blocks), runs)


def _judged(simulated: ModuleType, figure: dict[str, Any], **others: list[CellRuns]) -> ClaimFinding:
    claim = {"id": "cluster", "statement": "use clusters", "source": "a forum", "figures": [figure]}
    manifest = simulated.make_manifest([ONE], 1)
    report = ClaimsOptions.model_validate({"claims": [claim]}).model_dump(mode="json")
    manifest = manifest.model_copy(update={"settings": manifest.settings.model_copy(update={"report": report})})
    found = claims_beside(Analysis.of([], manifest), others or {})
    assert found is not None
    return found.figures[0]


def test_equal_rates_in_two_sweeps_agree_with_one_by_welchs_interval(simulated: ModuleType) -> None:
    found = _judged(simulated, FIGURE, slurm=_groups(simulated, {1: 500.0}), here=_groups(simulated, {1: 501.0}))
    assert found.verdict is ClaimVerdict.agrees
    assert found.measured.value == pytest.approx(500 / 501, rel=1e-5)
    assert 0.98 < found.measured.low < found.measured.value < found.measured.high < 1.02


def test_blocks_of_two_sweeps_never_pair_although_they_have_one_name(simulated: ModuleType) -> None:
    """Both sides rise and fall together; paired, the interval would have no width."""
    found = _judged(simulated, FIGURE, slurm=_groups(simulated, {1: 500.0}), here=_groups(simulated, {1: 500.0}))
    assert found.measured.high / found.measured.low > 1.003


def test_another_rate_is_less_than_claimed(simulated: ModuleType) -> None:
    found = _judged(simulated, FIGURE, slurm=_groups(simulated, {1: 400.0}), here=_groups(simulated, {1: 500.0}))
    assert found.verdict is ClaimVerdict.less


def test_both_sides_in_one_sweep_are_paired_there(simulated: ModuleType) -> None:
    figure = {"claimed": "more than 1", "between": ["slurm", "slurm"], "cell": TWO, "against": ONE}
    found = _judged(simulated, figure, slurm=_groups(simulated, {1: 500.0, 2: 900.0}))
    assert found.verdict is ClaimVerdict.agrees
    assert found.measured.value == pytest.approx(1.8, rel=1e-3)


def test_a_sweep_that_is_not_there_is_named_with_what_to_do(simulated: ModuleType) -> None:
    found = _judged(simulated, FIGURE, here=_groups(simulated, {1: 500.0}))
    assert found.verdict is ClaimVerdict.not_testable
    assert "there is no sweep slurm here" in found.reason
    assert "--name slurm" in found.reason


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"software": {"torch": "2.12.1"}}, "torch differs"),
        ({"environment": {"before": {"machine": "b"}}}, "the machine differs"),
        ({"config": {"threads": 4}}, "threads differs"),
    ],
)
def test_unlike_sweeps_are_refused_with_both_values(simulated: ModuleType, fields: dict[str, Any], why: str) -> None:
    here = _groups(simulated, {1: 500.0}, environment={"before": {"machine": "a"}})
    slurm = _groups(simulated, {1: 500.0}, **{"environment": {"before": {"machine": "a"}}} | fields)
    found = _judged(simulated, FIGURE, slurm=slurm, here=here)
    assert found.verdict is ClaimVerdict.not_testable
    assert why in found.reason


def test_two_blocks_are_too_few(simulated: ModuleType) -> None:
    found = _judged(simulated, FIGURE, slurm=_groups(simulated, {1: 500.0}, 2), here=_groups(simulated, {1: 500.0}))
    assert found.verdict is ClaimVerdict.undecided
    assert "3 blocks of each side" in found.reason


@pytest.mark.parametrize(
    "changes", [{"against": None, "unit": "s"}, {"sweeps": ["a", "b", "c"]}, {"projected": "l4"}, {"mean_over": "x"}]
)
def test_a_figure_between_sweeps_is_a_plain_ratio(changes: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="between"):
        ClaimFigure.model_validate({**FIGURE, **changes})


def test_a_figure_of_one_sweep_is_written_as_before() -> None:
    assert "between" not in ClaimFigure(cell=ONE, against=TWO).model_dump(mode="json")
