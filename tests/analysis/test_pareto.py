"""The Pareto front over the objectives that all settings have."""

from __future__ import annotations

from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest

from accelsweep.analysis.analyse_sweep import analyse
from accelsweep.analysis.pareto import Objective, pareto_front
from accelsweep.analysis.run_results import RunRow
from accelsweep.metrics import MEMORY_METRICS
from accelsweep.records.findings import Findings

SETTINGS = [{"batch_size": size} for size in (32, 64, 128)]


SURE = {"a": Objective(((1.0, 1.0), (2.0, 2.0), (3.0, 3.0)))}


@pytest.mark.parametrize(
    ("goals", "expected"),
    [
        (SURE, [0]),
        (SURE | {"b": Objective(((3.0, 3.0), (2.0, 2.0), (1.0, 1.0)))}, [0, 1, 2]),
        (SURE | {"b": Objective(((3.0, 3.0), (1.0, 1.0), (2.0, 2.0)))}, [0, 1]),
        ({"a": Objective(((1.0, 1.0), (1.0, 1.0), (2.0, 2.0)))}, [0, 1]),
    ],
)
def test_the_front_holds_what_no_other_beats(goals: dict[str, Objective], expected: list[int]) -> None:
    assert pareto_front(goals, 3) == expected


def test_what_is_not_shown_to_be_worse_stays_on_the_front() -> None:
    overlapping = Objective(((1.0, 2.0), (1.9, 3.0), (2.1, 3.0)))
    assert pareto_front({"a": overlapping}, 3) == [0, 1]


def test_better_in_one_counts_only_where_it_is_shown_to_be_as_good_in_all() -> None:
    rate = Objective(((1.0, 1.1), (2.0, 2.1)))
    assert pareto_front({"rate": rate, "quality": Objective(((-0.98, -0.94), (-0.97, -0.95)), margin=0.01)}, 2) == [
        0,
        1,
    ]
    assert pareto_front({"rate": rate, "quality": Objective(((-0.98, -0.94), (-0.97, -0.95)), margin=0.03)}, 2) == [0]
    assert pareto_front({"rate": rate, "memory": Objective(((102.0, 102.0), (100.0, 100.0)), share=0.02)}, 2) == [0]


def test_a_value_without_an_interval_shows_nothing(simulated: ModuleType) -> None:
    rows = [simulated.make_run(axes, 0, rate) for axes, rate in zip(SETTINGS, (1000.0, 2000.0, 1500.0), strict=True)]
    findings = analyse(rows, simulated.make_manifest(SETTINGS, 1))
    assert len(findings.pareto) == 3


def _analysed(simulated: ModuleType, *metrics: dict[str, Any]) -> Findings:
    rows = [
        simulated.make_run(axes, block, rate + block * (1 + index), **numbers)
        for index, (axes, rate, numbers) in enumerate(zip(SETTINGS, (1000.0, 2000.0, 1500.0), metrics, strict=True))
        for block in range(3)
    ]
    return analyse(rows, simulated.make_manifest(SETTINGS, 3))


@pytest.mark.parametrize("name", MEMORY_METRICS)
def test_memory_of_any_kind_is_weighed_against_rate_when_all_settings_have_it(simulated: ModuleType, name: str) -> None:
    findings = _analysed(simulated, {name: 1e9}, {name: 3e9}, {name: 4e9})
    assert findings.pareto_objectives == ("rate", name)
    assert findings.pareto == tuple(setting.setting for setting in findings.settings[:2])


def test_what_one_setting_lacks_is_no_objective(simulated: ModuleType) -> None:
    findings = _analysed(simulated, {"host_pss_bytes": 1e9}, {"host_pss_bytes": 3e9}, {})
    assert findings.pareto_objectives == ("rate",)
    assert findings.pareto == (findings.settings[1].setting,)


def _scoped(run: RunRow, scope: str) -> RunRow:
    energy = replace(run.metrics["energy_joules"], scope=scope)
    return replace(run, metrics={**run.metrics, "energy_joules": energy})


@pytest.mark.parametrize(
    ("scopes", "titles"),
    [
        (("CPU packages", "CPU packages"), ["Greenest", "Smallest memory"]),
        (("CPU packages", "GPU boards"), ["Smallest memory"]),
    ],
)
def test_none_is_called_the_greenest_where_the_joules_are_not_of_one_scope(
    simulated: ModuleType, scopes: tuple[str, str], titles: list[str]
) -> None:
    """The slower setting needs less memory, so both stand on the front, whether energy is weighed or not."""
    readings = ((1000.0, 400.0, 1e9), (5000.0, 3000.0, 3e9))
    rows = [
        _scoped(
            simulated.make_run(
                axes, block, rate + block, energy_joules=joules, window_samples=1e4, host_pss_bytes=size
            ),
            scope,
        )
        for axes, (rate, joules, size), scope in zip(SETTINGS[:2], readings, scopes, strict=True)
        for block in range(3)
    ]
    findings = analyse(rows, simulated.make_manifest(SETTINGS[:2], 3))
    assert len(findings.pareto) == 2
    assert ("joules_per_sample" in findings.pareto_objectives) is ("Greenest" in titles)
    assert [one.title for one in findings.recommendation.alternatives] == titles


def test_alternatives_come_from_the_front_and_name_what_they_are_best_at(simulated: ModuleType) -> None:
    findings = _analysed(simulated, {"host_pss_bytes": 1e9}, {"host_pss_bytes": 3e9}, {"host_pss_bytes": 4e9})
    (alternative,) = findings.recommendation.alternatives
    assert (alternative.title, alternative.setting) == ("Smallest memory", findings.settings[0].setting)
