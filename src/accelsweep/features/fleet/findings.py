"""The findings on a fleet: each node compared with the others, the spread between nodes, and the recommendation."""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar

from pydantic import Field

from accelsweep.json_documents import Frozen
from accelsweep.records.estimates import Estimate
from accelsweep.records.findings import Recommendation, Section
from accelsweep.records.plan import Manifest


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
        from accelsweep.features.fleet.recommendation import recommend  # statistics, which few commands need

        return recommend(self, manifest)

    @property
    def sick_nodes(self) -> tuple[str, ...]:
        """The names of the sick nodes."""
        return tuple(node.node for node in self.nodes if node.sick)
