"""The findings on a fleet: each node compared with the others, the spread between nodes, and the recommendation."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import ClassVar

from pydantic import Field

from accelsweep.features.fleet.planning import Fleet
from accelsweep.json_documents import Frozen
from accelsweep.records.estimates import Estimate, percent_change
from accelsweep.records.findings import Certainty, Recommendation, Section, advice
from accelsweep.records.plan import Manifest
from accelsweep.records.sweep_commands import retry_command, sweep_command
from accelsweep.significant_digits import count_of, significant


class NodeVerdict(StrEnum):
    """The verdict on a node's rate, based on its Holm-corrected test, its interval and the tolerance.

    `sound` means that the node was shown not to be slower than the tolerance allows; `disturbed` means that other load
    ran on the node during most runs.
    """

    slower = "slower"
    sound = "sound"
    undecided = "undecided"
    disturbed = "disturbed"
    not_measured = "not measured"


class FleetNode(Frozen):
    """A node compared with the mean of the others; unknown values are None."""

    node: str = Field(description="the node's name in the cluster")
    sick: bool = Field(False, description="whether it is slower than the tolerance allows, or throttled in most blocks")
    faults: tuple[str, ...] = Field((), description="which of `slower`, `throttled` and `hotter` were shown")
    verdict: NodeVerdict = Field(description="what the interval of the ratio supports, corrected")
    reason: str = Field(description="the reason for the verdict")
    ratio: Estimate | None = Field(None, description="its rate divided by the mean of the other nodes")
    p_value: float | None = Field(None, description="the corrected p-value for being slower than the tolerance allows")
    celsius: float | None = Field(None, description="the temperature under load")
    temperature_excess: Estimate | None = Field(
        None, description="its temperature above that of the other nodes, in kelvins"
    )
    temperature_excess_p_value: float | None = Field(
        None, description="the corrected p-value for being hotter by `hotter_by`"
    )
    blocks: int = Field(description="the number of blocks that it measured")
    planned: int = Field(description="the number of blocks that were planned for it")
    throttled: int = Field(0, description="the number of blocks in which its device was throttled")
    drivers: tuple[str, ...] = Field((), description="the driver versions of its runs, oldest run first")
    dates: tuple[str, ...] = Field((), description="the first and last day of its runs; one entry if they are equal")


class NodeSpread(Frozen):
    """The spread of a setting's rate, as relative standard deviations; each interval holds individually."""

    setting: str | None = Field(description="the setting's ID; null for all settings together")
    label: str = Field(description="the setting's label")
    between: Estimate = Field(description="the relative standard deviation between nodes")
    within: Estimate = Field(description="the relative standard deviation from block to block on one node")


class FleetFinding(Section):
    """The nodes of a sweep."""

    nodes: tuple[FleetNode, ...] = Field(description="the nodes, worst first")
    spread: tuple[NodeSpread, ...] = Field(description="the spread between and within nodes")
    tolerance: float = Field(description="the share by which a node may be slower than the others")
    hotter_by: float = Field(description="the excess over the others, in degrees, above which a node is hotter")
    confidence: float = Field(description="the confidence of each list: the slower nodes and the hotter nodes")
    correction: str = Field("Holm", description="the correction for multiple testing of each list of nodes")

    compares_nodes: ClassVar[bool] = True

    def recommendation(self, manifest: Manifest, usual: Recommendation) -> Recommendation:  # noqa: ARG002
        """Return the sick nodes, the nodes that could be sick, and the command that settles the uncertain cases."""
        sick = [node for node in self.nodes if node.sick]
        unsettled = [node for node in self.nodes if not node.sick and node.verdict is not NodeVerdict.sound]
        throttled = (node for node in sick[:_MAX_NAMES] if len(sick) > 1 or "throttled" in node.faults)
        hotter = [node.node for node in self.nodes if "hotter" in node.faults]
        return advice(
            self._headline(sick, unsettled),
            _certainty(unsettled),
            *(_interval_text(node, self.confidence) for node in sick[:_MAX_NAMES]),
            *(f"{_fault_text(node)}." for node in throttled),
            f"More than {self.hotter_by:g} degrees hotter than the others: {', '.join(hotter)}." if hotter else "",
            _spread_text(self.spread[0]) if self.spread else "",
            self._unsettled_text(unsettled),
            settle=_settling_command({node.verdict for node in unsettled}, manifest),
        )

    def _headline(self, sick: Sequence[FleetNode], unsettled: Sequence[FleetNode]) -> str:
        if len(sick) == 1 and sick[0].verdict is NodeVerdict.slower:
            return _fault_text(sick[0])
        total = count_of(len(self.nodes), "node")
        if sick:
            return f"{len(sick)} of {total} sick: {_names(sick)}"
        if unsettled:
            return f"No node is shown to be sick, but {len(unsettled)} of {len(self.nodes)} could be"
        return f"None of {total} is sick"

    def _unsettled_text(self, unsettled: Sequence[FleetNode]) -> str:
        if not unsettled:
            return ""
        reason = f"{unsettled[0].verdict}: {unsettled[0].reason.rstrip('.')}"
        return f"Not shown to be within {100 * self.tolerance:g} %: {_names(unsettled)} ({reason})."

    @property
    def sick_nodes(self) -> tuple[str, ...]:
        """The names of the sick nodes."""
        return tuple(node.node for node in self.nodes if node.sick)


_MAX_NAMES = 4
"""Maximum number of nodes to list in a sentence; the table lists all nodes."""


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
