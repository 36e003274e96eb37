"""The recommendation on a fleet, in words: which nodes are sick, which could be, and what settles it."""

from __future__ import annotations

from collections.abc import Sequence

from accelsweep.analysis.headline import advice, percent_change, retry_command, sweep_command
from accelsweep.features.fleet.findings import FleetFinding, FleetNode, NodeSpread, NodeVerdict
from accelsweep.features.fleet.planning import Fleet
from accelsweep.records.findings import Certainty, Recommendation
from accelsweep.records.plan import Manifest
from accelsweep.significant_digits import count_of, significant

_MAX_NAMES = 4
"""Maximum number of nodes to list in a sentence; the table lists all nodes."""


def recommend(found: FleetFinding, manifest: Manifest) -> Recommendation:
    """Return the sick nodes, the nodes that could be sick, and the command that settles the uncertain cases."""
    sick = [node for node in found.nodes if node.sick]
    unsettled = [node for node in found.nodes if not node.sick and node.verdict is not NodeVerdict.sound]
    throttled = (node for node in sick[:_MAX_NAMES] if len(sick) > 1 or "throttled" in node.faults)
    hotter = [node.node for node in found.nodes if "hotter" in node.faults]
    return advice(
        _headline(found, sick, unsettled),
        _certainty(unsettled),
        *(_interval_text(node, found.confidence) for node in sick[:_MAX_NAMES]),
        *(f"{_fault_text(node)}." for node in throttled),
        f"More than {found.hotter_by:g} degrees hotter than the others: {', '.join(hotter)}." if hotter else "",
        _spread_text(found.spread[0]) if found.spread else "",
        _unsettled_text(found, unsettled),
        settle=_settling_command({node.verdict for node in unsettled}, manifest),
    )


def _headline(found: FleetFinding, sick: Sequence[FleetNode], unsettled: Sequence[FleetNode]) -> str:
    if len(sick) == 1 and sick[0].verdict is NodeVerdict.slower:
        return _fault_text(sick[0])
    total = count_of(len(found.nodes), "node")
    if sick:
        return f"{len(sick)} of {total} sick: {_names(sick)}"
    if unsettled:
        return f"No node is shown to be sick, but {len(unsettled)} of {len(found.nodes)} could be"
    return f"None of {total} is sick"


def _unsettled_text(found: FleetFinding, unsettled: Sequence[FleetNode]) -> str:
    if not unsettled:
        return ""
    reason = f"{unsettled[0].verdict}: {unsettled[0].reason.rstrip('.')}"
    return f"Not shown to be within {100 * found.tolerance:g} %: {_names(unsettled)} ({reason})."


def _names(nodes: Sequence[FleetNode]) -> str:
    more = f" and {len(nodes) - _MAX_NAMES} more" if len(nodes) > _MAX_NAMES else ""
    return f"{', '.join(node.node for node in nodes[:_MAX_NAMES])}{more}"


def _fault_text(node: FleetNode) -> str:
    """Return text such as `gpu3 is 2.0 % slower than the other nodes`, adding any throttled blocks."""
    throttled = f"was throttled in {node.throttled} of {count_of(node.blocks, 'block')}"
    if node.verdict is not NodeVerdict.slower or node.ratio is None:
        return f"{node.node} {throttled}"
    slower = f"{node.node} is {percent_change(node.ratio)[0].lstrip('-')} % slower than the other nodes"
    return f"{slower} and {throttled}" if "throttled" in node.faults else slower


def _interval_text(node: FleetNode, confidence: float) -> str:
    """Return the interval of a slower node: `gpu3: -2.4 to -1.6 % (95 %).`; empty if there is none."""
    if node.verdict is not NodeVerdict.slower or node.ratio is None:
        return ""
    low, _, high = percent_change(node.ratio)[1].strip(" []").partition(", ")
    return f"{node.node}: {low} to {high} % ({100 * confidence:.3g} %)." if high else ""


def _spread_text(spread: NodeSpread) -> str:
    def percent(share: float) -> str:
        return significant(100.0 * share, 2)

    between = spread.between
    within = f"from block to block on one node it is {percent(spread.within.value)} %"
    if between.low is None or between.high is None:
        return f"The spread between nodes is unknown ({between.reason}); {within}."
    interval = f"{percent(between.low)} to {percent(between.high)} %"
    return f"The rate's standard deviation between nodes is {percent(between.value)} % ({interval}); {within}."


def _certainty(unsettled: Sequence[FleetNode]) -> Certainty:
    if not unsettled:
        return Certainty.sure
    disturbed = any(node.verdict is NodeVerdict.disturbed for node in unsettled)
    return Certainty.disturbed if disturbed else Certainty.undecided


def _settling_command(verdicts: set[NodeVerdict], manifest: Manifest) -> str | None:
    """Return the command that repeats disturbed or missing runs, or doubles the rounds; None if no verdicts exist."""
    if NodeVerdict.disturbed in verdicts:
        return retry_command(manifest)
    if NodeVerdict.undecided in verdicts:
        fleet = manifest.part(Fleet)
        assert fleet is not None
        doubled = fleet.model_copy(update={"each": 2 * fleet.each})
        manifest = manifest.model_copy(update={"parts": {**manifest.parts, fleet.command: doubled}})
    return sweep_command(manifest) if verdicts else None
