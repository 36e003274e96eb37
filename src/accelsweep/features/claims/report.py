"""Claims in a sweep's report: their tables and lines of text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from accelsweep.features.claims.model import ClaimFinding, ClaimVerdict, figures_of, value_text
from accelsweep.records.findings import Findings
from accelsweep.report import formatting as fmt
from accelsweep.report.table_model import Column, Detail, Entry, ReportTable

_TONES = {
    ClaimVerdict.agrees: "same",
    ClaimVerdict.measured: "",
    ClaimVerdict.not_testable: "absent",
    ClaimVerdict.not_run: "absent",
}

_FEW = 12
"""As many figures are always shown, even if none of them was tested: somebody asked for them."""

UNTESTED = (ClaimVerdict.not_testable, ClaimVerdict.not_run)
"""Verdicts on claims that were not tested."""

_SHORT_VERDICTS = {ClaimVerdict.measured: "measured"}
"""Short forms of verdicts, used where the row already shows the details."""


def tables(findings: Findings) -> list[ReportTable]:
    """Return the tables of the sweep's claims, if any."""
    figures = figures_of(findings)
    if not figures:
        return []
    return tables_of_claims(figures, findings.confidence)


def tables_of_claims(claims: Sequence[ClaimFinding], confidence: float) -> list[ReportTable]:
    """Return the tables of these figures: verdicts, reasons, published values if any are listed, and the untested.

    Claims that were not tested are in a folded table of their own, unless there are a few and no others. A claim was
    tested if any of its figures was, even if only that of its analogue.
    """
    names = {claim.id for claim in claims if claim.verdict not in UNTESTED and claim.projected is None}
    if not names and len(claims) <= _FEW:
        names = {claim.id for claim in claims}
    first = [claim for claim in claims if claim.id in names]
    others = [claim for claim in claims if claim not in first]
    published = [published_table([*first, *others])] if any(claim.published for claim in claims) else []
    untested = [untested_table(others)] if others else []
    reasons = [reasons_table(first)] if first else []
    return [claims_table(first, others, confidence), *reasons, *published, *untested]


def last_lines(findings: Findings) -> list[str]:
    """Return a line for each figure of each claim."""
    return [in_one_line(figure) for figure in figures_of(findings)]


_TITLES = ("Claim", "Claimed", "Measured here", "Verdict", "Doubts")


def claims_table(claims: Sequence[ClaimFinding], others: Sequence[ClaimFinding], confidence: float) -> ReportTable:
    """Return a row for each figure; an analogue's figures follow the claim's own. The data contain the others, too."""
    return ReportTable(
        name="claims",
        title="Claims",
        caption="Claimed figures next to the same figures measured here. The intervals of a sweep's claims hold "
        f"simultaneously at {fmt.share(confidence)}. A claim agrees if the whole interval is within the claimed range. "
        "An analogue is a smaller experiment for machines that cannot test the claim; its verdict says nothing about "
        "the claim itself.",
        columns=tuple(Column(title, title == "Measured here") for title in _TITLES),
        rows=tuple(_row(claim) for claim in claims),
        data=[_data(claim) for claim in (*claims, *others)],
        empty="No claim was tested here.",
    )


def untested_table(claims: Sequence[ClaimFinding]) -> ReportTable:
    """Return a row for each figure that was not tested, each of which expands to its source and its known reasons."""
    counts = Counter("only projected" if claim.projected else claim.verdict.value for claim in claims)
    figures = fmt.count(len(claims), "figure")
    return ReportTable(
        name="untested",
        title="Not tested here",
        caption="Each row expands to the claim's source and to why it may give a different result here.",
        columns=tuple(Column(title, title == "Measured here") for title in _TITLES),
        rows=tuple(_row(claim) for claim in claims),
        details=tuple(
            (Detail("Source", claim.source), *(Detail("Why it may differ", reason) for reason in claim.differs))
            for claim in claims
        ),
        data=[_data(claim) for claim in claims],
        empty="Every claim was tested.",
        summary=(f"{figures}: {', '.join(f'{count} {verdict}' for verdict, count in counts.items())}.",),
        folded=f"Show the {figures}",
    )


def _row(claim: ClaimFinding) -> tuple[Entry, ...]:
    measured = claim.measured or claim.projected
    words = fmt.ABSENT if measured is None else value_text(claim)
    verdict = _SHORT_VERDICTS.get(claim.verdict, claim.verdict.value) if claim.projected is None else claim.verdict_text
    return (
        _statement(claim),
        Entry(claim.claimed),
        Entry(
            words,
            ", over ".join(" against ".join(pair) for pair in (claim.labels[:2], claim.labels[2:]) if pair),
            tone="secondhand" if claim.projected else "" if measured else "absent",
            order=measured.value if measured else None,
        ),
        Entry(f"analogue: {verdict}" if claim.analogue else verdict, claim.reason, _tone(claim)),
        Entry(_doubts(claim) or "none", tone="doubt" if claim.doubts else "absent"),
    )


def reasons_table(claims: Sequence[ClaimFinding]) -> ReportTable:
    """Return a row for each claim, with its source and known reasons for a different result."""
    rows: dict[str, ClaimFinding] = {}
    for claim in claims:
        if not claim.analogue:
            rows.setdefault(claim.id, claim)
    return ReportTable(
        name="reasons",
        title="Why they may differ",
        caption="Reasons why a claim may give a different result here, stated before anything was measured.",
        columns=(Column("Claim"), Column("Source"), Column("Why they may differ")),
        rows=tuple(
            (Entry(claim.id), Entry(claim.source), Entry("; ".join(claim.differs) or "no reason is known"))
            for claim in rows.values()
        ),
        data=[{"id": claim.id, "source": claim.source, "differs": "; ".join(claim.differs)} for claim in rows.values()],
        empty="The experiment contains no claims.",
    )


def _tone(claim: ClaimFinding) -> str:
    return "projected" if claim.projected else _TONES.get(claim.verdict, "undecided")


def _doubts(claim: ClaimFinding) -> str:
    return ", ".join(dict.fromkeys(doubt.code for doubt in claim.doubts))


def _statement(claim: ClaimFinding) -> Entry:
    """Return the statement or the analogue's description, with the names of the claim and the figure."""
    figure = f": {claim.figure}" if claim.figure else ""
    if claim.analogue:
        return Entry(f"{claim.id}, analogue{figure}", claim.analogue, tone="absent")
    return Entry(f"{claim.statement}{figure}", claim.id)


def in_one_line(claim: ClaimFinding) -> str:
    """Format a figure as one line: `vgg16, rate of a GPU: claimed more than 1x, not testable here (no GPU)`."""
    name = ", ".join(part for part in (claim.id, "analogue" if claim.analogue else "", claim.figure or "") if part)
    here = f"measured {value_text(claim)}, " if claim.measured else ""
    here = f"{value_text(claim)}, " if claim.projected else here
    verdict = claim.verdict_text if claim.projected else _SHORT_VERDICTS.get(claim.verdict, claim.verdict.value)
    why = f" ({claim.reason})" if claim.reason else ""
    doubts = f"; doubts: {_doubts(claim)}" if claim.doubts else ""
    return f"{name}: claimed {claim.claimed}, {here}{verdict}{why}{doubts}"


def _data(claim: ClaimFinding) -> dict[str, Any]:
    plain = claim.model_dump(
        mode="json", exclude={"measured", "labels", "published", "differs", "doubts", "projected", "verdict"}
    )
    value = {f"measured.{key}": getattr(claim.measured, key, None) for key in ("value", "low", "high", "unit")}
    value |= {f"projected.{key}": getattr(claim.projected, key, None) for key in ("value", "low", "high")}
    plain["verdict"] = claim.verdict_text
    return {**plain, "differs": "; ".join(claim.differs), **value, "doubts": _doubts(claim)}


def published_table(claims: Sequence[ClaimFinding]) -> ReportTable:
    """Return each figure's published values, one column per source, and the locally measured value."""
    with_values = [claim for claim in claims if claim.published]
    names = list(dict.fromkeys(name for claim in with_values for name in claim.published))
    return ReportTable(
        name="published",
        title="Published figures",
        caption="Published figures next to ours, in the same units. Sources: "
        + "; ".join(dict.fromkeys(claim.source for claim in with_values))
        + ".",
        columns=(Column("Figure"), *(Column(name, numeric=True) for name in names), Column("Here", numeric=True)),
        rows=tuple(_published_row(claim, names) for claim in with_values),
        folded="" if any(claim.measured for claim in with_values) else "Show what others published",
        data=[_published_data(claim, names) for claim in with_values],
        empty="No claim names published figures.",
    )


def _published_row(claim: ClaimFinding, names: Sequence[str]) -> tuple[Entry, ...]:
    unit = claim.claimed.rpartition(" ")[2]
    values = [claim.published.get(name) for name in names]
    here = Entry(fmt.ABSENT, claim.reason, tone="absent")
    if claim.measured is not None:
        here = Entry(value_text(claim), claim.labels[0], order=claim.measured.value)
    return (
        Entry(claim.figure or claim.statement, f"{claim.id}, {unit}"),
        *(Entry("-" if value is None else f"{value:g}", order=value) for value in values),
        here,
    )


def _published_data(claim: ClaimFinding, names: Sequence[str]) -> dict[str, Any]:
    ours = {f"here.{key}": getattr(claim.measured, key, None) for key in ("value", "low", "high", "unit")}
    first = {"id": claim.id, "figure": claim.figure, "analogue": claim.analogue, "source": claim.source}
    return {**first, **{name: claim.published.get(name) for name in names}, **ours}
