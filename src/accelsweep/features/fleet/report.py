"""The fleet's tables: nodes, worst first, and the spread between and within nodes."""

from __future__ import annotations

from typing import Any

from accelsweep.features.fleet.findings import FleetFinding, FleetNode, NodeVerdict
from accelsweep.records.estimates import Estimate
from accelsweep.records.findings import Findings
from accelsweep.report import formatting as fmt
from accelsweep.report.table_model import Column, Entry, ReportTable
from accelsweep.significant_digits import interval_digits, significant

_TONES = {NodeVerdict.slower: "slower", NodeVerdict.sound: "same"}


def tables(findings: Findings) -> list[ReportTable]:
    """Return the fleet's tables for the report and the terminal; empty if the sweep does not compare nodes."""
    fleet = findings.section(FleetFinding)
    return [] if fleet is None else [fleet_table(fleet), spread_table(fleet)]


def fleet_table(fleet: FleetFinding) -> ReportTable:
    """Return a row for each node."""
    columns = {
        "Node": False,
        "Rate vs. others": True,
        "p": True,
        "Verdict": False,
        "Temperature": True,
        "vs. others": True,
        "Throttled": True,
        "Driver": False,
    }
    confidence = fmt.share(fleet.confidence)
    return ReportTable(
        name="nodes",
        title="Nodes",
        caption="Each node compared with the mean of the other nodes, over all settings, worst first. Brackets are "
        f"simultaneous {confidence} intervals. A node is slower if its rate is more than {fmt.share(fleet.tolerance)} "
        f"below the others', and hotter if it is more than {fleet.hotter_by:g} degrees warmer. Both lists are "
        f"corrected with {fleet.correction}'s method: each is free of false positives with {confidence} confidence. "
        "p is the corrected probability of such a rate for a node that is just within the tolerance. A node is sick "
        "if it is slower, or throttled in more than half of its blocks.",
        columns=tuple(Column(title, is_number) for title, is_number in columns.items()),
        rows=tuple(_row(node) for node in fleet.nodes),
        data=[_data(node) for node in fleet.nodes],
        empty="No node was measured.",
    )


def _row(node: FleetNode) -> tuple[Entry, ...]:
    tone = "slower" if node.sick else _TONES.get(node.verdict, "undecided")
    faults = " and ".join(fault for fault in node.faults if fault != node.verdict)
    verdict = f"{node.verdict.value}, {faults}" if faults else node.verdict.value
    return (
        Entry(node.node, ", ".join(node.dates)),
        Entry(percent_text(node.ratio), order=node.ratio.value if node.ratio else None),
        Entry("-" if node.p_value is None else f"{node.p_value:.2g}", order=node.p_value),
        Entry(verdict, node.reason, tone=tone),
        Entry("-" if node.celsius is None else f"{node.celsius:.0f} °C", order=node.celsius),
        Entry(
            _kelvins(node.temperature_excess), order=node.temperature_excess.value if node.temperature_excess else None
        ),
        Entry(f"{node.throttled} of {node.blocks}", order=node.throttled),
        Entry(", ".join(node.drivers) or "-"),
    )


def percent_text(ratio: Estimate | None) -> str:
    """Format a ratio as a change in percent, such as `-2.0 % [-2.4, -1.6]`."""
    if ratio is None:
        return "-"
    value = 100.0 * (ratio.value - 1.0)
    if ratio.low is None or ratio.high is None:
        return f"{value:+.1f} % (no interval)"
    middle, low, high = interval_digits(value, 100.0 * (ratio.low - 1.0), 100.0 * (ratio.high - 1.0))
    return f"{middle} % [{low}, {high}]"


def _kelvins(excess: Estimate | None) -> str:
    if excess is None:
        return "-"
    if excess.low is None or excess.high is None:
        return f"{excess.value:+.1f} K"
    middle, low, high = interval_digits(excess.value, excess.low, excess.high)
    return f"{middle} K [{low}, {high}]"


def _data(node: FleetNode) -> dict[str, Any]:
    data: dict[str, Any] = node.model_dump(mode="json", exclude={"ratio", "temperature_excess"})
    data |= {name: ", ".join(data[name]) for name in ("faults", "drivers", "dates")}
    return (
        data | _interval_columns("ratio", node.ratio) | _interval_columns("temperature_excess", node.temperature_excess)
    )


def _interval_columns(name: str, estimate: Estimate | None) -> dict[str, float | None]:
    return {f"{name}.{part}": getattr(estimate, part, None) for part in ("value", "low", "high")}


def spread_table(fleet: FleetFinding) -> ReportTable:
    """Return the standard deviations between and within nodes, one row per setting."""
    return ReportTable(
        name="node_spread",
        title="How much nodes differ",
        caption="Standard deviations of the rate: between nodes, and from block to block on one node. The node is a "
        "random effect, so the first describes the population of such nodes, not only these. Brackets are individual "
        f"{fmt.share(fleet.confidence)} intervals.",
        columns=(Column("Setting"), Column("Between nodes", True), Column("Within a node", True)),
        rows=tuple((Entry(row.label), _share_entry(row.between), _share_entry(row.within)) for row in fleet.spread),
        data=[
            {"setting": row.setting, "label": row.label}
            | _interval_columns("between", row.between)
            | _interval_columns("within", row.within)
            for row in fleet.spread
        ],
        empty="At least two nodes with two blocks each are needed.",
    )


def _share_entry(share: Estimate) -> Entry:
    if share.low is None or share.high is None:
        return Entry(f"not known: {share.reason}")
    value, low, high = (significant(100.0 * number, 2) for number in (share.value, share.low, share.high))
    return Entry(f"{value} % [{low}, {high}]", order=share.value)
