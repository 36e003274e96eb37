"""Merged sweeps: separate by hardware and commit, pooled if nothing differs, refused if incomparable."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

from accelsweep.analysis.merge_sweeps import Part, analyse_together, merge
from accelsweep.analysis.run_results import RunRow
from accelsweep.config.prices import Prices
from accelsweep.features.claims.model import Claim, Claims, ClaimsOptions
from accelsweep.records.estimates import Verdict
from accelsweep.records.findings import Findings, SettingFinding
from accelsweep.records.plan import Manifest
from accelsweep.results import Outcome

ONE, TWO = {"devices": 1, "batch_size": 32}, {"devices": 2, "batch_size": 32}
XEON, EPYC = {"host": "Xeon"}, {"host": "EPYC"}


@pytest.fixture
def part(simulated: ModuleType):
    """A sweep of both settings in three blocks, at these rates; `fields` are fields of every run."""

    def build(
        name: str, rates: tuple[float, float], settings: Any = (ONE, TWO), blocks: int = 3, **fields: Any
    ) -> Part:
        options = fields.pop("options", {})
        rows = [
            simulated.make_run(axes, block, rate * (1 + 0.001 * block * (1 + index)), **fields)
            for block in range(blocks)
            for index, (axes, rate) in enumerate(zip(settings, rates, strict=True))
        ]
        plan: Manifest = simulated.make_manifest(list(settings), blocks)
        changed = plan.options.model_copy(update=options)
        return Part(name, rows, plan.model_copy(update={"sweep": name, "options": changed}))

    return build


def rows_of(findings: Findings, axes: dict[str, Any]) -> list[SettingFinding]:
    return [setting for setting in findings.settings if setting.axes == axes]


def test_one_setting_on_two_machines_stands_side_by_side_each_against_its_own_baseline(part) -> None:
    findings = analyse_together(
        "a+b", [part("a", (100.0, 190.0), hardware=XEON), part("b", (300.0, 450.0), hardware=EPYC)]
    )
    doubled = rows_of(findings, TWO)
    assert [setting.hardware for setting in doubled] == ["EPYC", "Xeon"]
    assert [setting.speedup.ratio.value for setting in doubled] == pytest.approx([1.5, 1.9], rel=0.01)
    assert [setting.verdict for setting in rows_of(findings, ONE)] == [Verdict.baseline] * 2
    assert findings.refusals == ()


def test_machines_are_not_ranked_by_ratios_that_do_not_compare_but_advised_one_by_one(part) -> None:
    findings = analyse_together(
        "a+b", [part("a", (100.0, 190.0), hardware=XEON), part("b", (300.0, 450.0), hardware=EPYC)]
    )
    advice = findings.recommendation
    assert advice.choice is None
    assert "2 kinds of hardware" in advice.sentence
    assert [(one.title, one.hardware) for one in advice.alternatives] == [("On EPYC", "EPYC"), ("On Xeon", "Xeon")]


def test_a_machine_without_the_baseline_is_refused_and_still_shows_its_rate(part) -> None:
    lone = part("b", (450.0,), settings=(TWO,), hardware=EPYC)
    findings = analyse_together("a+b", [part("a", (100.0, 190.0), hardware=XEON), lone])
    elsewhere, here = rows_of(findings, TWO)
    assert (elsewhere.verdict, here.verdict) == (Verdict.refused, Verdict.faster)
    assert "host differs: EPYC" in elsewhere.verdict_reason
    assert elsewhere.rate is not None


def test_two_commits_on_one_machine_stand_side_by_side(part) -> None:
    parts = [part(name, (100.0, 190.0), git={"commit": f"{name}" * 40, "dirty": False}) for name in ("a", "b")]
    assert [setting.hardware for setting in rows_of(analyse_together("a+b", parts), TWO)] == [
        "Xeon, commit aaaaaaaaaa",
        "Xeon, commit bbbbbbbbbb",
    ]


def test_without_a_commit_the_sweeps_names_tell_different_software_apart(part) -> None:
    parts = [part(name, (100.0, 190.0), software={"torch": torch}) for name, torch in (("a", "2.12"), ("b", "2.13"))]
    assert [setting.hardware for setting in rows_of(analyse_together("a+b", parts), TWO)] == [
        "Xeon, sweep a",
        "Xeon, sweep b",
    ]


def test_where_nothing_differs_the_runs_are_repeats_of_one_setting(part) -> None:
    findings = analyse_together("a+b", [part("a", (100.0, 190.0)), part("b", (100.0, 190.0))])
    (doubled,) = rows_of(findings, TWO)
    assert (doubled.measured, doubled.planned, findings.planned_runs) == (6, 6, 12)
    assert doubled.speedup.ratio.count == 6, "six blocks, although both sweeps call theirs b0, b1 and b2"
    assert sorted(run.run.partition("/")[0] for run in doubled.runs) == ["a", "a", "a", "b", "b", "b"]


def test_what_neither_sweep_swept_may_still_not_differ(part) -> None:
    other = part("b", (100.0, 190.0), settings=({"devices": 4, "batch_size": 32}, TWO), config={"threads": 7})
    findings = analyse_together("a+b", [part("a", (100.0, 190.0)), other])
    (four,) = rows_of(findings, {"devices": 4, "batch_size": 32})
    assert four.verdict is Verdict.refused
    assert "threads differs" in four.verdict_reason


def test_an_axis_that_only_one_sweep_has_is_filled_in_for_the_other(part) -> None:
    wide = part("b", (100.0, 60.0), settings=({"precision": "32-true"}, {"precision": "bf16-mixed"}))
    _, manifest = merge("a+b", [part("a", (100.0, 190.0)), wide])
    assert manifest.axes == ("devices", "batch_size", "precision")
    assert manifest.settings[0].axes == {**ONE, "precision": "32-true"}
    assert {len(setting.axes) for setting in manifest.settings} == {3}


def test_a_setting_unsupported_here_and_measured_there_is_one_measured_row(part) -> None:
    measured = part("a", (100.0, 190.0))
    plan = measured.manifest
    settings = (plan.settings[0], plan.settings[1].model_copy(update={"unsupported": "no such device here"}))
    row = RunRow("b", settings[1].name, Outcome.unsupported, TWO, reason="no such device here")
    unable = Part("b", [row], plan.model_copy(update={"settings": settings, "blocks": ()}))
    for parts in ([measured, unable], [unable, measured]):
        (found,) = rows_of(analyse_together("x", parts), TWO)
        assert found.outcomes == {Outcome.measured: 3}
    (never,) = rows_of(analyse_together("x", [unable, unable]), TWO)
    assert never.outcomes == {Outcome.unsupported: 1}


def test_the_price_of_one_machines_cpu_is_not_that_of_the_others(part) -> None:
    def effective(model: str) -> dict[str, Any]:
        return {"device_names": [model], "accelerator": "cpu", "world_size": 1}

    priced = {"prices": Prices.model_validate({"devices": {"cpu": 0.5}})}
    findings = analyse_together(
        "a+b",
        [
            part("a", (100.0, 190.0), hardware=XEON, effective=effective("Xeon"), options=priced),
            part("b", (300.0, 450.0), hardware=EPYC, effective=effective("EPYC")),
        ],
    )
    assert {setting.hardware: setting.costs.get("usd_per_hour") is not None for setting in findings.settings} == {
        "Xeon": True,
        "EPYC": False,
    }


def test_the_findings_name_their_sweeps_and_the_commands_that_continue_them(part) -> None:
    findings = analyse_together("a+b", [part(name, (100.0, 104.0), blocks=1) for name in "ab"])
    assert (findings.sweep, findings.merged, findings.command) == ("a+b", ("a", "b"), "accelsweep report a b")
    settle = findings.recommendation.settle
    assert settle is not None
    assert [line.partition(" --add-repeats ")[0] for line in settle.splitlines()] == [
        "accelsweep run experiment=simulated --name a",
        "accelsweep run experiment=simulated --name b",
    ]


def test_a_sweep_copied_from_elsewhere_goes_by_the_name_of_its_folder_here(part) -> None:
    copied = [Part(name, one.runs, one.manifest) for name in "xy" for one in [part("a", (100.0, 104.0), blocks=1)]]
    settle = analyse_together("x+y", copied).recommendation.settle
    assert settle is not None
    assert [line.partition(" --name ")[2][0] for line in settle.splitlines()] == ["x", "y"]


def test_the_claims_of_every_sweep_are_put_to_the_test_those_of_one_name_once(part) -> None:
    def stated(name: str, claimed: float) -> Claim:
        figure = {"claimed": claimed, "setting": TWO, "against": ONE}
        return Claim.model_validate({"id": name, "statement": "two", "source": "me", "figures": [figure]})

    first = {"report": ClaimsOptions(claims=(stated("a", 1.9),)).model_dump(mode="json")}
    second = {"report": ClaimsOptions(claims=(stated("a", 5.0), stated("b", 3.0))).model_dump(mode="json")}
    parts = [part("one", (100.0, 190.0), options=first), part("two", (100.0, 190.0), options=second)]
    found = analyse_together("one+two", parts).section(Claims).figures
    assert [(claim.id, claim.claimed, str(claim.verdict)) for claim in found] == [
        ("a", "1.9x", "agrees"),
        ("b", "3x", "less than claimed"),
    ]
