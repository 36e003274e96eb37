"""The figure of a claim's published values next to the values measured here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import altair as alt

from accelsweep.features.claims.model import ClaimFinding, figures_of, value_text
from accelsweep.records.findings import Findings
from accelsweep.report import formatting as fmt
from accelsweep.report.figures.axes import arrows, clipped, ratio_domain, ratio_ticks
from accelsweep.report.figures.figure import ROW_PIXELS, Chart, DataRow, Figure, Layer, Palette, Skipped, has_values

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
    base = Layer().encode(y=y, tooltip=tooltip)
    here = base.transform_filter("datum.kind == 'here'")
    interval = here.mark_rule(strokeWidth=2, color=palette.series[0]).encode(
        x=alt.X("from:Q", scale=scale), x2=alt.X2("to:Q")
    )
    return alt.layer(
        *([interval] if has_values(rows, "low") else []),
        *arrows(here, rows, scale),
        here.mark_point(filled=True, size=95, color=palette.series[0]).encode(x=x),
        base.transform_filter("datum.kind == 'published'")
        .mark_point(shape="diamond", filled=False, size=95, color=palette.muted)
        .encode(x=x),
    ).properties(height=ROW_PIXELS * len(keys), usermeta={"rows": len(keys)})
