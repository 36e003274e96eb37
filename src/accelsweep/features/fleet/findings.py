"""The findings on a fleet's nodes: each compared with the others, how much nodes differ, and what follows."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import ClassVar

from pydantic import Field

from accelsweep.analysis.headline import advice, percent_change, sweep_command
from accelsweep.features.fleet.planning import Fleet
from accelsweep.json_documents import Frozen
from accelsweep.records.estimates import Estimate
from accelsweep.records.findings import Certainty, Recommendation, Section
from accelsweep.records.plan import Manifest
from accelsweep.significant_digits import count_of, significant


class NodeVerdict(StrEnum):
    """The answer on a node that its interval and Holm's correction support, given the tolerance.

    `sound` is shown to be slower by less than the tolerance, or not at all. `disturbed` stands where others used the
    node meanwhile.
    """

    slower = "slower"
    sound = "sound"
    undecided = "undecided"
    disturbed = "disturbed"
    not_measured = "not measured"


class FleetNode(Frozen):
    """A node compared with the mean of the others. P-values are corrected by Holm's method."""

    node: str = Field(description="the node's name in the cluster")
    blocks: int = Field(description="the blocks that it measured")
    planned: int = Field(description="the blocks that were planned for it")
    verdict: NodeVerdict = Field(description="what the interval of the ratio supports, corrected")
    reason: str = Field(description="why that is the verdict")
    ratio: Estimate | None = Field(None, description="its rate divided by the mean of the other nodes")
    chance: float | None = Field(None, description="the p-value of its being slower than the tolerance allows")
    celsius: float | None = Field(None, description="the temperature under load")
    warmer: Estimate | None = Field(None, description="how many degrees it is warmer than the other nodes")
    warmer_chance: float | None = Field(None, description="the p-value of its being hotter by `hotter_by`")
    hotter: bool = Field(False, description="whether it is shown to be hotter")
    throttled: int = Field(0, description="the blocks in which its device was throttled")
    held_back: bool = Field(False, description="whether its device was throttled in most blocks")
    drivers: tuple[str, ...] = Field((), description="the drivers that its runs saw")
    dates: tuple[str, ...] = Field((), description="the first and the last day of its runs")

    @property
    def sick(self) -> bool:
        """Whether the node is slower than the tolerance allows, or throttled in most of its blocks."""
        return self.verdict is NodeVerdict.slower or self.held_back

    @property
    def faults(self) -> tuple[str, ...]:
        """The node's faults in words: those that make it sick, and heat."""
        told = (("slower", self.verdict is NodeVerdict.slower), ("throttled", self.held_back), ("hotter", self.hotter))
        return tuple(word for word, true in told if true)


class NodeSpread(Frozen):
    """The spread of a setting's rate between nodes and within one, each with the interval of its own deviation."""

    setting: str | None = Field(description="the setting's name in files; null for all settings together")
    label: str = Field(description="the setting in words")
    between: Estimate = Field(description="the relative standard deviation between nodes")
    within: Estimate = Field(description="that from block to block of one node")


class FleetFinding(Section):
    """The nodes of a sweep."""

    nodes: tuple[FleetNode, ...] = Field(description="the nodes, worst first")
    spread: tuple[NodeSpread, ...] = Field(description="how much nodes differ at all")
    tolerance: float = Field(description="by how much slower than the others a node may be, as a share of the rate")
    hotter_by: float = Field(description="the degrees Celsius above the others from which a node counts as hotter")
    confidence: float = Field(description="the confidence of each list: of slower nodes, and of hotter ones")
    correction: str = Field("Holm", description="the correction of each list of nodes")

    compares_nodes: ClassVar[bool] = True

    def recommendation(self, manifest: Manifest) -> Recommendation:
        """Return what the nodes' comparisons support."""
        return about_fleet(self, manifest)

    @property
    def sick_nodes(self) -> tuple[str, ...]:
        """The names of the sick nodes."""
        return tuple(node.node for node in self.nodes if node.sick)


# Advice on a fleet's sweep: the nodes that are sick, and those that could be.

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


def _with_rounds(manifest: Manifest, times: int) -> str:
    """Return the command line by which each node of a fleet measures so many times the rounds."""
    fleet = manifest.part(Fleet)
    assert fleet is not None, "the sweep compares nodes"
    more = fleet.model_copy(update={"each": times * fleet.each})
    return sweep_command(manifest.model_copy(update={"parts": {**manifest.parts, fleet.command: more}}))


def _settle(open_ones: Sequence[FleetNode], manifest: Manifest) -> str | None:
    """Return the command that tells more: disturbed and missing runs again, or twice the rounds."""
    verdicts = {one.verdict for one in open_ones}
    if NodeVerdict.disturbed in verdicts:
        return f"accelsweep retry {manifest.sweep} --outcome disturbed && {sweep_command(manifest)}"
    if NodeVerdict.undecided in verdicts:
        return _with_rounds(manifest, 2)
    return sweep_command(manifest) if verdicts else None
