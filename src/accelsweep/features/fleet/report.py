"""A fleet's nodes as a table, worst first, and how much nodes differ at all as another."""

from __future__ import annotations

from typing import Any

from accelsweep.features.fleet.findings import FleetFinding, FleetNode, NodeSpread, NodeVerdict
from accelsweep.records.estimates import Estimate
from accelsweep.records.findings import Findings
from accelsweep.report import units as fmt
from accelsweep.report.table_model import Column, Entry, ReportTable
from accelsweep.significant_digits import interval_digits, significant

_TONES = {NodeVerdict.slower: "slower", NodeVerdict.sound: "same"}


def tables(findings: Findings) -> list[ReportTable]:
    """Return the tables of the nodes, where the sweep compares some; they stand in the terminal too."""
    fleet = findings.section(FleetFinding)
    return [] if fleet is None else [fleet_table(fleet), spread_table(fleet)]


def fleet_table(fleet: FleetFinding) -> ReportTable:
    """Return one row per node."""
    titles = (
        "Node",
        "Rate beside the others",
        "p",
        "Verdict",
        "Temperature",
        "Beside the others",
        "Throttled",
        "Driver",
    )
    sure = fmt.share(fleet.confidence)
    return ReportTable(
        name="nodes",
        title="Nodes",
        caption="Each node beside the mean of the other nodes, over all settings, worst first. Intervals stand in "
        f"brackets and hold together at {sure}. A node is slower if its rate lies more than "
        f"{fmt.share(fleet.tolerance)} below the others'. It is hotter if it is more than {fleet.hotter_by:g} degrees "
        f"warmer. Both lists are corrected by {fleet.correction}'s method: with {sure} each names no node wrongly. A p "
        "is the corrected chance of such a rate for a node that is just within the tolerance. A node is sick if it is "
        "slower, or throttled in more than half of its blocks.",
        columns=tuple(Column(title, title not in ("Node", "Verdict", "Driver")) for title in titles),
        rows=tuple(_row(one) for one in fleet.nodes),
        data=[_data(one) for one in fleet.nodes],
        empty="No node was measured.",
    )


def _row(one: FleetNode) -> tuple[Entry, ...]:
    faults = " and ".join(word for word in one.faults if word != one.verdict)
    tone = "slower" if one.sick else _TONES.get(one.verdict, "undecided")
    return (
        Entry(one.node, ", ".join(one.dates)),
        Entry(percent_text(one.ratio), order=one.ratio.value if one.ratio else None),
        Entry("-" if one.chance is None else f"{one.chance:.2g}", order=one.chance),
        Entry(", ".join(part for part in (one.verdict.value.replace("_", " "), faults) if part), one.reason, tone=tone),
        Entry("-" if one.celsius is None else f"{one.celsius:.0f} °C", order=one.celsius),
        Entry(_degrees(one.warmer), order=one.warmer.value if one.warmer else None),
        Entry(f"{one.throttled} of {one.blocks}", order=one.throttled),
        Entry(", ".join(one.drivers) or "-"),
    )


def percent_text(ratio: Estimate | None) -> str:
    """Return a ratio as a change in percent: `-2.0 % [-2.4, -1.6]`."""
    if ratio is None:
        return "-"
    value = 100.0 * (ratio.value - 1.0)
    if ratio.low is None or ratio.high is None:
        return f"{value:+.1f} % (no interval)"
    middle, low, high = interval_digits(value, 100.0 * (ratio.low - 1.0), 100.0 * (ratio.high - 1.0))
    return f"{middle} % [{low}, {high}]"


def _degrees(warmer: Estimate | None) -> str:
    if warmer is None:
        return "-"
    if warmer.low is None or warmer.high is None:
        return f"{warmer.value:+.1f} K"
    middle, low, high = interval_digits(warmer.value, warmer.low, warmer.high)
    return f"{middle} K [{low}, {high}]"


def _data(one: FleetNode) -> dict[str, Any]:
    data: dict[str, Any] = one.model_dump(mode="json", exclude={"ratio", "warmer", "drivers", "dates"})
    for name in ("ratio", "warmer"):
        data |= {f"{name}.{part}": getattr(getattr(one, name), part, None) for part in ("value", "low", "high")}
    lists = {"faults": one.faults, "drivers": one.drivers, "dates": one.dates}
    return data | {"sick": one.sick} | {name: ", ".join(words) for name, words in lists.items()}


def spread_table(fleet: FleetFinding) -> ReportTable:
    """Return the standard deviations between and within nodes, a row for each setting."""
    return ReportTable(
        name="node_spread",
        title="How much nodes differ",
        caption="Standard deviations of the rate: between nodes, and from block to block of one node. The node is a "
        "random effect, so the first is that of any such nodes, not of these alone. Each interval, in brackets, is its "
        f"own and holds at {fmt.share(fleet.confidence)}.",
        columns=(Column("Setting"), Column("Between nodes", True), Column("Within a node", True)),
        rows=tuple((Entry(one.label), _share_entry(one.between), _share_entry(one.within)) for one in fleet.spread),
        data=[_spread_data(one) for one in fleet.spread],
        empty="It takes two nodes with two blocks each to tell.",
    )


def _share_entry(found: Estimate) -> Entry:
    if found.low is None or found.high is None:
        return Entry(f"not known: {found.reason}")
    low, high, value = 100.0 * found.low, 100.0 * found.high, 100.0 * found.value
    return Entry(f"{significant(value, 2)} % [{significant(low, 2)}, {significant(high, 2)}]", order=found.value)


def _spread_data(one: NodeSpread) -> dict[str, Any]:
    data: dict[str, Any] = {"setting": one.setting, "label": one.label}
    for name in ("between", "within"):
        data |= {f"{name}.{part}": getattr(getattr(one, name), part) for part in ("value", "low", "high")}
    return data
