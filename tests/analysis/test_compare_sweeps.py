"""Two sweeps are compared setting by setting without pairing, and gates fail on supported regressions only."""

from __future__ import annotations

from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest

from accelsweep.analysis.analyse_sweep import analyse
from accelsweep.analysis.compare_sweeps import (
    Gate,
    GateState,
    SweepComparison,
    compare_sweeps,
    gate_comparison,
    gate_findings,
    parse_gate,
    worst,
)
from accelsweep.config.versions import Version
from accelsweep.errors import InputError
from accelsweep.plain_json import sha256_text
from accelsweep.records.estimates import Verdict
from accelsweep.results import Outcome

SETTINGS = [{"batch_size": size} for size in (32, 64, 128)]
NOISE = (0.0, 0.001, -0.001, 0.0005, -0.0005)


def _sweep(
    simulated: ModuleType, ratios: tuple[float | None, ...], settings: Any = SETTINGS, **fields: Any
) -> tuple[Any, Any]:
    rows = [
        simulated.make_run(axes, block, ratio and 1000.0 * ratio * (1.0 + noise), **fields)
        for axes, ratio in zip(settings, ratios, strict=True)
        for block, noise in enumerate(NOISE)
    ]
    return rows, simulated.make_manifest(settings, len(NOISE))


def failing(comparison: SweepComparison, gate: Gate) -> tuple[Any, ...]:
    """The rows whose regression the intervals support."""
    return tuple(one.setting for one in gate_comparison(comparison, gate) if one.state is GateState.regression)


def _compared(simulated: ModuleType, ratios: tuple[float | None, ...], **fields: Any) -> SweepComparison:
    return compare_sweeps(_sweep(simulated, (1.0, 1.0, 1.0)), _sweep(simulated, ratios, **fields))


def test_each_common_setting_gets_a_ratio_of_after_to_before(simulated: ModuleType) -> None:
    comparison = _compared(simulated, (1.0, 0.9, 1.2))
    assert [row.verdict for row in comparison.rows] == [Verdict.same, Verdict.slower, Verdict.faster]
    assert [row.ratio.value for row in comparison.rows if row.ratio] == pytest.approx([1.0, 0.9, 1.2], rel=1e-4)
    assert comparison.family == 3


def on(*machines: str | None) -> list[dict[str, Any]]:
    """What the records of a sweep over these machines say, block after block."""
    return [{"before": {"machine": machine}} for machine in machines]


@pytest.mark.parametrize(
    ("before", "after", "across", "refused"),
    [
        (on("a1"), on("b2"), (), True),
        (on("a1"), on("b2"), ("machine",), False),
        (on("a1"), on("a1"), (), False),
        (on("a1", "b2"), on("c3"), (), False),
        (on("a1"), on(None), (), False),
    ],
)
def test_one_machine_a_side_says_nothing_beyond_these_two_machines(
    simulated: ModuleType, before: Any, after: Any, across: tuple[str, ...], refused: bool
) -> None:
    sides = []
    for environments, ratio in ((before, 1.0), (after, 0.8)):
        rows, manifest = _sweep(simulated, (ratio, ratio, ratio))
        placed = [replace(row, environment=environments[index % len(environments)]) for index, row in enumerate(rows)]
        sides.append((placed, manifest))
    comparison = compare_sweeps(*sides, across)
    assert {row.verdict for row in comparison.rows} == {Verdict.refused if refused else Verdict.slower}
    assert bool(failing(comparison, parse_gate("slower:2%"))) is not refused
    if refused:
        assert "measure both sides on the same machine, or each on several" in comparison.rows[0].reason


def test_equal_block_names_do_not_pair_the_runs_of_two_sweeps(simulated: ModuleType) -> None:
    """Both sweeps have the same noise in blocks of the same name; pairing them would leave no spread at all."""
    (row, *_) = _compared(simulated, (0.9, 1.0, 1.0)).rows
    assert row.ratio is not None
    assert row.ratio.low is not None
    assert row.ratio.low < 0.9 < (row.ratio.high or 0)


@pytest.mark.parametrize(
    ("gate", "ratio", "fails"),
    [("slower:2%", 0.9, True), ("slower:2%", 0.985, False), ("slower:15%", 0.9, False), ("faster:2%", 1.2, True)],
)
def test_the_gate_fails_on_what_the_interval_supports(
    simulated: ModuleType, gate: str, ratio: float, fails: bool
) -> None:
    found = failing(_compared(simulated, (ratio, 1.0, 1.0)), parse_gate(gate))
    assert [row.setting for row in found] == ([simulated.name_of(SETTINGS[0])] if fails else [])


def test_a_slow_but_noisy_setting_does_not_fail_the_gate(simulated: ModuleType) -> None:
    before = _sweep(simulated, (1.0, 1.0, 1.0))
    rows = [
        simulated.make_run(axes, block, rate) for axes in SETTINGS for block, rate in enumerate((600.0, 1400.0, 700.0))
    ]
    noisy = compare_sweeps(before, (rows, simulated.make_manifest(SETTINGS, 3)))
    assert {row.verdict for row in noisy.rows} == {Verdict.undecided}
    assert failing(noisy, parse_gate("slower:2%")) == ()


@pytest.mark.parametrize(
    ("text", "gate"),
    [
        ("slower:2%", Gate(Verdict.slower, 0.02)),
        ("slower:0.05", Gate(Verdict.slower, 0.05)),
        ("slower", Gate(Verdict.slower, 0.02)),
    ],
)
def test_a_gate_is_read(text: str, gate: Gate) -> None:
    assert parse_gate(text) == gate


@pytest.mark.parametrize("text", ["", "slow:2%", "slower:-2%", "slower:two", "slower:200%", "slower:2%;rm", "same:2%"])
def test_a_gate_that_makes_no_sense_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(InputError, match=r"slower:2%"):
        parse_gate(text)


@pytest.mark.parametrize(
    ("change", "field"), [({"hardware": {"host": "EPYC"}}, "host"), ({"software": {"torch": "2.12.1"}}, "torch")]
)
def test_other_hardware_or_software_is_refused_unless_named(
    simulated: ModuleType, change: dict[str, Any], field: str
) -> None:
    before, after = _sweep(simulated, (1.0, 1.0, 1.0)), _sweep(simulated, (0.5, 0.5, 0.5), **change)
    refused = compare_sweeps(before, after)
    assert {row.verdict for row in refused.rows} == {Verdict.refused}
    assert all(f"{field} differs" in row.reason for row in refused.rows)
    assert failing(refused, parse_gate("slower:2%")) == ()
    assert worst(gate_comparison(refused, parse_gate("slower:2%"))) is GateState.not_measured, (
        "a gate that judged nothing"
    )
    assert {row.verdict for row in compare_sweeps(before, after, across=(field,)).rows} == {Verdict.slower}


def test_other_sources_of_the_users_package_are_what_two_commits_have(simulated: ModuleType) -> None:
    before = _sweep(simulated, (1.0, 1.0, 1.0), sources={"mine": "abc"})
    rows = compare_sweeps(before, _sweep(simulated, (0.9, 0.9, 0.9), sources={"mine": "def"})).rows
    assert {row.verdict for row in rows} == {Verdict.slower}
    assert all([doubt.code for doubt in row.doubts] == ["sources_differ"] for row in rows)


def test_doubts_of_both_sides_stand_beside_the_ratio_with_the_side_that_they_are_of(simulated: ModuleType) -> None:
    hot = {"code": "throttled", "message": "the clock fell", "remedy": "cool it"}
    busy = {"code": "busy_cpu", "message": "others computed", "remedy": "stop them"}
    before = _sweep(simulated, (1.0, 1.0, None), doubts=[busy])
    (first, _, third) = compare_sweeps(before, _sweep(simulated, (0.8, 0.8, 0.8), doubts=[hot])).rows
    assert [(doubt.code, doubt.message) for doubt in first.doubts] == [
        ("busy_cpu", "before (simulated): 5 of 5 runs: others computed"),
        ("throttled", "after (simulated): 5 of 5 runs: the clock fell"),
    ]
    assert first.verdict is Verdict.slower
    assert [doubt.code for doubt in third.doubts] == ["throttled"], (
        "its rate after is printed, though there is no ratio"
    )


def test_what_the_runs_of_a_side_show_together_is_doubted_too(simulated: ModuleType) -> None:
    runs, manifest = _sweep(simulated, (1.0, 1.0, 1.0))
    failed = f"{simulated.name_of(SETTINGS[0])}-r4"
    runs = [replace(run, outcome=Outcome.crashed) if run.run == failed else run for run in runs]
    (first, second, _) = compare_sweeps((runs, manifest), _sweep(simulated, (1.0, 1.0, 1.0))).rows
    assert [doubt.code for doubt in first.doubts] == ["missing_repeats"]
    assert first.doubts[0].message.startswith("before (simulated): 4 of 5 planned repeats")
    assert second.doubts == (), "that nothing pairs is so on every row, and no doubt of any"


def test_settings_of_one_side_only_and_settings_that_failed_are_said(simulated: ModuleType) -> None:
    before = _sweep(simulated, (1.0, 1.0, 1.0))
    comparison = compare_sweeps(before, _sweep(simulated, (1.0, None), SETTINGS[:2]))
    assert comparison.only_before == ("batch 128",)
    assert comparison.rows[1].verdict is Verdict.not_measured
    assert comparison.rows[1].reason == "after: 5 of 5 runs: crashed (RuntimeError: simulated)"


SLOWER = Gate(Verdict.slower, 0.02)
SHAKE = (0.0, 0.003, -0.002, 0.001, -0.003)


@pytest.fixture
def state_of(simulated: ModuleType):
    """A function: the state of HEAD at each rate beside main's 100, and of all of them."""

    def found(*rates: float | None, blocks: int = 5, gate: Gate = SLOWER, **fields: object):
        names = ["main", *(f"HEAD{index}" for index in range(len(rates)))]
        versions = [Version(name=name, kind="commit", digest=sha256_text(name)[:40]) for name in names]
        settings = [{"version": name} for name in names]
        manifest = simulated.make_manifest(settings, blocks).model_copy(update={"compared": tuple(versions)})
        runs = [
            simulated.make_run(
                settings[index],
                block,
                None if rate is None else rate * (1 + SHAKE[(block + index) % 5]),
                config={"version": versions[index].identity},
                **fields,
            )
            for block in range(blocks)
            for index, rate in enumerate((100.0, *rates))
        ]
        gates = gate_findings(analyse(runs, manifest), manifest.baselines, gate)
        return [one.state for one in gates], worst(gates)

    return found


@pytest.mark.parametrize(
    ("rate", "state"),
    [
        (93.0, GateState.regression),
        (98.0, GateState.none_found),
        (100.0, GateState.shown_absent),
        (120.0, GateState.shown_absent),
        (None, GateState.not_measured),
    ],
)
def test_the_whole_interval_decides(state_of, rate: float | None, state: GateState) -> None:
    assert state_of(rate) == ([state], state)


def test_a_gate_on_faster_looks_to_the_other_side(state_of) -> None:
    gate = Gate(Verdict.faster, 0.02)
    assert state_of(120.0, 93.0, gate=gate)[0] == [GateState.regression, GateState.shown_absent]


def test_the_worst_setting_decides(state_of) -> None:
    assert state_of(93.0, None, 100.0)[1] is GateState.regression
    assert state_of(100.0, None)[1] is GateState.not_measured
    assert state_of(100.0, 98.0)[1] is GateState.none_found


def test_disturbed_runs_and_too_few_blocks_pass_nothing_and_fail_nothing(state_of) -> None:
    busy = {"code": "busy_cpu", "message": "busy", "remedy": "stop"}
    assert state_of(80.0, doubts=[busy])[1] is GateState.not_measured
    assert state_of(80.0, blocks=2)[1] is GateState.not_measured
    assert worst(()) is GateState.not_measured
