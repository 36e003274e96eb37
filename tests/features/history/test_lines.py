"""A history has a line for each setting on each machine, in an order that it states."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest

from accelsweep.analysis.merge_sweeps import Part
from accelsweep.config.schema import checked_config
from accelsweep.config.versions import Version
from accelsweep.errors import InputError
from accelsweep.features.history.lines import history_of
from accelsweep.features.history.model import Order
from accelsweep.features.history.page import line_titles
from accelsweep.records.estimates import Verdict
from accelsweep.run_environment import HardwareKind
from accelsweep.schedulers.protocol import Resources

AXES = {"batch_size": 32}
NOISE = (0.0, 0.001, -0.001)


def part(simulated: ModuleType, name: str, rate: float | None, day: int = 1, **fields: Any) -> Part:
    """A sweep of one setting in three blocks on that day of January; `fields` are those of its rows."""
    machine = fields.pop("machine", "a1")
    rows = [
        simulated.make_run(
            AXES,
            block,
            rate and rate * (1.0 + noise),
            started_at=f"2026-01-{day:02d}T09:0{block}:00+00:00",
            environment={"before": {"machine": machine}},
            record_sha256=f"{name} {block}",
            **fields,
        )
        for block, noise in enumerate(NOISE)
    ]
    return Part(name, rows, simulated.make_manifest([AXES], len(NOISE)))


def at(commit: str) -> dict[str, Any]:
    return {"git": {"commit": commit, "dirty": False}}


def dated(**days: int) -> Mapping[str, str]:
    return {commit: f"2026-01-{day:02d}T00:00:00+00:00" for commit, day in days.items()}


def series(simulated: ModuleType, rates: list[float], **fields: Any) -> list[Part]:
    return [part(simulated, f"s{day}", rate, day, **fields) for day, rate in enumerate(rates, 1)]


def test_points_stand_in_the_order_of_their_commits_where_all_are_known(simulated: ModuleType) -> None:
    parts = [part(simulated, "new", 90.0, 3, **at("b")), part(simulated, "old", 100.0, 9, **at("a"))]
    (line,) = history_of(parts, dated(a=1, b=2)).lines
    assert [point.source for point in line.points] == ["old", "new"]
    assert history_of(parts, dated(a=1, b=2)).order is Order.commit_date


def test_points_stand_in_the_order_of_measurement_where_a_commit_is_not_known(simulated: ModuleType) -> None:
    parts = [part(simulated, "late", 90.0, 9, **at("a")), part(simulated, "early", 100.0, 3, **at("b"))]
    history = history_of(parts, dated(a=1))
    assert [point.source for point in history.lines[0].points] == ["early", "late"]
    assert (history.order, history.order_reason) == (
        Order.measurement_date,
        "the commit date of 1 of 2 points is unknown here",
    )


def test_a_change_is_marked_with_the_point_from_which_it_holds(simulated: ModuleType) -> None:
    (line,) = history_of(series(simulated, [100.0, 100.2, 99.9, 100.1, 95.0, 95.1, 94.9]), {}).lines
    (change,) = line.changes
    assert (change.at, change.verdict, change.software) == (4, Verdict.slower, ())
    assert change.ratio.high is not None
    assert change.ratio.value == pytest.approx(0.95, abs=0.002)
    assert change.ratio.high < 1.0


def test_machines_are_never_mixed_into_one_line(simulated: ModuleType) -> None:
    parts = [part(simulated, f"s{day}", 100.0, day, machine="ab"[day % 2]) for day in range(1, 5)]
    lines = history_of(parts, {}).lines
    assert sorted((line.machine, len(line.points)) for line in lines) == [("a", 2), ("b", 2)]
    parts[3] = part(simulated, "s4", 100.0, 4, machine="a", hardware={"host": "another kind"})
    assert [(line.machine, line.hardware) for line in history_of(parts, {}).lines] == [("b", "Xeon")]


def test_settings_with_one_point_on_each_machine_are_refused_with_the_reason(simulated: ModuleType) -> None:
    alone = part(simulated, "one", 100.0)
    with pytest.raises(InputError, match="1 setting with one point each, so there is no history: name more sweeps"):
        history_of([alone], {})
    with pytest.raises(InputError, match=r"the sweeps ran on 2 machines .* and machines are not mixed"):
        history_of([alone, part(simulated, "two", 100.0, 2, machine="b2")], {})


def test_without_a_rate_there_is_no_history(simulated: ModuleType) -> None:
    with pytest.raises(InputError, match="no run in one has a rate"):
        history_of([part(simulated, "one", None)], {})


def test_a_record_in_two_archives_counts_once(simulated: ModuleType) -> None:
    once = series(simulated, [100.0, 101.0])
    again = replace(once[0], name="copy")
    (line,) = history_of([*once, again], {}).lines
    assert [point.source for point in line.points] == ["s1", "s2"]


def test_another_torch_is_marked_where_it_came(simulated: ModuleType) -> None:
    old = series(simulated, [100.0, 100.1, 99.9, 100.0], software={"torch": "2.9.0"})
    new = [part(simulated, f"t{day}", rate, day) for day, rate in ((7, 90.0), (8, 90.1), (9, 89.9))]
    (line,) = history_of([*old, *new], {}).lines
    assert line.software_changes == {4: ("torch 2.9.0 to 2.13.0",)}
    assert [(change.at, change.software) for change in line.changes] == [(4, ("torch 2.9.0 to 2.13.0",))]


def test_a_disturbed_point_counts_for_no_level(simulated: ModuleType) -> None:
    doubt = {"code": "busy_cpu", "message": "others used the processor", "remedy": "stop them"}
    disturbed = part(simulated, "busy", 60.0, 3, doubts=[doubt])
    calm = [part(simulated, f"s{day}", rate, day) for day, rate in ((1, 100.0), (2, 100.1), (4, 99.9), (5, 100.0))]
    (line,) = history_of([*calm, disturbed], {}).lines
    assert [bool(point.disturbed) for point in line.points] == [False, False, True, False, False]
    assert line.changes == ()


def test_the_versions_of_one_sweep_are_points_of_one_line(simulated: ModuleType) -> None:
    """Each has the date of its own commit, whatever was checked out meanwhile; the setting is that of other sweeps."""
    rows, settings = [], []
    for name, commit, rate in (("main", "a" * 40, 100.0), ("HEAD", "b" * 40, 97.0)):
        axes = {**AXES, "version": name}
        settings.append(axes)
        for block, noise in enumerate(NOISE):
            run = simulated.make_run(axes, block, rate * (1.0 + noise), **at("c" * 40))
            config = checked_config({**run.config.raw, "version": {"commit": commit}})
            rows.append(replace(run, config=config, environment={"before": {"machine": "a1"}}))
    manifest = simulated.make_manifest(settings, len(NOISE))
    versions = (
        Version(name="main", kind="commit", digest="a" * 40),
        Version(name="HEAD", kind="commit", digest="b" * 40),
    )
    ab = Part("ab", rows, manifest.model_copy(update={"compared": versions}))
    later = part(simulated, "later", 97.0, 20, **at("d" * 40))
    (line,) = history_of([ab, later], dated(**{"a" * 40: 2, "b" * 40: 1, "d" * 40: 3})).lines
    assert [(point.version, point.name) for point in line.points] == [
        ("HEAD", "b" * 7),
        ("main", "a" * 7),
        (None, "d" * 7),
    ]
    assert line.label == "batch 32"
    (unknown,) = history_of([ab, later], {}).lines
    assert [point.version for point in unknown.points] == ["main", "HEAD", None], "as they were named"


def test_each_node_of_a_fleet_has_a_line_on_which_another_driver_is_a_change_of_software(simulated: ModuleType) -> None:
    """The nodes are one machine here, as virtual nodes are; a driver would elsewhere begin another line."""
    parts = []
    for day in (1, 2):
        found = part(simulated, f"f{day}", 100.0, day)
        driver = {"host": "Xeon", "driver": f"59{day}"}
        rows = [replace(row, hardware=HardwareKind.of(driver)) for row in found.runs]
        blocks = tuple(
            block.model_copy(update={"resources": Resources(node=node)})
            for block, node in zip(
                found.manifest.blocks, ("rack-c-node-1", "rack-c-node-2", "rack-c-node-1"), strict=True
            )
        )
        parts.append(Part(found.name, rows, found.manifest.model_copy(update={"blocks": blocks})))
    history = history_of(parts, {})
    assert [(line.machine, len(line.points)) for line in history.lines] == [("rack-c-node-1", 2), ("rack-c-node-2", 2)]
    assert history.lines[0].software_changes == {1: ("driver 591 to 592",)}
    assert [title.rpartition("machine ")[2] for title in line_titles(history)] == ["rack-c-node-1", "rack-c-node-2"]
