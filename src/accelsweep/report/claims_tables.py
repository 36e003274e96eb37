"""The tables of claims: claimed, measured here, verdict; reasons for differences; and published values beside ours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from accelsweep.core.claims.claims import OUTCOME
from accelsweep.core.claims.verdicts import ClaimVerdict
from accelsweep.core.findings.judged import ClaimFinding
from accelsweep.records.estimates import two_digits
from accelsweep.report import units as fmt
from accelsweep.report.table_model import Column, Entry, ReportTable

_TONES = {
    ClaimVerdict.agrees: "same",
    ClaimVerdict.measured: "",
    ClaimVerdict.not_testable: "absent",
    ClaimVerdict.not_run: "absent",
}

_SHORT = {ClaimVerdict.measured: "measured"}
"""A verdict whose other words stand in the row already."""


def claims_table(claims: Sequence[ClaimFinding], confidence: float) -> ReportTable:
    """Return a row for each figure of each claim, its analogues after it, in the order in which they were stated."""
    titles = ("Claim", "Claimed", "Measured here", "Verdict", "Doubts")
    return ReportTable(
        name="claims",
        title="Claims",
        caption="Figures that others state, beside the same figures measured here. The intervals of a sweep's claims "
        f"hold together at {fmt.share(confidence)}. A claim agrees if the whole interval lies within the claimed range."
        " An analogue is a smaller experiment of the same kind, for machines that cannot test the claim. Its verdict "
        "says nothing about the claim itself.",
        columns=tuple(Column(title, title == "Measured here") for title in titles),
        rows=tuple(_row(claim) for claim in claims),
        data=[_data(claim) for claim in claims],
        empty="The experiment states no claim.",
    )


def _row(claim: ClaimFinding) -> tuple[Entry, ...]:
    measured = claim.measured or claim.projected
    words = fmt.ABSENT if measured is None else value_words(claim)
    verdict = _SHORT.get(claim.verdict, claim.verdict.value) if claim.projected is None else claim.verdict_words
    return (
        _statement(claim),
        Entry(claim.claimed),
        Entry(
            words,
            ", over ".join(" against ".join(pair) for pair in (claim.labels[:2], claim.labels[2:]) if pair),
            tone="projected" if claim.projected else "" if measured else "absent",
            order=measured.value if measured else None,
        ),
        Entry(f"analogue: {verdict}" if claim.analogue else verdict, claim.reason, _tone(claim)),
        Entry(_doubts(claim) or "none", tone="doubt" if claim.doubts else "absent"),
    )


def reasons_table(claims: Sequence[ClaimFinding]) -> ReportTable:
    """Return a row for each claim, whatever its verdict: its source, and why it may come out differently."""
    own = {claim.id: claim for claim in reversed(claims) if not claim.analogue}
    shown = [own[name] for name in dict.fromkeys(claim.id for claim in claims if claim.id in own)]
    return ReportTable(
        name="reasons",
        title="Why they may differ",
        caption="Reasons why a claim may come out differently here, stated before anything was measured.",
        columns=(Column("Claim"), Column("Source"), Column("Why they may differ")),
        rows=tuple(
            (
                Entry(claim.id),
                Entry(claim.source),
                Entry("; ".join(claim.differs) or "no reason is known"),
            )
            for claim in shown
        ),
        data=[{"id": claim.id, "source": claim.source, "differs": "; ".join(claim.differs)} for claim in shown],
        empty="The experiment states no claim.",
    )


def _tone(claim: ClaimFinding) -> str:
    return "projected" if claim.projected else _TONES.get(claim.verdict, "undecided")


def _doubts(claim: ClaimFinding) -> str:
    return ", ".join(dict.fromkeys(doubt.code for doubt in claim.doubts))


def _statement(claim: ClaimFinding) -> Entry:
    """Return the statement, or the analogue's description, with the claim's name; the figure's name follows, if any."""
    figure = f": {claim.figure}" if claim.figure else ""
    if claim.analogue:
        return Entry(f"{claim.id}, analogue{figure}", claim.analogue, tone="absent")
    return Entry(f"{claim.statement}{figure}", claim.id)


def value_words(claim: ClaimFinding) -> str:
    """Return the value with its interval: `2.1x [2.0, 2.2]`, `34 ms [33, 35]`, `projected onto l4: about 2.1x, ...`."""
    if claim.projected is not None:
        one, unit = claim.projected, "x" if claim.unit is None else f" {claim.unit}"
        low, high = two_digits(one.low), two_digits(one.high)
        return f"projected onto {claim.board}: about {two_digits(one.value)}{unit}, {low} to {high}"
    if claim.against:
        return fmt.ratio_text(claim.measured)
    words = fmt.counted_text if claim.metric.startswith(OUTCOME) else fmt.estimate_text
    return words(claim.measured, claim.reason)


def in_one_line(claim: ClaimFinding) -> str:
    """Return a figure as a sentence: `vgg16, rate of a GPU: claimed more than 1x, not testable here (no GPU)`."""
    name = ", ".join(part for part in (claim.id, "analogue" if claim.analogue else "", claim.figure or "") if part)
    here = f"measured {value_words(claim)}, " if claim.measured else ""
    here = f"{value_words(claim)}, " if claim.projected else here
    verdict = claim.verdict_words if claim.projected else _SHORT.get(claim.verdict, claim.verdict.value)
    why = f" ({claim.reason})" if claim.reason else ""
    doubts = f"; doubts: {_doubts(claim)}" if claim.doubts else ""
    return f"{name}: claimed {claim.claimed}, {here}{verdict}{why}{doubts}"


def _data(claim: ClaimFinding) -> dict[str, Any]:
    plain = claim.model_dump(
        mode="json", exclude={"measured", "labels", "published", "differs", "doubts", "projected", "verdict"}
    )
    value = {f"measured.{key}": getattr(claim.measured, key, None) for key in ("value", "low", "high", "unit")}
    value |= {f"projected.{key}": getattr(claim.projected, key, None) for key in ("value", "low", "high")}
    plain["verdict"] = claim.verdict_words
    return {**plain, "differs": "; ".join(claim.differs), **value, "doubts": _doubts(claim)}


def published_table(claims: Sequence[ClaimFinding]) -> ReportTable:
    """Return others' published values of a figure, a column each, beside the value measured here."""
    shown = [claim for claim in claims if claim.published]
    names = list(dict.fromkeys(name for claim in shown for name in claim.published))
    return ReportTable(
        name="published",
        title="Published figures",
        caption="Published figures beside ours, in the same units. Sources: "
        + "; ".join(dict.fromkeys(claim.source for claim in shown))
        + ".",
        columns=(Column("Figure"), *(Column(name, numeric=True) for name in names), Column("Here", numeric=True)),
        rows=tuple(_published_row(claim, names) for claim in shown),
        data=[_published_data(claim, names) for claim in shown],
        empty="No published figure stands beside ours.",
    )


def _published_row(claim: ClaimFinding, names: Sequence[str]) -> tuple[Entry, ...]:
    unit = claim.claimed.rpartition(" ")[2]
    values = [claim.published.get(name) for name in names]
    here = Entry(fmt.ABSENT, claim.reason, tone="absent")
    if claim.measured is not None:
        here = Entry(value_words(claim), claim.labels[0], order=claim.measured.value)
    return (
        Entry(claim.figure or claim.statement, f"{claim.id}, {unit}"),
        *(Entry("-" if value is None else f"{value:g}", order=value) for value in values),
        here,
    )


def _published_data(claim: ClaimFinding, names: Sequence[str]) -> dict[str, Any]:
    ours = {f"here.{key}": getattr(claim.measured, key, None) for key in ("value", "low", "high", "unit")}
    first = {"id": claim.id, "figure": claim.figure, "analogue": claim.analogue, "source": claim.source}
    return {**first, **{name: claim.published.get(name) for name in names}, **ours}
