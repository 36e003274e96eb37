"""The claims of an experiment, under `report.claims`. They steer the report only and change nothing measured."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import AfterValidator, BaseModel, Field, field_validator, model_validator

from accelsweep.devices.datasheets import datasheet
from accelsweep.errors import InputError, nearest
from accelsweep.features.imports.model import ExternalResults, ExternalRow, Quoted
from accelsweep.features.imports.readers import kept
from accelsweep.json_documents import Frozen, NonEmpty
from accelsweep.records.estimates import Estimate, Range
from accelsweep.records.findings import Findings, Section
from accelsweep.records.run_record import Doubt, Outcome
from accelsweep.significant_digits import count_of

# The expression of a claim's figure: metrics and numbers, joined by `*` and `/`.

NUMBER = r"(\d+(?:\.\d*)?(?:e[+-]?\d+)?)"
"""A positive number as a pattern, with one group."""

_FACTOR = re.compile(rf"\s*(?:([A-Za-z_][\w.]*)|{NUMBER})\s*")


class Factor(NamedTuple):
    """One factor of an expression: the name of a metric or a number, and the exponent 1 or -1."""

    of: str | float
    exponent: int


def factors(expression: str) -> tuple[Factor, ...]:
    """Return the factors of `samples_per_second`, `window_samples / energy_joules`, `1e6 / samples_per_second`, ...

    Raises ValueError for anything but metrics and positive numbers joined by `*` and `/`.
    """
    return tuple(_factors(expression))


def _factors(expression: str) -> Iterator[Factor]:
    exponent = 1
    for part in re.split(r"([*/])", expression):
        if part in ("*", "/"):
            exponent = 1 if part == "*" else -1
            continue
        match = _FACTOR.fullmatch(part)
        if match is None or (match[2] and not float(match[2])):
            raise ValueError(f"{expression!r} is not understood; write metrics and numbers joined by * and /")
        yield Factor(match[1] or float(match[2]), exponent)


# The values that agree with a claim, and whether a measured interval lies within them.

VALUE_TOLERANCE = 0.1
"""The relative distance from a claimed value within which a measured one still agrees with it."""

BOUND_MARGIN = 0.02
"""The share by which a value must exceed the bound of `more than`, or may miss that of `at least`."""

_BOUND = re.compile(rf"(at least|more than|at most|less than) {NUMBER}")

_RANGE = re.compile(rf"{NUMBER} to {NUMBER}")


class ClaimVerdict(StrEnum):
    """Whether a measured value's interval agrees with a claim. A claim that cannot be tested is never dropped."""

    agrees = "agrees"
    more = "more than claimed"
    less = "less than claimed"
    undecided = "undecided"
    disturbed = "disturbed"
    measured = "measured, no figure claimed"
    not_run = "not run"
    not_testable = "not testable here"


class Bounds(NamedTuple):
    """The values that agree with a claim; None is no bound."""

    lowest: float | None = None
    highest: float | None = None


def bounds(claimed: float | str, tolerance: float | None = None) -> Bounds:
    """Return the bounds for `13.76`, `5.3 to 6.7`, `at least 3`, `more than 1`, `at most 2`, `less than 1`.

    A value and a range allow for `tolerance` (default `VALUE_TOLERANCE`) on both sides. An inclusive bound (`at least`)
    allows for it too (default `BOUND_MARGIN`); an exclusive one (`more than`) must be exceeded by as much. Raises
    ValueError for other words.
    """
    if isinstance(claimed, str) and (match := _BOUND.fullmatch(claimed.strip())):
        words, bound, slack = match[1], float(match[2]), 1.0 + (tolerance or BOUND_MARGIN)
        outwards = {"at least": 1 / slack, "more than": slack, "at most": slack, "less than": 1 / slack}
        value = bound * outwards[words]
        return Bounds(lowest=value) if words in ("at least", "more than") else Bounds(highest=value)
    match = _RANGE.fullmatch(claimed.strip()) if isinstance(claimed, str) else None
    low, high = (float(match[1]), float(match[2])) if match else (float(claimed), float(claimed))
    if not 0 < low <= high or not math.isfinite(high):
        raise ValueError("must be more than 0, finite, and a range must begin with its lower end")
    slack = 1.0 + (tolerance or VALUE_TOLERANCE)
    return Bounds(low / slack, high * slack)


def decide(low: float | None, high: float | None, agreeing: Bounds) -> ClaimVerdict:
    """Return the interval's verdict: wholly within the agreeing values, wholly above, wholly below, or undecided."""
    if low is None or high is None:
        return ClaimVerdict.undecided
    if agreeing.highest is not None and low > agreeing.highest:
        return ClaimVerdict.more
    if agreeing.lowest is not None and high < agreeing.lowest:
        return ClaimVerdict.less
    above = agreeing.lowest is None or low >= agreeing.lowest
    below = agreeing.highest is None or high <= agreeing.highest
    return ClaimVerdict.agrees if above and below else ClaimVerdict.undecided


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


class ClaimsOptions(BaseModel):
    """Keys of `report`: the claims that the sweep tests."""

    claims: tuple[Claim, ...] = ()

    @field_validator("claims")
    @classmethod
    def _distinct(cls, claims: tuple[Claim, ...]) -> tuple[Claim, ...]:
        ids = [claim.id for claim in claims]
        twice = next((name for name in ids if ids.count(name) > 1), None)
        if twice is not None:
            raise ValueError(f"two claims have the id {twice!r}; each needs one of its own")
        return claims


# A claim's figure beside what was measured, with its verdict.


class ClaimFinding(Frozen):
    """One figure of a claim beside its measured value; `reason` says why there is no verdict or no interval.

    `analogue` describes the smaller experiment of this figure; None for a figure of the claim itself. `differs` are the
    known reasons why the two may differ. `cell` and `against` name the cells that were measured, `labels` gives them in
    words (empty where none were), `doubts` are those of their runs. `published` are the values of others, by their
    names. `projected` is the value where it was projected onto the board `board`: then nothing was tested. `unit` is
    that of a figure that is no ratio.
    """

    id: str
    statement: str
    source: str
    figure: str | None
    analogue: str | None
    metric: str
    claimed: str
    measured: Estimate | None
    verdict: ClaimVerdict
    reason: str
    differs: tuple[str, ...]
    cell: str | None
    against: str | None
    labels: tuple[str, ...]
    doubts: tuple[Doubt, ...] = ()
    published: dict[str, float] = Field(default_factory=dict)
    projected: Range | None = None
    board: str | None = None
    unit: str | None = None

    @property
    def verdict_words(self) -> str:
        """The verdict as prose; one on a projection begins with `projected:`."""
        if self.projected is None:
            return self.verdict.value
        return f"projected: {'no figure claimed' if self.verdict is ClaimVerdict.measured else self.verdict.value}"


# Published rows that claims name, put into the plan as numbers: a report needs no file beside the sweep.


def with_published(report: Mapping[str, Any], home: Path) -> dict[str, Any]:
    """Return the `report` options with the value of each external row that a claim names, under its name and source.

    Raises InputError where there is no such row, where there are several, and where its unit is another. Raises it too
    where a figure is projected onto a board that is not known.
    """
    claims = claims_in(report)
    if not claims:
        return dict(report)
    return {**report, "claims": [_claim(claim, home).model_dump(mode="json") for claim in claims]}


def claims_in(report: Mapping[str, Any]) -> tuple[Claim, ...]:
    """Return the claims among the `report` options of a sweep."""
    return ClaimsOptions.model_validate(report).claims


class Claims(Section):
    """The figures of all claims of a sweep, each with its verdict."""

    figures: tuple[ClaimFinding, ...]


def figures_of(findings: Findings) -> tuple[ClaimFinding, ...]:
    """Return the figures of the claims that the sweep tests."""
    claims = findings.section(Claims)
    return () if claims is None else claims.figures


def _claim(claim: Claim, home: Path) -> Claim:
    figures = tuple(_figure(claim.id, figure, home) for figure in claim.figures)
    analogue = claim.analogue
    if analogue is not None:
        own = tuple(_figure(claim.id, figure, home) for figure in analogue.figures)
        analogue = analogue.model_copy(update={"figures": own})
    return claim.model_copy(update={"figures": figures, "analogue": analogue})


def _figure(claim: str, figure: ClaimFigure, home: Path) -> ClaimFigure:
    if figure.projected is not None:
        datasheet(figure.projected)
    values: dict[str, float | Quoted] = {}
    for name, value in figure.published.items():
        if isinstance(value, Quoted):
            rows = kept(home, value.rows)
            row = _only(claim, value, rows)
            if row.unit != figure.unit:
                ours = figure.unit or "a ratio"
                raise InputError(
                    f"claim {claim!r}: {value.model} of {value.rows} is in {row.unit}, the figure in {ours}"
                )
            values[f"{name} ({rows.source}: {row.circumstances})"] = row.value
        else:
            values[name] = value
    return figure.model_copy(update={"published": values})


def _only(claim: str, quoted: Quoted, rows: ExternalResults) -> ExternalRow:
    """Return the one row with the wanted values."""
    wanted = quoted.wanted
    found = [row for row in rows.rows if all(getattr(row, name) == value for name, value in wanted.items())]
    if len(found) == 1:
        return found[0]
    words = ", ".join(f"{name}={value}" for name, value in wanted.items())
    if found:
        first = "; ".join(row.circumstances for row in found[:3])
        raise InputError(
            f"claim {claim!r}: {count_of(len(found), 'row')} of {quoted.rows} have {words}, such as {first}"
        )
    models = sorted({row.model for row in rows.rows})
    hint = "" if quoted.model in models else nearest(quoted.model, models)
    raise InputError(f"claim {claim!r}: no row of {quoted.rows} has {words}{hint}")


def merged(reports: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the claims of several sweeps' `report` options as one list: of claims with one id the first."""
    stated: dict[str, Claim] = {}
    for claim in (claim for report in reports for claim in claims_in(report)):
        stated.setdefault(claim.id, claim)
    return {"claims": [claim.model_dump(mode="json") for claim in stated.values()]} if stated else {}
