"""Findings: every number that a reader sees, rounded once, with its interval, its verdict and its doubts.

The report and MLflow's aggregates only format what stands here. `None` always comes with a reason beside it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, ClassVar

from accelsweep.core.documents import Document, Frozen
from accelsweep.core.outcome import Outcome
from accelsweep.core.record import Doubt


class Verdict(StrEnum):
    """What the interval of a ratio supports, given the practical threshold. `undecided` is an honest answer."""

    faster = "faster"
    slower = "slower"
    same = "same"
    undecided = "undecided"
    baseline = "baseline"
    refused = "refused"
    not_measured = "not measured"


class Estimate(Frozen):
    """A value with its interval; `low` and `high` are None, with a `reason`, where no interval can be had.

    `confidence` is the confidence of this interval, after any widening for the family it belongs to.
    """

    value: float
    low: float | None
    high: float | None
    unit: str
    confidence: float
    count: int
    reason: str | None = None


class Speedup(Frozen):
    """The ratio of a cell's rate to the baseline's. `paired` says whether both were measured in the same blocks."""

    ratio: Estimate
    paired: bool


class Summary(Frozen):
    """A metric over a cell's repeats: the median and the range, or the reason why there is none."""

    median: float | None
    minimum: float | None
    maximum: float | None
    count: int
    unit: str
    reason: str | None = None
    scope: str | None = None
    provenance: str | None = None


class RunPoint(Frozen):
    """One planned run as figures show it. `samples_per_second` is None unless the run was measured."""

    run: str
    repeat: int
    block: str
    position: int | None
    outcome: Outcome
    reason: str | None
    samples_per_second: float | None
    quality: float | None
    started_at: str | None
    doubts: tuple[Doubt, ...] = ()


class CellFinding(Frozen):
    """All that is known of one cell. `hardware` names the group of machines that it was measured on."""

    cell: str
    label: str
    axes: dict[str, Any]
    hardware: str | None
    planned: int
    measured: int
    outcomes: dict[Outcome, int]
    reasons: tuple[str, ...]
    samples_per_second: Estimate | None
    speedup: Speedup | None
    verdict: Verdict
    verdict_reason: str
    quality: Estimate | None
    quality_verdict: str
    metrics: dict[str, Summary]
    effective: dict[str, Any]
    doubts: tuple[Doubt, ...]
    runs: tuple[RunPoint, ...]


class Hardware(Frozen):
    """One group of equal machines."""

    name: str
    details: dict[str, str]


class Choice(Frozen):
    """A cell worth choosing, why, and how it compares, in words whose numbers stand in the cell's finding."""

    cell: str
    title: str
    sentence: str


class Recommendation(Frozen):
    """What to do. `settle` is the command that would settle what is still open, or None when nothing is."""

    choice: Choice | None
    sentence: str
    alternatives: tuple[Choice, ...]
    settle: str | None


class ScalingPoint(Frozen):
    """A cell against the same cell on the fewest devices: `efficiency` is the speed-up over the device ratio."""

    series: str
    kind: str
    cell: str
    devices: int
    speedup: Estimate
    efficiency: Estimate


class Findings(Document):
    """All numbers of one sweep's report."""

    kind: ClassVar[str] = "findings"

    sweep: str
    revision: int
    experiment: str | None
    overrides: tuple[str, ...]
    command: str
    axes: tuple[str, ...]
    baseline: str | None
    threshold: float
    confidence: float
    family: int
    quality_metric: str | None
    quality_better: str | None
    repeats: int
    planned_runs: int
    outcomes: dict[Outcome, int]
    smallest_visible_effect: float | None
    hardware: tuple[Hardware, ...]
    cells: tuple[CellFinding, ...]
    excluded: tuple[dict[str, Any], ...]
    refusals: tuple[str, ...]
    doubts: tuple[Doubt, ...]
    scaling: tuple[ScalingPoint, ...]
    recommendation: Recommendation
    environment: dict[str, str]
    records_sha256: str
