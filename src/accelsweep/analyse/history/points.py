"""The points of a history: the runs of one setting, on one machine, at one commit, in one sweep."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from accelsweep.analyse.statistics.changes import Level
from accelsweep.analysis.baseline_comparison import disturbance, own_rate
from accelsweep.analysis.merge_sweeps import Part
from accelsweep.analysis.run_results import CellRuns, RunRow, group, in_order
from accelsweep.config.setting import cell_name
from accelsweep.config.versions import VERSION, without_version
from accelsweep.core.derived.histories import LinePoint
from accelsweep.errors import InputError
from accelsweep.records.run_environment import HardwareKind


class LineKey(NamedTuple):
    """The common part of all points of a line: the setting, its version apart, and the machine."""

    cell: str
    hardware: HardwareKind
    machine: str | None
    rate_metric: str


@dataclass(frozen=True)
class Found:
    """A point with what the history needs beside it. `began` and `number` order points that share a sweep."""

    key: LineKey
    axes: Mapping[str, Any]
    rate_unit: str
    level: Level
    began: str
    number: int
    point: LinePoint


class _Place(NamedTuple):
    """The facts that split the runs of a setting in one sweep into points."""

    machine: str | None
    commit: str | None
    changed: bool | None


def points_of(part: Part, seen: set[str], committed: Mapping[str, str], confidence: float) -> Iterator[Found]:
    """Yield the points of a sweep. Records that are in `seen` were in another archive, and count once; it grows."""
    node_of = {block.name: block.resources.node for block in part.manifest.blocks}
    own = (row for row in in_order(part.runs) if row.record_sha256 not in seen)
    rows = [_on_node(row, node) if (node := node_of.get(row.block or "")) else row for row in own]
    seen |= {row.record_sha256 for row in rows if row.record_sha256 is not None}
    began = min((row.started_at for row in rows if row.started_at), default="")
    order = {version.name: number for number, version in enumerate(part.manifest.compared)}
    for one in group(part.manifest, rows):
        name = str(one.planned.axes.get(VERSION, ""))
        for place, runs in _apart(one).items():
            narrowed = replace(one, runs=tuple(runs))
            if (rate := own_rate(narrowed, confidence)) is None or not runs[0].started_at:
                continue
            measured = min(run.started_at for run in runs if run.started_at)
            yield Found(
                key=LineKey(_cell_without_version(narrowed), one.hardware, place.machine, one.rate_metric),
                axes=without_version(one.planned.axes),
                rate_unit=narrowed.rate_unit,
                level=Level.of(list(narrowed.log_rates.values())),
                began=began if order else measured,
                number=order.get(name, 0),
                point=LinePoint(
                    source=part.name,
                    version=name or None,
                    commit=place.commit,
                    local_changes=place.changed,
                    committed=committed.get(place.commit or ""),
                    measured=measured,
                    rate=rate,
                    disturbed=disturbance(narrowed),
                    software=dict(runs[-1].software),
                ),
            )


def _on_node(run: RunRow, node: str) -> RunRow:
    """Return a run of a fleet with its node as the machine. Its driver is software there, whose change a line shows."""
    facts = {fact: told for fact, told in run.hardware.facts if fact != "driver"}
    driver = {"driver": run.hardware.driver} if run.hardware.driver else {}
    return replace(
        run,
        hardware=HardwareKind.of(facts),
        software={**run.software, **driver},
        environment=run.surroundings.on(node),
    )


def commits_in(parts: Sequence[Part]) -> Collection[str]:
    """Return the commits at which the runs of these sweeps were measured."""
    places = (_place(run) for part in parts for run in part.runs if run.recorded)
    return {place.commit for place in places if place.commit is not None}


def refuse_without_rates(parts: Sequence[Part], found: Sequence[Found]) -> None:
    """Raise InputError where no run of these sweeps has a rate."""
    if not found:
        named = ", ".join(part.name for part in parts)
        raise InputError(f"no run in {named} has a rate, so there is no history: measure them first")


def _apart(one: CellRuns) -> dict[_Place, list[RunRow]]:
    places: dict[_Place, list[RunRow]] = {}
    for run in one.rated:
        places.setdefault(_place(run), []).append(run)
    return places


def _place(run: RunRow) -> _Place:
    """Return where a run belongs. A version's commit is that of its tree, not the one that is checked out."""
    commit, changed = run.checkout
    version = run.config.version if run.config is not None else None
    if version is not None and version.kind == "commit":
        commit, changed = version.digest, False
    return _Place(run.machine, commit, changed)


def _cell_without_version(one: CellRuns) -> str:
    """Return the name that a setting has in sweeps without versions."""
    if one.config is None or one.config.version is None:
        return one.cell
    return cell_name(without_version(one.config.raw))
