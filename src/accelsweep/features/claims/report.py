"""Claims in the report: tables, a figure of published values, lines of text, and the page that covers many sweeps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import altair as alt

from accelsweep.config.sweep_options import CONFIDENCE
from accelsweep.driver.console import Tone
from accelsweep.features.claims.model import GROUP, OUTCOME, ClaimFinding, ClaimVerdict, figures_of
from accelsweep.features.projection.model import two_digits
from accelsweep.records.findings import Findings
from accelsweep.records.layout import MARKDOWN, PAGE, REPORTS_FOLDER
from accelsweep.report import formatting as fmt
from accelsweep.report.figures.axes import arrows, clipped, ratio_domain, ratio_ticks
from accelsweep.report.figures.figure import ROW_PIXELS, ROWS, Chart, DataRow, Figure, Palette, Skipped, has_values
from accelsweep.report.formatting import printable_findings
from accelsweep.report.html_page import render_static
from accelsweep.report.markdown import escape, table_text
from accelsweep.report.report_files import replace_files
from accelsweep.report.table_model import Column, Entry, ReportTable, to_csv

_TONES = {
    ClaimVerdict.agrees: "same",
    ClaimVerdict.measured: "",
    ClaimVerdict.not_testable: "absent",
    ClaimVerdict.not_run: "absent",
}

_SHORT_VERDICTS = {ClaimVerdict.measured: "measured"}
"""Short forms of verdicts, used where the row already shows the details."""


def tables(findings: Findings) -> list[ReportTable]:
    """Return the tables of the sweep's claims, if any."""
    figures = figures_of(findings)
    if not figures:
        return []
    return _tables(figures, findings.confidence)


def _tables(claims: Sequence[ClaimFinding], confidence: float) -> list[ReportTable]:
    published = [published_table(claims)] if any(claim.published for claim in claims) else []
    return [claims_table(claims, confidence), reasons_table(claims), *published]


def last_lines(findings: Findings) -> list[str]:
    """Return a line for each figure of each claim."""
    return [in_one_line(figure) for figure in figures_of(findings)]


def claims_table(claims: Sequence[ClaimFinding], confidence: float) -> ReportTable:
    """Return a row for each figure; an analogue's figures follow the claim's own."""
    titles = ("Claim", "Claimed", "Measured here", "Verdict", "Doubts")
    return ReportTable(
        name="claims",
        title="Claims",
        caption="Claimed figures next to the same figures measured here. The intervals of a sweep's claims hold "
        f"simultaneously at {fmt.share(confidence)}. A claim agrees if the whole interval is within the claimed range. "
        "An analogue is a smaller experiment for machines that cannot test the claim; its verdict says nothing about "
        "the claim itself.",
        columns=tuple(Column(title, title == "Measured here") for title in titles),
        rows=tuple(_row(claim) for claim in claims),
        data=[_data(claim) for claim in claims],
        empty="The experiment contains no claims.",
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


VERDICT_TONES = {
    ClaimVerdict.agrees: Tone.good,
    ClaimVerdict.more: Tone.bad,
    ClaimVerdict.less: Tone.bad,
    ClaimVerdict.undecided: Tone.doubtful,
    ClaimVerdict.disturbed: Tone.doubtful,
}
"""The terminal style of each verdict; untested claims are unstyled."""


NAME = "published"

COLUMNS = ("kind", "claim", "figure", "name", "value", "unit", "ratio", "low", "high", "confidence", "count")


def published_figure(findings: Findings) -> Figure | Skipped:
    """Return the published values relative to ours, or why there is nothing to draw."""
    stated = [claim for claim in figures_of(findings) if claim.published]
    if not stated:
        return Skipped(NAME, "no claim of this experiment names published values (report.claims)")
    rows = [row for place, claim in enumerate(stated) for row in _rows(place, claim)]
    if not rows:
        return Skipped(NAME, "no figure with published values was measured here")
    domain = ratio_domain(rows, 1.0)
    rows = [clipped(row, domain) for row in rows]
    drawn = len({row["key"] for row in rows})
    points = sum(row["kind"] == "published" for row in rows)
    return Figure(
        name=NAME,
        alt=f"{fmt.count(points, 'published value')} next to {fmt.count(drawn, 'value')} measured here.",
        rows=rows,
        columns=COLUMNS,
        draw=lambda palette: _draw(palette, rows, domain),
        note="" if drawn == len(stated) else f"{len(stated) - drawn} of {len(stated)} figures were not measured here.",
    )


def _rows(place: int, claim: ClaimFinding) -> Iterator[dict[str, Any]]:
    """Yield a row for our value with its interval, and one for each published value."""
    here = claim.measured
    if here is None or here.value <= 0:
        return
    label = claim.figure or claim.id
    shared = {"claim": claim.id, "figure": claim.figure, "key": f"{place} {label}", "unit": here.unit}
    yield {
        **shared,
        "kind": "here",
        "name": "measured here",
        "value": here.value,
        "ratio": 1.0,
        "low": None if here.low is None else here.low / here.value,
        "high": None if here.high is None else here.high / here.value,
        "confidence": here.confidence,
        "count": here.count,
        "words": value_text(claim),
    }
    for name, value in claim.published.items():
        if value > 0:
            none = dict.fromkeys(("low", "high", "confidence", "count"))
            ratio = {"ratio": value / here.value, "words": f"{value:g}, published, without an interval"}
            yield {**shared, **none, **ratio, "kind": "published", "name": name, "value": value}


_TOOLTIP = {"name": "whose", "figure": "figure", "words": "value"}


def _draw(palette: Palette, rows: Sequence[DataRow], domain: tuple[float, float]) -> Chart:
    keys = list(dict.fromkeys(row["key"] for row in rows))
    axis = alt.Axis(values=ratio_ticks(domain), labelExpr="format(datum.value, '~r') + 'x'")
    scale = alt.Scale(type="log", domain=list(domain), nice=False)
    x = alt.X("ratio:Q", scale=scale, axis=axis, title="relative to the value measured here")
    labels = alt.Axis(labelExpr="slice(datum.label, indexof(datum.label, ' ') + 1)")
    y = alt.Y("key:N", sort=keys, title=None, scale=alt.Scale(type="point", padding=0.5), axis=labels)
    tooltip = [alt.Tooltip(f"{key}:N", title=title) for key, title in _TOOLTIP.items()]
    base = alt.Chart(ROWS).encode(y=y, tooltip=tooltip)
    here = base.transform_filter("datum.kind == 'here'")
    interval = here.mark_rule(strokeWidth=2, color=palette.accent).encode(
        x=alt.X("from:Q", scale=scale), x2=alt.X2("to:Q")
    )
    return alt.layer(
        *([interval] if has_values(rows, "low") else []),
        *arrows(here, rows, scale),
        here.mark_point(filled=True, size=95, color=palette.accent).encode(x=x),
        base.transform_filter("datum.kind == 'published'")
        .mark_point(shape="diamond", filled=False, size=95, color=palette.muted)
        .encode(x=x),
    ).properties(height=ROW_PIXELS * len(keys), usermeta={"rows": len(keys)})


UNTESTED = (ClaimVerdict.not_testable, ClaimVerdict.not_run)

_SUMMARY_TEXT = {ClaimVerdict.measured: "without a claimed figure"}


@dataclass(frozen=True)
class Verdicts:
    """The content of the page that covers many sweeps; `why_not` maps incomplete sweeps to the reasons."""

    sweeps: tuple[Findings, ...]
    why_not: Mapping[str, str]

    @property
    def claims(self) -> tuple[ClaimFinding, ...]:
        """The figures of all claims."""
        return tuple(claim for findings in self.sweeps for claim in figures_of(findings))

    @property
    def sentence(self) -> str:
        """The number of claims and the verdicts on their figures, excluding analogues and projections."""
        own = [claim for claim in self.claims if not claim.analogue]
        projected = [claim for claim in own if claim.projected]
        counts = Counter(claim.verdict for claim in own if not claim.projected)
        tested = [verdict for verdict in ClaimVerdict if counts[verdict] and verdict not in UNTESTED]
        untested = [f"{counts[verdict]} {verdict.value}" for verdict in UNTESTED if counts[verdict]]
        only_projected = [f"{len(projected)} only projected"] if projected else []
        words = ", ".join(f"{counts[verdict]} {_SUMMARY_TEXT.get(verdict, verdict.value)}" for verdict in tested)
        here = f"{sum(counts[verdict] for verdict in tested)} tested here" + (f" ({words})" if words else "")
        return (
            f"{fmt.count(len({claim.id for claim in own}), 'claim')} with {fmt.count(len(own), 'figure')}: "
            f"{', '.join([here, *untested, *only_projected])}. "
            f"In addition, {fmt.count(len(self.claims) - len(own), 'figure')} of smaller analogues."
        )

    @property
    def waiting(self) -> tuple[str, ...]:
        """The reasons why some sweeps were not run, and the commands to run them."""
        pending = [
            one for one in self.sweeps if any(claim.verdict is ClaimVerdict.not_run for claim in figures_of(one))
        ]
        lines = [f"{figures_of(one)[0].id} was not run: {self.why_not[one.sweep]}; {one.command}" for one in pending]
        unknown = sorted(self.why_not.keys() - {one.sweep for one in self.sweeps})
        return (*lines, *(f"{sweep} has no findings: {self.why_not[sweep]}" for sweep in unknown))

    @property
    def machines(self) -> str:
        """The kinds of hardware on which claims were measured."""
        names = dict.fromkeys(hardware.name for one in self.sweeps for hardware in one.hardware)
        return " and ".join(names) or "nothing was measured"

    @property
    def tables(self) -> tuple[ReportTable, ...]:
        """The verdicts, the reasons, and published values if any claim lists them."""
        confidence = min((one.confidence for one in self.sweeps), default=CONFIDENCE)
        return tuple(_tables(self.claims, confidence))


def write_verdicts(home: Path, sweeps: Sequence[Findings], why_not: Mapping[str, str]) -> Path:
    """Write `reports/claims/` in `home` and return its page. The same findings produce the same bytes."""
    content = Verdicts(tuple(printable_findings(one) for one in sweeps), why_not)
    files = {f"{table.name}.csv": to_csv(table.data) for table in content.tables}
    files[MARKDOWN] = _markdown(content)
    files[PAGE] = render_static(Path(__file__).with_name("claims.html.j2"), content=content)
    target = home / REPORTS_FOLDER / GROUP
    replace_files(files, target)
    return target / PAGE


def _markdown(content: Verdicts) -> str:
    parts = ["# Claims put to the test", f"**{escape(content.sentence)}**", f"Measured on: {escape(content.machines)}."]
    parts += ["\n".join(f"- {escape(line)}" for line in content.waiting)] if content.waiting else []
    for table in content.tables:
        parts += [f"## {table.title}", table_text(table)]
    links = [
        f"- [{escape(figures_of(one)[0].id)}](../{one.sweep}/{MARKDOWN})" for one in content.sweeps if figures_of(one)
    ]
    return "\n\n".join([*parts, "## The sweep of each claim", "\n".join(links)]) + "\n"
