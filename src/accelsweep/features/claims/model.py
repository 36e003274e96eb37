"""The claims of an experiment (`report.claims`) and their findings. Claims affect the report only."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import AfterValidator, BaseModel, Field, field_validator, model_validator

from accelsweep.devices.datasheets import datasheet
from accelsweep.errors import InputError, nearest
from accelsweep.features.imports.model import ExternalResults, ExternalRow, RowQuery
from accelsweep.features.imports.readers import read_external
from accelsweep.features.projection.model import Range, two_digits
from accelsweep.json_documents import Frozen, NonEmpty
from accelsweep.records.estimates import Estimate
from accelsweep.records.findings import Certainty, Findings, Recommendation, Section
from accelsweep.records.plan import Manifest
from accelsweep.report import formatting as fmt
from accelsweep.results import Doubt, Outcome
from accelsweep.significant_digits import count_of

_NUMBER = r"(\d+(?:\.\d*)?(?:e[+-]?\d+)?)"
_FACTOR = re.compile(rf"\s*(?:([A-Za-z_][\w.]*)|{_NUMBER})\s*")


class Factor(NamedTuple):
    """One factor in an expression: a metric name or a number, and the exponent 1 or -1."""

    operand: str | float
    exponent: int


def factors(expression: str) -> tuple[Factor, ...]:
    """Return the factors of an expression such as `window_samples / energy_joules` or `1e6 / samples_per_second`.

    Raises ValueError for anything other than metrics and positive numbers joined by `*` and `/`.
    """
    result, exponent = [], 1
    for part in re.split(r"([*/])", expression):
        if part in ("*", "/"):
            exponent = 1 if part == "*" else -1
            continue
        match = _FACTOR.fullmatch(part)
        if match is None or (match[2] and not float(match[2])):
            raise ValueError(f"{expression!r} is not a valid expression; use metrics and numbers joined by * and /")
        result.append(Factor(match[1] or float(match[2]), exponent))
    return tuple(result)


VALUE_TOLERANCE = 0.1
"""The default relative tolerance of a claimed value."""

BOUND_MARGIN = 0.02
"""The share by which a value must exceed the bound of `more than`, or may fall short of the bound of `at least`."""

_BOUND = re.compile(rf"(at least|more than|at most|less than) {_NUMBER}")

_RANGE = re.compile(rf"{_NUMBER} to {_NUMBER}")


class ClaimVerdict(StrEnum):
    """Whether a measured value's interval agrees with a claim. Untestable claims also receive a verdict."""

    agrees = "agrees"
    more = "more than claimed"
    less = "less than claimed"
    undecided = "undecided"
    disturbed = "disturbed"
    measured = "measured, no figure claimed"
    not_run = "not run"
    not_testable = "not testable here"


class Bounds(NamedTuple):
    """The range of values that agree with a claim; None means unbounded."""

    lowest: float | None = None
    highest: float | None = None


def agreeing_bounds(claimed: float | str, tolerance: float | None = None) -> Bounds:
    """Return the bounds for `13.76`, `5.3 to 6.7`, `at least 3`, `more than 1`, `at most 2`, `less than 1`.

    A value or range is widened by `tolerance` (default `VALUE_TOLERANCE`) on both sides, and so is an inclusive bound
    such as `at least` (default `BOUND_MARGIN`). An exclusive bound such as `more than` must be exceeded by this margin.
    Raises ValueError for any other text.
    """
    if isinstance(claimed, str) and (match := _BOUND.fullmatch(claimed.strip())):
        words, bound, slack = match[1], float(match[2]), 1.0 + (tolerance or BOUND_MARGIN)
        outwards = {"at least": 1 / slack, "more than": slack, "at most": slack, "less than": 1 / slack}
        value = bound * outwards[words]
        return Bounds(lowest=value) if words in ("at least", "more than") else Bounds(highest=value)
    match = _RANGE.fullmatch(claimed.strip()) if isinstance(claimed, str) else None
    low, high = (float(match[1]), float(match[2])) if match else (float(claimed), float(claimed))
    if not 0 < low <= high or not math.isfinite(high):
        raise ValueError("must be positive and finite, and a range must start with its lower end")
    slack = 1.0 + (tolerance or VALUE_TOLERANCE)
    return Bounds(low / slack, high * slack)


def interval_verdict(low: float | None, high: float | None, agreeing: Bounds) -> ClaimVerdict:
    """Return whether an interval is within the agreeing range, above it, below it, or overlaps one of its ends."""
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
"""The folder for experiments that test claims, and for the `accelsweep claims` output in `sweeps/` and `reports/`."""

OUTCOME = "outcome."
"""Prefix of the metrics that measure the share of runs with a given outcome, such as `outcome.diverged`."""

Selection = Annotated[dict[str, Any], Field(min_length=1)]


def _claimed(value: float | str | None) -> float | str | None:
    try:
        if value is not None:
            agreeing_bounds(value)
    except ValueError as error:
        hint = "write a number, `5.3 to 6.7`, `at least 3`, `more than 1`, `at most 2` or `less than 1`"
        raise ValueError(f"is not a valid claim: {error}; {hint}") from None
    return value


def _expression(text: str) -> str:
    factors(text)
    return text


class ClaimFigure(Frozen):
    """One figure of a claim: `metric` of `setting`, divided by that of `against` if given.

    Settings are selected by the values of their axes or config keys. `metric` is an expression (`factors`) or the share
    of runs with an outcome (`outcome.diverged`). `claimed` is parsed by `agreeing_bounds`; if None, the value is only
    measured. `over` divides this ratio by another one. A figure of a single setting has a `unit`. `published` contains
    values published by others, keyed by label, or queries for imported rows, to be shown next to ours; a plan contains
    only values.

    With `mean_over` (an axis) or `sweeps` (names), the figure is a geometric mean over the values of the axis or over
    the sweeps, with an interval over these workloads. With `projected` (a board's key), `metric` of `setting` is
    projected onto that board. `between` names two sweeps: the one for `setting` and the one for `against`.
    """

    name: NonEmpty | None = None
    claimed: Annotated[float | str | None, AfterValidator(_claimed)] = None
    metric: Annotated[NonEmpty, AfterValidator(_expression)] = "samples_per_second"
    setting: Selection
    against: Selection | None = None
    over: ClaimFigure | None = None
    unit: NonEmpty | None = None
    tolerance: Annotated[float | None, Field(gt=0, lt=1)] = None
    mean_over: NonEmpty | None = None
    sweeps: tuple[NonEmpty, ...] = ()
    projected: NonEmpty | None = None
    between: tuple[NonEmpty, NonEmpty] | None = None
    published: dict[str, float | RowQuery] = Field(default_factory=dict)

    @property
    def ratios(self) -> tuple[ClaimFigure, ...]:
        """The figure itself, and the ratio in `over`."""
        return (self,) if self.over is None else (self, self.over)

    @property
    def sides(self) -> tuple[Selection, ...]:
        """The selections for the setting and, in a ratio, for the other setting."""
        return (self.setting,) if self.against is None else (self.setting, self.against)

    @property
    def metrics(self) -> tuple[str, ...]:
        """The names of the metrics in the expression."""
        return tuple(factor.operand for factor in factors(self.metric) if isinstance(factor.operand, str))

    @property
    def published_values(self) -> dict[str, float]:
        """The published values, keyed by label."""
        return {name: value for name, value in self.published.items() if not isinstance(value, RowQuery)}

    @property
    def outcome(self) -> Outcome | None:
        """The outcome whose share the figure measures; None for an expression of metrics."""
        name = self.metric.removeprefix(OUTCOME)
        return Outcome(name) if name != self.metric else None

    @property
    def is_composite(self) -> bool:
        """Whether the figure covers several workloads or other sweeps, or is projected onto a board."""
        return self.mean_over is not None or bool(self.named_sweeps) or self.projected is not None

    @property
    def named_sweeps(self) -> tuple[str, ...]:
        """The sweeps that the figure covers or compares."""
        return (*self.sweeps, *(self.between or ()))

    @model_validator(mode="after")
    def _check_outcome(self) -> ClaimFigure:
        if not self.metric.startswith(OUTCOME):
            return self
        outcomes = [outcome.value for outcome in Outcome]
        if self.metric.removeprefix(OUTCOME) not in outcomes:
            raise ValueError(f"{self.metric!r} is not an outcome; there are: {', '.join(outcomes)}")
        if self.against is not None:
            raise ValueError("the share of an outcome belongs to one setting and may be 0: leave out `against`")
        if self.is_composite:
            raise ValueError("the share of an outcome belongs to one setting: no `mean_over`, `sweeps` or `projected`")
        return self

    @model_validator(mode="after")
    def _check_ratio(self) -> ClaimFigure:
        if self.mean_over is not None and self.sweeps:
            raise ValueError("a figure is over the values of an axis or over sweeps: leave out `mean_over` or `sweeps`")
        if self.between is not None:
            if self.against is None:
                raise ValueError("a figure `between` two sweeps is a ratio: it needs `against`")
            if self.over is not None or self.mean_over is not None or self.sweeps or self.projected is not None:
                raise ValueError("a figure `between` two sweeps excludes `over`, `mean_over`, `sweeps` and `projected`")
        if self.over is not None:
            if self.against is None or self.over.against is None:
                raise ValueError("`over` divides a ratio by a ratio: both need `against`")
            if self.over.over is not None or self.over.claimed is not None:
                raise ValueError("the figure in `over` cannot have `claimed` or another `over`")
        if (self.against is None) == (self.unit is None):
            raise ValueError("a ratio needs `against` and no `unit`; the value of a single setting needs a `unit`")
        return self

    def verdict_on(self, low: float | None, high: float | None) -> ClaimVerdict:
        """Return the verdict on an interval, or `measured` if nothing is claimed."""
        if self.claimed is None:
            return ClaimVerdict.measured
        return interval_verdict(low, high, agreeing_bounds(self.claimed, self.tolerance))

    @property
    def claimed_text(self) -> str:
        """The claimed figure with its unit: `13.76x`, `more than 1x`, `0.024 to 0.037 s`, or `no figure`."""
        if self.claimed is None:
            return "no figure"
        value = self.claimed if isinstance(self.claimed, str) else f"{self.claimed:,.12g}"
        return f"{value}x" if self.unit is None else f"{value} {self.unit}"


Figures = Annotated[tuple[ClaimFigure, ...], Field(min_length=1)]


class Analogue(Frozen):
    """A smaller experiment for machines that cannot test a claim. Its verdict does not apply to the claim."""

    says: NonEmpty
    figures: Figures


class Claim(Frozen):
    """A statement with its `source`, its `figures`, and known reasons why results may differ (`differs`)."""

    id: NonEmpty
    statement: NonEmpty
    source: NonEmpty
    figures: Figures
    differs: tuple[NonEmpty, ...] = ()
    analogue: Analogue | None = None


class ClaimsOptions(BaseModel):
    """`report.claims`: the claims that the sweep tests."""

    claims: tuple[Claim, ...] = ()

    @field_validator("claims")
    @classmethod
    def _distinct(cls, claims: tuple[Claim, ...]) -> tuple[Claim, ...]:
        ids = [claim.id for claim in claims]
        duplicate = next((name for name in ids if ids.count(name) > 1), None)
        if duplicate is not None:
            raise ValueError(f"two claims have the id {duplicate!r}; each claim needs a unique id")
        return claims


class ClaimFinding(Frozen):
    """A claim's figure with its measured value; `reason` explains why the verdict or the interval is missing.

    `analogue` describes the smaller experiment that the figure belongs to, and is None for the claim itself. `setting`
    and `against` are the IDs of the measured settings, `labels` describe them, and `doubts` are the doubts about their
    runs. `published` contains values published by others, keyed by label. `projected` is the value on the board
    `board`, in which case nothing was tested. `unit` is None for a ratio.
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
    setting: str | None
    against: str | None
    labels: tuple[str, ...]
    doubts: tuple[Doubt, ...] = ()
    published: dict[str, float] = Field(default_factory=dict)
    projected: Range | None = None
    board: str | None = None
    unit: str | None = None

    @property
    def verdict_text(self) -> str:
        """The verdict; for a projection it starts with `projected:`."""
        if self.projected is None:
            return self.verdict.value
        return f"projected: {'no figure claimed' if self.verdict is ClaimVerdict.measured else self.verdict.value}"


def value_text(claim: ClaimFinding) -> str:
    """Return the value with its interval: `2.1x [2.0, 2.2]`, `34 ms [33, 35]`, `projected onto l4: about 2.1x, ...`."""
    if claim.projected is not None:
        one, unit = claim.projected, "x" if claim.unit is None else f" {claim.unit}"
        low, high = two_digits(one.low), two_digits(one.high)
        return f"projected onto {claim.board}: about {two_digits(one.value)}{unit}, {low} to {high}"
    if claim.against:
        return fmt.ratio_text(claim.measured)
    words = fmt.counted_text if claim.metric.startswith(OUTCOME) else fmt.estimate_text
    return words(claim.measured, claim.reason)


_CERTAINTIES = {
    ClaimVerdict.disturbed: Certainty.disturbed,
    ClaimVerdict.undecided: Certainty.undecided,
    ClaimVerdict.not_run: Certainty.undecided,
}


def claims_headline(claims: Sequence[ClaimFinding]) -> tuple[str, str, Certainty]:
    """Return the answer about the claims, what was measured, and how sure that is.

    The answer is `vgg16: 2.1x as fast, claimed more than 1x: agrees`. Analogues and projections test nothing. Of
    several figures, the first one that is decided and does not agree is stated.
    """
    own = [claim for claim in claims if not claim.analogue] or list(claims)
    tested = [claim for claim in own if claim.measured is not None and claim.projected is None]
    if not tested:
        first = own[0]
        what = "was not run" if first.verdict is ClaimVerdict.not_run else "cannot be tested here"
        return f"{first.id} {what}{f': {first.reason}' if first.reason else ''}", "", Certainty.no_answer
    claimed = [claim for claim in tested if claim.verdict is not ClaimVerdict.measured]
    agreeing = [claim for claim in claimed if claim.verdict is ClaimVerdict.agrees]
    others = sorted(
        (claim for claim in claimed if claim not in agreeing), key=lambda claim: claim.verdict in _CERTAINTIES
    )
    first = (others or claimed or tested)[0]
    still_open = [claim for claim in others[1:] if claim.verdict in _CERTAINTIES]
    name = ", ".join(filter(None, (first.id, first.figure)))
    told = f"{name}: {_short_value(first)}, "
    told += f"claimed {first.claimed}: {first.verdict.value}" if claimed else "no figure claimed"
    if len(claimed) > 1:
        agree = (
            f"{len(agreeing)} of {fmt.count(len(claimed), 'claimed figure')} agree{'s' if len(agreeing) == 1 else ''}"
        )
        told = f"{agree}{f', {len(still_open)} undecided' if still_open else ''}; {told}"
    measured = f"Measured here: {value_text(first)}."
    return told, measured, _CERTAINTIES.get(first.verdict, Certainty.sure)


def _short_value(claim: ClaimFinding) -> str:
    """Return the measured value without its interval: `2.1x as fast`, `34 ms`."""
    value = value_text(claim).partition(" [")[0].partition(" (no interval")[0]
    return f"{value} as fast" if claim.against and claim.metric == "samples_per_second" else value


class Claims(Section):
    """The figures of all of a sweep's claims, each with its verdict."""

    figures: tuple[ClaimFinding, ...]

    def recommendation(self, manifest: Manifest, usual: Recommendation) -> Recommendation:  # noqa: ARG002
        """Return the recommendation, headed by what was found about the claims."""
        headline, measured, certainty = claims_headline(self.figures)
        detail = f"{measured} {usual.headline}. {usual.detail}".strip()
        changes = {"headline": headline, "certainty": certainty, "detail": detail, "sentence": f"{headline}. {detail}"}
        return usual.model_copy(update=changes)


def figures_of(findings: Findings) -> tuple[ClaimFinding, ...]:
    """Return the figures of the claims that the sweep tests."""
    claims = findings.section(Claims)
    return () if claims is None else claims.figures


def claims_in(report: Mapping[str, Any]) -> tuple[Claim, ...]:
    """Return the claims in the `report` options of a sweep."""
    return ClaimsOptions.model_validate(report).claims


def merged(reports: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the claims in several sweeps' `report` options. If IDs clash, the first claim wins."""
    claims: dict[str, Claim] = {}
    for claim in (claim for report in reports for claim in claims_in(report)):
        claims.setdefault(claim.id, claim)
    return {"claims": [claim.model_dump(mode="json") for claim in claims.values()]} if claims else {}


def with_published(report: Mapping[str, Any], home: Path) -> dict[str, Any]:
    """Return the `report` options with queries for rows replaced by the rows' values, so that a plan is self-contained.

    Raises InputError if a query matches no row, several rows or a row in a different unit, or if a board is unknown.
    """
    claims = claims_in(report)
    if not claims:
        return dict(report)
    return {**report, "claims": [_resolved_claim(claim, home).model_dump(mode="json") for claim in claims]}


def _resolved_claim(claim: Claim, home: Path) -> Claim:
    def resolve(figures: Figures) -> Figures:
        return tuple(_resolved_figure(claim.id, figure, home) for figure in figures)

    analogue = claim.analogue
    if analogue is not None:
        analogue = analogue.model_copy(update={"figures": resolve(analogue.figures)})
    return claim.model_copy(update={"figures": resolve(claim.figures), "analogue": analogue})


def _resolved_figure(claim: str, figure: ClaimFigure, home: Path) -> ClaimFigure:
    if figure.projected is not None:
        datasheet(figure.projected)  # raises InputError for an unknown board
    values: dict[str, float | RowQuery] = {}
    for label, value in figure.published.items():
        if not isinstance(value, RowQuery):
            values[label] = value
            continue
        results = read_external(home, value.rows)
        row = _matching_row(claim, value, results)
        if row.unit != figure.unit:
            unit = figure.unit or "a ratio"
            raise InputError(f"claim {claim!r}: {value.model} of {value.rows} is in {row.unit}, the figure in {unit}")
        values[f"{label} ({results.source}: {row.circumstances})"] = row.value
    return figure.model_copy(update={"published": values})


def _matching_row(claim: str, query: RowQuery, results: ExternalResults) -> ExternalRow:
    rows = [row for row in results.rows if all(getattr(row, name) == value for name, value in query.wanted.items())]
    if len(rows) == 1:
        return rows[0]
    wanted = ", ".join(f"{name}={value}" for name, value in query.wanted.items())
    if rows:
        first = "; ".join(row.circumstances for row in rows[:3])
        raise InputError(
            f"claim {claim!r}: {count_of(len(rows), 'row')} of {query.rows} have {wanted}, such as {first}"
        )
    models = sorted({row.model for row in results.rows})
    hint = "" if query.model in models else nearest(query.model, models)
    raise InputError(f"claim {claim!r}: no row of {query.rows} has {wanted}{hint}")
