"""The claims of an experiment, under `report.claims`. They steer the report only and change nothing measured."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, Field, field_validator, model_validator

from accelsweep.core.claims.expressions import factors
from accelsweep.core.claims.verdicts import bounds
from accelsweep.core.recorded.external import Quoted
from accelsweep.json_documents import Frozen, NonEmpty
from accelsweep.records.run_record import Outcome

GROUP = "claims"
"""The experiments that test claims, and what one command over all of them writes below `sweeps/` and `reports/`."""

OUTCOME = "outcome."
"""The beginning of a metric that is the share of the runs with an outcome."""
Selection = Annotated[dict[str, Any], Field(min_length=1)]


def _claimed(value: float | str | None) -> float | str | None:
    try:
        if value is not None:
            bounds(value)
    except ValueError as error:
        hint = "write a number, `5.3 to 6.7`, `at least 3`, `more than 1`, `at most 2` or `less than 1`"
        raise ValueError(f"is no claim: {error}; {hint}") from None
    return value


def _expression(text: str) -> str:
    factors(text)
    return text


class ClaimFigure(Frozen):
    """One figure of a claim and its measurement: `metric` of `cell`, over that of `against` if there is one.

    Cells are named by values of their axes or configs. `metric` is an expression (`factors`), or the share of the runs
    with an outcome (`outcome.diverged`). `claimed` is read by `bounds`; None claims nothing, and the value is only
    measured. Where another ratio stands in `over`, the figure is this ratio over that one. A figure of a single cell
    states its `unit`. `published` are the values that others measured, by their names, or the external rows that hold
    them. They are shown beside ours. A plan holds values only.

    `mean_over` names an axis, and `sweeps` names sweeps. The figure is then the geometric mean over the axis' values,
    or over the sweeps. Its interval is one over these workloads. `projected` is the key of a board: the metric of
    `cell` is then what is projected onto that board, and no measurement. `between` names two sweeps: that of `cell`,
    and that of `against`.
    """

    name: NonEmpty | None = None
    claimed: Annotated[float | str | None, AfterValidator(_claimed)] = None
    metric: Annotated[NonEmpty, AfterValidator(_expression)] = "samples_per_second"
    cell: Selection
    against: Selection | None = None
    over: ClaimFigure | None = None
    unit: NonEmpty | None = None
    tolerance: Annotated[float | None, Field(gt=0, lt=1)] = None
    mean_over: NonEmpty | None = None
    sweeps: tuple[NonEmpty, ...] = ()
    projected: NonEmpty | None = None
    between: tuple[NonEmpty, NonEmpty] | None = Field(default=None, exclude_if=lambda names: names is None)
    published: dict[str, float | Quoted] = Field(default_factory=dict)

    @property
    def ratios(self) -> tuple[ClaimFigure, ...]:
        """The figure itself, and the one that it is `over`."""
        return (self,) if self.over is None else (self, self.over)

    @property
    def sides(self) -> tuple[Selection, ...]:
        """The values that select the cell, and those that select the other cell of a ratio."""
        return (self.cell,) if self.against is None else (self.cell, self.against)

    @property
    def metrics(self) -> tuple[str, ...]:
        """The names of the metrics in the expression."""
        return tuple(factor.of for factor in factors(self.metric) if isinstance(factor.of, str))

    @property
    def others(self) -> dict[str, float]:
        """The published values by their names."""
        return {name: value for name, value in self.published.items() if not isinstance(value, Quoted)}

    @property
    def outcome(self) -> Outcome | None:
        """The outcome in `outcome.NAME`, whose share of the runs is the figure; None for an expression of metrics."""
        name = self.metric.removeprefix(OUTCOME)
        return Outcome(name) if name != self.metric else None

    @model_validator(mode="after")
    def _shares_are_of_one_cell(self) -> ClaimFigure:
        if self.metric.startswith(OUTCOME):
            known = [outcome.value for outcome in Outcome]
            if self.metric.removeprefix(OUTCOME) not in known:
                raise ValueError(f"{self.metric!r} is no outcome; there are: {', '.join(known)}")
            if self.against is not None:
                raise ValueError("the share of an outcome is that of one setting, and may be 0: it takes no `against`")
        return self

    @property
    def wide(self) -> bool:
        """Whether the figure is over several workloads or other sweeps, or about a device that was not measured."""
        return self.mean_over is not None or bool(self.named_sweeps) or self.projected is not None

    @property
    def named_sweeps(self) -> tuple[str, ...]:
        """The names of the sweeps that the figure is over, or between."""
        return (*self.sweeps, *(self.between or ()))

    @model_validator(mode="after")
    def _goes_over_one_thing(self) -> ClaimFigure:
        if self.mean_over is not None and self.sweeps:
            raise ValueError(
                "a figure goes over the values of an axis, or over sweeps: leave out `mean_over` or `sweeps`"
            )
        if self.wide and self.metric.startswith(OUTCOME):
            raise ValueError(
                "the share of an outcome is that of one setting here: no `mean_over`, `sweeps` or `projected`"
            )
        return self

    @model_validator(mode="after")
    def _is_between_two_sides(self) -> ClaimFigure:
        if self.between is None:
            return self
        if self.against is None:
            raise ValueError("a figure `between` two sweeps is a ratio: it takes `against`")
        if self.over is not None or self.mean_over is not None or self.sweeps or self.projected is not None:
            raise ValueError("a figure `between` two sweeps takes no `over`, `mean_over`, `sweeps` or `projected`")
        return self

    @model_validator(mode="after")
    def _is_over_a_ratio(self) -> ClaimFigure:
        if self.over is not None and (self.against is None or self.over.against is None):
            raise ValueError("`over` divides a ratio by a ratio: both need `against`")
        if self.over is not None and (self.over.over is not None or self.over.claimed is not None):
            raise ValueError("the figure below `over` takes no `claimed` and no `over` of its own")
        return self

    @model_validator(mode="after")
    def _has_a_unit(self) -> ClaimFigure:
        if (self.against is None) == (self.unit is None):
            raise ValueError("a ratio has `against` and no `unit`; the value of a single setting has a `unit`")
        return self

    @property
    def words(self) -> str:
        """The claimed figure with its unit: `13.76x`, `more than 1x`, `0.024 to 0.037 s`, or `no figure`."""
        if self.claimed is None:
            return "no figure"
        value = self.claimed if isinstance(self.claimed, str) else f"{self.claimed:,.12g}"
        return f"{value}x" if self.unit is None else f"{value} {self.unit}"


Figures = Annotated[tuple[ClaimFigure, ...], Field(min_length=1)]


class Analogue(Frozen):
    """A smaller experiment of the same kind for machines that cannot test a claim. It is no verdict on the claim."""

    says: NonEmpty
    figures: Figures


class Claim(Frozen):
    """A statement, its `source`, its `figures`, and the reasons why they may come out otherwise here (`differs`)."""

    id: NonEmpty
    statement: NonEmpty
    source: NonEmpty
    figures: Figures
    differs: tuple[NonEmpty, ...] = ()
    analogue: Analogue | None = None


class ReportSettings(Frozen):
    """The `report` key of a config. `ladder` names the axis whose values are rungs, each of which adds to the last."""

    claims: tuple[Claim, ...] = ()
    ladder: NonEmpty | None = None

    @field_validator("claims")
    @classmethod
    def _distinct(cls, claims: tuple[Claim, ...]) -> tuple[Claim, ...]:
        ids = [claim.id for claim in claims]
        twice = next((name for name in ids if ids.count(name) > 1), None)
        if twice is not None:
            raise ValueError(f"two claims have the id {twice!r}; each needs one of its own")
        return claims
