"""The findings on a fleet's nodes: each beside the others, and how much nodes differ at all."""

from __future__ import annotations

from enum import StrEnum

from accelsweep.json_documents import Frozen
from accelsweep.records.estimates import Estimate


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
    """A node beside the mean of the others.

    `ratio` is its rate over theirs, and `chance` the p-value of its being slower than the tolerance allows, corrected
    by Holm's method. `celsius` is the temperature under load, `warmer` how many degrees it is above the others, and
    `warmer_chance` the corrected p-value. All are None, with a `reason`, where nothing tells. `throttled` counts the
    blocks in which the device was held back. `drivers` are those that its runs saw, and `dates` its first and last day.
    """

    node: str
    blocks: int
    planned: int
    verdict: NodeVerdict
    reason: str
    ratio: Estimate | None = None
    chance: float | None = None
    celsius: float | None = None
    warmer: Estimate | None = None
    warmer_chance: float | None = None
    hotter: bool = False
    throttled: int = 0
    held_back: bool = False
    drivers: tuple[str, ...] = ()
    dates: tuple[str, ...] = ()

    @property
    def sick(self) -> bool:
        """Whether the node is slower than it may be, or held back in most of its blocks."""
        return self.verdict is NodeVerdict.slower or self.held_back

    @property
    def faults(self) -> tuple[str, ...]:
        """The node's faults in words: those that make it sick, and heat."""
        told = (("slower", self.verdict is NodeVerdict.slower), ("throttled", self.held_back), ("hotter", self.hotter))
        return tuple(word for word, true in told if true)


class NodeSpread(Frozen):
    """The spread of a setting's rate between nodes, and from block to block of one node, as relative deviations.

    `cell` is None for all settings together. An interval is that of its own standard deviation alone.
    """

    cell: str | None
    label: str
    between: Estimate
    within: Estimate


class FleetFinding(Frozen):
    """The nodes of a sweep, worst first. `tolerance` is a share of the rate, `hotter_by` in degrees Celsius.

    `confidence` is that of each list: of nodes that are slower, and of nodes that are hotter.
    """

    nodes: tuple[FleetNode, ...]
    spread: tuple[NodeSpread, ...]
    tolerance: float
    hotter_by: float
    confidence: float
    correction: str = "Holm"

    @property
    def sick(self) -> tuple[str, ...]:
        """The names of the sick nodes."""
        return tuple(one.node for one in self.nodes if one.sick)
