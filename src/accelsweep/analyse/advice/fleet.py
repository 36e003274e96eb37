"""Advice on a fleet's sweep: the nodes that are sick, and those that could be."""

from __future__ import annotations

from collections.abc import Sequence

from accelsweep.analysis.headline import advice, command, percent_change, with_rounds
from accelsweep.core.findings.fleet import FleetFinding, FleetNode, NodeVerdict
from accelsweep.records.findings import Certainty, Recommendation
from accelsweep.records.plan import Manifest
from accelsweep.significant_digits import count_of, significant

_MOST_NAMES = 4
"""The nodes that a headline names; the table has all of them."""


def about_fleet(found: FleetFinding, manifest: Manifest) -> Recommendation:
    """Return what the nodes' comparisons support, and the command that settles what is open."""
    sick = [one for one in found.nodes if one.sick]
    open_ones = [one for one in found.nodes if not one.sick and one.verdict is not NodeVerdict.sound]
    return advice(
        _headline(found, sick, open_ones),
        _certainty(open_ones),
        *(f"{_fault(one)}." for one in sick[:_MOST_NAMES] if len(sick) > 1 or one.held_back),
        _hot(found),
        _between(found),
        _open(open_ones, found.tolerance),
        settle=_settle(open_ones, manifest),
    )


def _headline(found: FleetFinding, sick: Sequence[FleetNode], open_ones: Sequence[FleetNode]) -> str:
    if len(sick) == 1 and sick[0].verdict is NodeVerdict.slower:
        return _fault(sick[0])
    if sick:
        names = ", ".join(one.node for one in sick[:_MOST_NAMES])
        more = f" and {len(sick) - _MOST_NAMES} more" if len(sick) > _MOST_NAMES else ""
        return f"{len(sick)} of {count_of(len(found.nodes), 'node')} sick: {names}{more}"
    if open_ones:
        return f"No sick node is shown, but {len(open_ones)} of {len(found.nodes)} could be"
    return f"None of {count_of(len(found.nodes), 'node')} is sick"


def _fault(one: FleetNode) -> str:
    """Return `gpu3 is 2.0 % slower than the other nodes [-2.4, -1.6]`, and whether it was held back."""
    held = f"held back in {one.throttled} of {count_of(one.blocks, 'block')}"
    if one.verdict is not NodeVerdict.slower or one.ratio is None:
        return f"{one.node} was {held}"
    middle, ends = percent_change(one.ratio)
    told = f"{one.node} is {middle.lstrip('-')} % slower than the other nodes{ends}"
    return f"{told} and was {held}" if one.held_back else told


def _hot(found: FleetFinding) -> str:
    names = [one.node for one in found.nodes if one.hotter]
    return f"More than {found.hotter_by:g} degrees hotter than the others: {', '.join(names)}." if names else ""


def _between(found: FleetFinding) -> str:
    """Return how much nodes differ at all: `Nodes differ by 0.6 % (standard deviation, 0.4 to 1.2 %), ...`."""
    if not found.spread:
        return ""
    between, within = found.spread[0].between, found.spread[0].within
    inside = f"from block to block of one node {_share(within.value)} %"
    if between.low is None or between.high is None:
        return f"How much nodes differ is not known ({between.reason}); {inside}."
    ends = f"{_share(between.low)} to {_share(between.high)} %"
    return f"Between nodes the rate has a standard deviation of {_share(between.value)} % ({ends}), {inside}."


def _share(value: float | None) -> str:
    return significant(100.0 * (value or 0.0), 2)


def _open(open_ones: Sequence[FleetNode], tolerance: float) -> str:
    if not open_ones:
        return ""
    first = open_ones[0]
    names = ", ".join(one.node for one in open_ones[:_MOST_NAMES])
    more = f" and {len(open_ones) - _MOST_NAMES} more" if len(open_ones) > _MOST_NAMES else ""
    return f"Not shown to be within {100 * tolerance:g} %: {names}{more} ({first.verdict}: {first.reason.rstrip('.')})."


def _certainty(open_ones: Sequence[FleetNode]) -> Certainty:
    if not open_ones:
        return Certainty.sure
    disturbed = any(one.verdict is NodeVerdict.disturbed for one in open_ones)
    return Certainty.disturbed if disturbed else Certainty.not_yet


def _settle(open_ones: Sequence[FleetNode], manifest: Manifest) -> str | None:
    """Return the command that tells more: disturbed and missing runs again, or twice the rounds."""
    verdicts = {one.verdict for one in open_ones}
    if NodeVerdict.disturbed in verdicts:
        return f"accelsweep retry {manifest.sweep} --outcome disturbed && {command(manifest)}"
    if NodeVerdict.undecided in verdicts:
        return with_rounds(manifest, 2)
    return command(manifest) if verdicts else None
