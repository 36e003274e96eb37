"""Slow, hot and throttled nodes of a simulated fleet are named, and unknowns are reported as such."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Mapping
from types import ModuleType
from typing import Any

import pytest

from accelsweep.analysis.analyse_sweep import analyse
from accelsweep.features.fleet.findings import FleetFinding, FleetNode, NodeSpread, NodeVerdict
from accelsweep.features.fleet.planning import Fleet
from accelsweep.features.fleet.report import fleet_table, spread_table
from accelsweep.features.fleet.statistics import deviations_from_others
from accelsweep.records.estimates import Estimate
from accelsweep.records.findings import Certainty, Findings
from accelsweep.records.plan import Manifest
from accelsweep.report.report_tables import build_tables
from accelsweep.schedulers.protocol import Resources

SIZES = (32, 128)
HOT = {"code": "throttled", "message": "Board ran slower than it could: HwThermal", "remedy": "cool it"}
BUSY = {"code": "busy_cpu", "message": "others kept 1 of 2 cores busy", "remedy": "stop them"}


@pytest.fixture
def measured(simulated: ModuleType):
    """Return the findings of a fleet from each node's speed, with extra fields for the runs of some nodes."""

    def measure(
        speeds: Mapping[str, float],
        each: int = 3,
        noise: float = 0.0005,
        fields: Mapping[str, Mapping[str, Any]] | None = None,
        without: tuple[tuple[int, int], ...] = (),
        **fleet: Any,
    ) -> Findings:
        generator = random.Random(3)
        nodes = tuple(speeds)
        manifest = planned(simulated, nodes, each, **fleet)
        rows = []
        for number, block in enumerate(manifest.blocks):
            node = str(block.resources.node)
            for size in SIZES:
                rate = None if (number, size) in without else 10.0 * size * speeds[node] * generator.gauss(1.0, noise)
                rows.append(simulated.make_run({"batch_size": size}, number, rate, **(fields or {}).get(node, {})))
        return analyse(rows, manifest)

    return measure


def planned(simulated: ModuleType, nodes: tuple[str, ...], each: int, **fleet: Any) -> Manifest:
    manifest = simulated.make_manifest([{"batch_size": size} for size in SIZES], len(nodes) * each)
    blocks = tuple(
        block.model_copy(update={"resources": Resources(node=nodes[number % len(nodes)])})
        for number, block in enumerate(manifest.blocks)
    )
    return manifest.model_copy(update={"blocks": blocks, "parts": {"fleet": Fleet(nodes=nodes, each=each, **fleet)}})


def node(findings: Findings, name: str) -> FleetNode:
    fleet = findings.section(FleetFinding)
    assert fleet is not None
    return next(node for node in fleet.nodes if node.node == name)


EIGHT = {f"n{number}": 1.0 for number in range(8)}


def test_a_node_that_is_two_per_cent_slower_is_named_with_its_interval(measured) -> None:
    findings = measured({**EIGHT, "n5": 0.98})
    assert findings.section(FleetFinding).sick_nodes == ("n5",)
    assert findings.section(FleetFinding).nodes[0].node == "n5"
    slow = node(findings, "n5")
    assert (slow.verdict, slow.faults) == (NodeVerdict.slower, ("slower",))
    assert slow.ratio.value == pytest.approx(0.98, abs=0.001)
    assert slow.ratio.low <= 0.98 <= slow.ratio.high
    assert slow.p_value < 0.05
    assert {node.verdict for node in findings.section(FleetFinding).nodes[1:]} == {NodeVerdict.sound}
    recommendation = findings.recommendation
    assert re.match(r"n5 is (1\.9|2\.0)\d* % slower than the other nodes$", recommendation.headline)
    assert re.match(r"n5: -2\.\d+ to -1\.\d+ % \(95 %\)\.", recommendation.detail)
    assert (recommendation.certainty, recommendation.settle) == (Certainty.sure, None)
    assert "The rate's standard deviation between nodes is 0.7" in recommendation.detail


def test_the_published_spread_of_healthy_machines_is_recovered_and_names_no_sick_node(measured) -> None:
    """39 machines with a standard deviation of 0.63 %, none of them more than 1.5 % below the others."""
    generator = random.Random(1)
    speeds = {f"n{number:02d}": max(0.987, generator.gauss(1.0, 0.0063)) for number in range(39)}
    findings = measured(speeds, each=2, noise=0.0003)
    assert findings.section(FleetFinding).sick_nodes == ()
    together, *by_setting = findings.section(FleetFinding).spread
    assert together.label == "all settings"
    assert together.between.low <= 0.0063 <= together.between.high
    assert 0.004 < together.between.value < 0.009
    assert len(by_setting) == len(SIZES)
    assert all(spread.within.low <= 0.0003 <= spread.within.high for spread in by_setting)
    assert together.within.value < by_setting[0].within.value, "the mean of two settings has less noise than one"


def test_if_noise_leaves_it_open_the_command_with_twice_the_rounds_is_given(measured) -> None:
    findings = measured(EIGHT, noise=0.02, tolerance=0.01, asked="n[0-7]")
    assert findings.section(FleetFinding).sick_nodes == ()
    assert findings.recommendation.certainty is Certainty.undecided
    assert findings.recommendation.headline.startswith("No node is shown to be sick, but ")
    assert findings.recommendation.settle == (
        "accelsweep fleet experiment=simulated --name simulated --nodes 'n[0-7]' --each 6 --tolerance 0.01"
    )


def closed(celsius: float) -> dict[str, Any]:
    return {"environment": {"before": {}, "closed": {"devices": [{"celsius": celsius}, {"celsius": celsius - 9}]}}}


def test_temperatures_without_any_spread_name_no_hot_node(measured) -> None:
    degrees = {name: closed(60.0 + 0.1 * number) for number, name in enumerate(EIGHT)} | {"n3": closed(71.0)}
    findings = measured(EIGHT, fields=degrees)
    hot = node(findings, "n3")
    assert (hot.celsius, hot.faults, hot.sick) == (71.0, (), False)
    assert hot.temperature_excess.reason == "all 3 values are identical, so their spread is unknown"


def test_a_hot_node_is_named(simulated: ModuleType) -> None:
    generator, manifest = random.Random(4), planned(simulated, tuple(EIGHT), 3)
    rows = [
        simulated.make_run(
            {"batch_size": size},
            number,
            generator.gauss(100.0, 0.1),
            **closed(generator.gauss(72.0 if block.resources.node == "n3" else 60.0, 0.7)),
        )
        for number, block in enumerate(manifest.blocks)
        for size in SIZES
    ]
    findings = analyse(rows, manifest)
    assert [node.node for node in findings.section(FleetFinding).nodes if "hotter" in node.faults] == ["n3"]
    assert node(findings, "n3").temperature_excess.low > 5.0
    assert "More than 5 degrees hotter than the others: n3." in findings.recommendation.detail


def test_a_node_throttled_in_most_blocks_is_sick_whatever_its_rate(measured) -> None:
    findings = measured(EIGHT, fields={"n2": {"doubts": [HOT]}})
    sick = node(findings, "n2")
    assert (sick.sick, sick.faults, sick.throttled) == (True, ("throttled",), 3)
    assert sick.verdict is NodeVerdict.sound
    assert findings.section(FleetFinding).nodes[0].node == "n2", "sick nodes come first"
    assert findings.recommendation.headline == "1 of 8 nodes sick: n2"
    assert "n2 was throttled in 3 of 3 blocks." in findings.recommendation.detail


@pytest.mark.parametrize(("blocks", "sick"), [(2, False), (3, True)])
def test_being_throttled_in_half_of_the_blocks_does_not_make_a_node_sick(
    simulated: ModuleType, blocks: int, sick: bool
) -> None:
    generator, manifest = random.Random(4), planned(simulated, ("n0", "n1", "n2", "n3"), 4)
    findings = analyse(
        [
            simulated.make_run(
                {"batch_size": size},
                number,
                generator.gauss(100.0, 0.05),
                doubts=[HOT] if number % 4 == 1 and number < 4 * blocks else [],
            )
            for number in range(len(manifest.blocks))
            for size in SIZES
        ],
        manifest,
    )
    assert (node(findings, "n1").throttled, node(findings, "n1").sick) == (blocks, sick)


def test_a_node_is_judged_if_at_most_half_of_its_runs_are_disturbed(simulated: ModuleType) -> None:
    generator, manifest = random.Random(4), planned(simulated, ("n0", "n1", "n2", "n3"), 4)
    for disturbed, verdict in ((2, NodeVerdict.slower), (3, NodeVerdict.disturbed)):
        rows = [
            simulated.make_run(
                {"batch_size": size},
                number,
                (90.0 if number % 4 == 1 else 100.0) * generator.gauss(1.0, 0.0005),
                doubts=[BUSY] if number % 4 == 1 and number < 4 * disturbed else [],
            )
            for number in range(len(manifest.blocks))
            for size in SIZES
        ]
        assert node(analyse(rows, manifest), "n1").verdict is verdict


def test_p_values_are_corrected_for_the_number_of_nodes(simulated: ModuleType) -> None:
    """The same values of a node, compared with one other node and with thirty."""
    p_values = {}
    for others in (1, 30):
        names = tuple(f"n{number}" for number in range(others + 1))
        manifest = planned(simulated, names, 3, tolerance=0.015)
        log_rates = dict.fromkeys(names, (-0.004, 0.0, 0.004)) | {"n0": (-0.034, -0.03, -0.026)}
        rows = [
            simulated.make_run({"batch_size": size}, number, 100.0 * math.exp(log_rates[name][number // len(names)]))
            for number, name in enumerate(str(block.resources.node) for block in manifest.blocks)
            for size in SIZES
        ]
        p_values[others] = node(analyse(rows, manifest), "n0").p_value
    alone = deviations_from_others([[-0.034, -0.03, -0.026]] + [[-0.004, 0.0, 0.004]] * 30)[0]
    assert p_values[30] == pytest.approx(31 * alone.p_value_below(-math.log1p(0.015), 0.95), rel=0.01)


def test_a_noisy_node_is_undecided_even_if_it_is_as_fast_on_average(simulated: ModuleType) -> None:
    log_rates = dict.fromkeys(("n0", "n1", "n2"), (-0.002, 0.0, 0.002)) | {"n3": (-0.03, 0.0, 0.03)}
    manifest = planned(simulated, tuple(log_rates), 3)
    rows = [
        simulated.make_run(
            {"batch_size": size}, number, 100.0 * math.exp(list(log_rates.values())[number % 4][number // 4])
        )
        for number in range(len(manifest.blocks))
        for size in SIZES
    ]
    result = node(analyse(rows, manifest), "n3")
    assert (result.ratio.value, result.verdict) == (pytest.approx(1.0), NodeVerdict.undecided)


def test_without_a_device_sensor_the_cpu_temperature_is_used(measured) -> None:
    after = {name: {"environment": {"before": {}, "after": {"cpu_celsius": 50.0}}} for name in EIGHT}
    assert node(measured(EIGHT, fields=after), "n3").celsius == 50.0
    assert node(measured(EIGHT), "n3").celsius is None


def test_the_only_node_with_rates_is_not_judged_and_a_single_setting_has_one_spread(simulated: ModuleType) -> None:
    manifest = planned(simulated, ("n0", "n1"), 3)
    rows = [simulated.make_run({"batch_size": 32}, number, 100.0 + number) for number in (0, 2, 4)]
    result = node(analyse(rows, manifest), "n0")
    assert (result.verdict, result.reason) == (NodeVerdict.not_measured, "no other node has a rate")
    rows += [simulated.make_run({"batch_size": 32}, number, 100.0 + number) for number in (1, 3, 5)]
    findings = analyse(rows, manifest)
    assert [node.label for node in findings.section(FleetFinding).spread] == ["all settings"]
    assert (
        spread_table(findings.section(FleetFinding)).rows[0][1].text
        == "not known: 2 nodes are too few for an interval, which needs 3"
    )
    assert "The spread between nodes is unknown (2 nodes are too few" in findings.recommendation.detail


def test_drivers_are_in_order_of_time_and_dates_are_the_first_and_the_last(simulated: ModuleType) -> None:
    manifest = planned(simulated, ("n0", "n1"), 3)
    days = {0: ("2026-02-03T10:00:00+00:00", "600"), 2: ("2026-01-05T10:00:00+00:00", "590"), 4: ("2026-01-07", "590")}
    rows = [
        simulated.make_run(
            {"batch_size": 32}, number, 100.0 + number, started_at=day, hardware={"host": "Xeon", "driver": driver}
        )
        for number, (day, driver) in days.items()
    ]
    result = node(analyse(rows, manifest), "n0")
    assert (result.drivers, result.dates) == (("590", "600"), ("2026-01-05", "2026-02-03"))


def test_a_disturbed_node_is_not_judged(measured) -> None:
    findings = measured({**EIGHT, "n2": 0.9}, fields={"n2": {"doubts": [BUSY]}})
    assert node(findings, "n2").verdict is NodeVerdict.disturbed
    assert findings.section(FleetFinding).sick_nodes == ()
    assert findings.recommendation.certainty is Certainty.disturbed
    assert findings.recommendation.settle.startswith(
        "accelsweep retry simulated --outcome disturbed && accelsweep fleet "
    )


def test_a_failed_run_does_not_bias_its_node(measured) -> None:
    findings = measured(EIGHT, without=((0, 32), (9, 128)))
    assert {node.verdict for node in findings.section(FleetFinding).nodes} == {NodeVerdict.sound}
    assert abs(node(findings, "n0").ratio.value - 1.0) < 0.002


def test_a_node_without_runs_is_not_measured(measured) -> None:
    findings = measured(EIGHT, without=tuple((number, size) for number in (1, 9, 17) for size in SIZES))
    missing = node(findings, "n1")
    assert (missing.verdict, missing.blocks, missing.planned) == (NodeVerdict.not_measured, 0, 3)
    assert missing.reason == "no run on it has a rate"


def test_a_run_on_another_node_than_planned_is_left_out(measured) -> None:
    elsewhere = {"environment": {"before": {"variables": {"SLURMD_NODENAME": "n7"}}}}
    assert node(measured(EIGHT, fields={"n1": elsewhere}), "n1").verdict is NodeVerdict.not_measured
    itself = {"environment": {"before": {"variables": {"SLURMD_NODENAME": "n1"}}}}
    assert node(measured(EIGHT, fields={"n1": itself}), "n1").verdict is NodeVerdict.sound


def test_different_hosts_raise_no_doubt_in_a_fleet_and_drivers_and_dates_are_reported(measured) -> None:
    fields = {
        name: {"environment": {"before": {"host": name}}, "hardware": {"host": "Xeon", "driver": f"59{number % 2}"}}
        for number, name in enumerate(EIGHT)
    }
    findings = measured(EIGHT, fields=fields)
    assert "mixed_hosts" not in {doubt.code for doubt in findings.doubts}
    assert (node(findings, "n0").drivers, node(findings, "n1").drivers) == (("590",), ("591",))
    assert node(findings, "n0").dates == ("2026-01-05",)
    assert {node.verdict for node in findings.section(FleetFinding).nodes} == {NodeVerdict.sound}, (
        "a different driver is not a fault"
    )


def test_the_fleets_tables_come_first_and_its_findings_round_trip(measured, tmp_path) -> None:
    findings = measured({**EIGHT, "n5": 0.98})
    names = [table.name for table in build_tables(findings)]
    assert names[:2] == ["nodes", "node_spread"]
    first = build_tables(findings)[0].rows[0]
    assert [entry.text for entry in first][3:] == ["slower", "-", "-", "0 of 3", "-"]
    assert first[0].text == "n5"
    assert re.match(r"-(1\.9|2\.0)\d* % \[-", first[1].text)
    findings.write(tmp_path / "findings.json")
    assert Findings.read(tmp_path / "findings.json") == findings


def test_the_table_has_temperatures_with_intervals_and_each_fault_once() -> None:
    def estimate(value: float, unit: str) -> Estimate:
        return Estimate(value=value, low=value - 1, high=value + 1, unit=unit, confidence=0.95, count=3)

    hot = FleetNode(
        node="n1", sick=True, faults=("slower", "throttled", "hotter"), blocks=3, planned=3, verdict=NodeVerdict.slower,
        reason="r", p_value=0.012, celsius=71.4,
        temperature_excess=estimate(11.0, "K"), throttled=2, drivers=("590", "600"), dates=("2026-01-05",),
    )  # fmt: skip
    bare = FleetNode(node="n2", blocks=0, planned=3, verdict=NodeVerdict.not_measured, reason="no run on it has a rate")
    spread = NodeSpread(setting=None, label="all", between=estimate(2.0, "1"), within=estimate(3.0, "1"))
    fleet = FleetFinding(nodes=(hot, bare), spread=(spread,), tolerance=0.015, hotter_by=5.0, confidence=0.95)
    first, second = fleet_table(fleet).rows
    assert [entry.text for entry in first] == [
        "n1", "-", "0.012", "slower, throttled and hotter", "71 °C", "11 K [10, 12]", "2 of 3", "590, 600",
    ]  # fmt: skip
    assert [entry.tone for entry in (first[3], second[3])] == ["slower", "undecided"]
    assert [entry.text for entry in second] == ["n2", "-", "-", "not measured", "-", "-", "0 of 0", "-"]
    held = hot.model_copy(update={"verdict": NodeVerdict.sound})
    assert fleet_table(fleet.model_copy(update={"nodes": (held,)})).rows[0][3].tone == "slower", (
        "sick, though not slower"
    )
    data = fleet_table(fleet).data[0]
    assert (data["sick"], data["faults"], data["temperature_excess.low"]) == (True, "slower, throttled, hotter", 10.0)
    assert [entry.text for entry in spread_table(fleet).rows[0]] == ["all", "200 % [100, 300]", "300 % [200, 400]"]


def test_a_sweep_that_compares_no_nodes_has_no_fleet_section(simulated: ModuleType) -> None:
    rows = [simulated.make_run({"batch_size": size}, block, 100.0) for size in SIZES for block in range(3)]
    findings = analyse(rows, simulated.make_manifest([{"batch_size": size} for size in SIZES], 3))
    assert findings.section(FleetFinding) is None
