"""The answer of `accelsweep fleet`."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from pydantic import Field

from accelsweep.cli.json_output import Answer, AnswerPart
from accelsweep.core.findings.fleet import NodeVerdict
from accelsweep.records.estimates import Estimate
from accelsweep.records.findings import Findings


class ComparedNode(AnswerPart):
    """A node beside the mean of the others."""

    node: str = Field(description="the node's name in the cluster")
    sick: bool = Field(description="whether it is slower than the tolerance allows, or throttled in most blocks")
    faults: tuple[str, ...] = Field(description="`slower`, `throttled` and `hotter`, as far as they are shown")
    verdict: NodeVerdict = Field(description="what the interval of the ratio supports, corrected")
    reason: str = Field(description="why that is the verdict")
    ratio: Estimate | None = Field(description="its rate divided by the mean of the other nodes")
    chance: float | None = Field(description="the corrected p-value of its being slower than the tolerance allows")
    celsius: float | None = Field(description="the temperature under load")
    warmer: Estimate | None = Field(description="how many degrees it is warmer than the other nodes")
    warmer_chance: float | None = Field(description="the corrected p-value of its being hotter by `hotter_by`")
    blocks: int = Field(description="the blocks that it measured")
    planned: int = Field(description="the blocks that were planned for it")
    throttled: int = Field(description="those in which its device was held back")
    drivers: tuple[str, ...] = Field(description="the drivers that its runs saw")
    dates: tuple[str, ...] = Field(description="the first and the last day of its runs")


class SpreadOfNodes(AnswerPart):
    """The spread of a setting's rate between nodes and within one."""

    cell: str | None = Field(description="the setting's name in files; null for all settings together")
    label: str = Field(description="the setting in words")
    between: Estimate = Field(description="the relative standard deviation between nodes")
    within: Estimate = Field(description="that from block to block of one node")


class FleetAnswer(Answer):
    """`accelsweep fleet --json`: the nodes, worst first."""

    kind: ClassVar[str] = "fleet"

    sweep: str = Field(description="the sweep's name")
    headline: str = Field(description="the report's headline")
    tolerance: float = Field(description="by how much slower than the others a node may be")
    hotter_by: float = Field(description="the degrees above the others from which a node counts as hotter")
    correction: str = Field(description="the correction of each list of nodes")
    confidence: float = Field(description="the confidence of each list")
    nodes: tuple[ComparedNode, ...] = Field(description="the nodes, worst first")
    spread: tuple[SpreadOfNodes, ...] = Field(description="how much nodes differ at all")
    sick: tuple[str, ...] = Field(description="the sick nodes by name; then the exit code is 3")
    report: str = Field(description="the path of the page")

    @classmethod
    def of(cls, findings: Findings, report: Path) -> FleetAnswer:
        """Return the answer that these findings of a fleet give."""
        fleet, headline = findings.fleet, findings.recommendation.headline
        return cls.made_of(fleet, sweep=findings.sweep, headline=headline, report=str(report))
