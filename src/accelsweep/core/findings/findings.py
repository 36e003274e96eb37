"""Findings: every number that a reader sees, rounded once, with its interval, its verdict and its doubts.

The report and MLflow's aggregates only format these numbers. `None` always comes with a reason beside it.
"""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import Field

from accelsweep.base.documents import Document, Frozen
from accelsweep.core.findings.choices import Recommendation
from accelsweep.core.findings.fleet import FleetFinding
from accelsweep.core.findings.judged import ClaimFinding
from accelsweep.core.findings.measured import CellFinding, Hardware
from accelsweep.core.findings.projections import Elsewhere
from accelsweep.core.findings.series import BatchCurve, Rung, ScalingLaw, ScalingPoint
from accelsweep.core.planned.plans import Excluded
from accelsweep.core.planned.prices import PriceUsed
from accelsweep.core.recorded.external import RowBeside
from accelsweep.core.recorded.outcome import Outcome
from accelsweep.core.recorded.profiles import ProfileFinding
from accelsweep.core.recorded.record import Doubt


class Origin(Frozen):
    """The origin of the numbers, for one glance; several values of one fact stand side by side.

    `model` and `data` are names of classes, `commits` short ones of the user's repository (empty without one).
    `changed` says whether it had local changes, None where that is not known. `threads` are usable ones of a machine,
    `memory_bytes` is its memory. `dates` are the first and the last day of a measurement, in UTC.
    """

    model: tuple[str, ...] = ()
    data: tuple[str, ...] = ()
    threads: tuple[int, ...] = ()
    memory_bytes: tuple[int, ...] = ()
    commits: tuple[str, ...] = ()
    changed: bool | None = None
    dates: tuple[str, ...] = ()


class Findings(Document):
    """All numbers of one sweep's report.

    `rate_metric` names the metric that cells are compared by, `rate_unit` its unit. `family` is the number of ratios
    whose intervals hold together. `pareto` names the cells that no other beats in all of `pareto_objectives`.
    `costs_note` says why there are no costs, None where there are some. `prices` are those that the costs were computed
    with, `cost_gaps` says which costs no record of this sweep can give. `merged` names the sweeps that these findings
    were made of, where there are several; runs are then named SWEEP/RUN. `looks` are the numbers of blocks after which
    verdicts decided about more of them, empty where the number was fixed. `elsewhere` holds
    projections, which are no findings; None where there is nothing to project. `external` are rows of others beside
    merged sweeps, which are no findings either. `laws` are those of the scaling series with enough numbers of devices.
    `profiles` stand beside the measured numbers and are none of them; those that cannot be used are named. `fleet` has
    the nodes of a sweep that compares nodes.
    """

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
    excluded: tuple[Excluded, ...]
    refusals: tuple[str, ...]
    doubts: tuple[Doubt, ...]
    scaling: tuple[ScalingPoint, ...]
    recommendation: Recommendation
    environment: dict[str, str]
    records_sha256: str
    pareto: tuple[str, ...] = ()
    pareto_objectives: tuple[str, ...] = ()
    batch_curves: tuple[BatchCurve, ...] = ()
    costs_note: str | None = None
    cost_gaps: tuple[str, ...] = ()
    prices: tuple[PriceUsed, ...] = ()
    merged: tuple[str, ...] = ()
    rate_metric: str = "samples_per_second"
    rate_unit: str = "1/s"
    claims: tuple[ClaimFinding, ...] = ()
    ladder: tuple[Rung, ...] = ()
    origin: Origin = Field(default_factory=Origin)
    looks: tuple[int, ...] = ()
    elsewhere: Elsewhere | None = None
    external: tuple[RowBeside, ...] = ()
    laws: tuple[ScalingLaw, ...] = ()
    profiles: tuple[ProfileFinding, ...] = ()
    profiles_left_out: tuple[str, ...] = ()
    fleet: FleetFinding | None = None

    def body(self) -> dict[str, Any]:
        """Return the contents as plain data; those of a fixed number of blocks are what they always were."""
        names = ("looks", "external", "laws", "profiles", "profiles_left_out", "fleet")
        late = {name for name in names if not getattr(self, name)}
        return self.model_dump(mode="json", exclude=late or None)
