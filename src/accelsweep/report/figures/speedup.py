"""The forest plot: each setting's speed-up over the baseline, with its interval and every repeat."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

from accelsweep.records.estimates import Verdict
from accelsweep.records.findings import Findings, RunPoint, SettingFinding
from accelsweep.report import formatting as fmt
from accelsweep.report.figures.axes import (
    arrows,
    clipped,
    interval_fields,
    ratio_domain,
    ratio_ticks,
    row_axis,
    tooltip,
    verdict_encodings,
)
from accelsweep.report.figures.figure import (
    MAX_ROWS,
    Chart,
    DataRow,
    Figure,
    Layer,
    Palette,
    Skipped,
    has_values,
)

FIRST_SCREEN_ROWS = 8
"""Number of lines that fit on the first screen. A checkbox on the page reveals the rest; static pictures show all."""

ROW_STEP = 24
"""Height of one line, in pixels."""

COLUMNS = ("kind", "setting", "label", "verdict", "ratio", "low", "high", "confidence", "count", "paired", "run")


def speedup_figure(findings: Findings) -> Figure | Skipped:
    """Return the forest plot, or the reason why it was not drawn."""
    compared = [
        setting for setting in findings.settings if setting.ratio is not None or setting.verdict is Verdict.baseline
    ]
    if all(setting.verdict is Verdict.baseline for setting in compared):
        return Skipped("speedup", "no setting could be compared with the baseline")
    compared.sort(key=lambda setting: -_ratio(setting))
    forest = [_row(setting, position) for position, setting in enumerate(compared)]
    others = [row for row in forest if row["verdict"] != Verdict.baseline.value]
    first = {row["key"] for row in others[: FIRST_SCREEN_ROWS - (len(forest) - len(others))]}
    for row in forest:
        row["first"] = row["key"] in first or row["verdict"] == Verdict.baseline.value
    drawn = [row for row in forest if row["shown"]]
    domain = ratio_domain(drawn, 1 / (1 + findings.threshold), 1 + findings.threshold)
    rows = [clipped(row, domain) for row in forest]
    repeats = [
        _repeat(row, point, domain) for row, setting in zip(forest, compared, strict=True) for point in setting.runs
    ]
    rows += [row for row in repeats if row["ratio"] is not None]
    rows += _unmeasured(findings)
    counts = {verdict: sum(setting.verdict is verdict for setting in compared) for verdict in Verdict}
    verdicts = ", ".join(f"{count} {verdict.value}" for verdict, count in counts.items() if count)
    return Figure(
        name="speedup",
        alt=f"Forest plot of {fmt.count(len(drawn), 'setting')}: {verdicts}.",
        rows=rows,
        columns=COLUMNS,
        draw=lambda palette: _draw(palette, rows, domain, findings.threshold),
        note=f"The {len(drawn)} fastest of {len(forest)} settings; the CSV contains all."
        if len(drawn) < len(forest)
        else "",
    )


def _ratio(setting: SettingFinding) -> float:
    """Return the speed-up; the baseline's is 1 by definition."""
    return 1.0 if setting.ratio is None else setting.ratio.value


def _row(setting: SettingFinding, position: int) -> dict[str, Any]:
    ratio = setting.ratio
    return {
        "kind": "setting",
        "setting": setting.setting,
        "label": setting.label,
        "key": f"{position} {setting.label}",
        "verdict": setting.verdict.value,
        "ratio": _ratio(setting),
        **interval_fields(ratio),
        "count": ratio.count if ratio else setting.measured,
        "paired": setting.speedup.paired if setting.speedup else None,
        "run": None,
        "shown": position < MAX_ROWS or setting.verdict is Verdict.baseline,
        "words": fmt.ratio_text(ratio) if ratio else "1x by definition",
        "rate": fmt.estimate_text(setting.rate),
    }


_NO_INTERVAL = dict.fromkeys(("low", "high", "from", "to", "under", "over", "confidence", "count", "paired"))


def _repeat(row: DataRow, point: RunPoint, domain: tuple[float, float]) -> dict[str, Any]:
    """Return a repeat's row. A repeat beyond the axis appears in the data only."""
    ratio = point.ratio
    shown = row["shown"] and ratio is not None and domain[0] <= ratio <= domain[1]
    return {
        **row,
        **_NO_INTERVAL,
        "kind": "repeat",
        "ratio": ratio,
        "run": point.run,
        "shown": shown,
        "words": f"{fmt.number(ratio, 'x')} in repeat {point.repeat}" if shown else "",
    }


def _unmeasured(findings: Findings) -> list[dict[str, Any]]:
    """Return a single row for all settings without a rate, giving the first reason."""
    without = [setting for setting in findings.settings if setting.verdict is Verdict.not_measured]
    if not without:
        return []
    reasons = list(dict.fromkeys(setting.verdict_reason for setting in without))
    more = f", and {fmt.count(len(reasons) - 1, 'other reason')}" if len(reasons) > 1 else ""
    label = f"{fmt.count(len(without), 'setting')} not measured"
    return [
        {
            "setting": None,
            **_NO_INTERVAL,
            "run": None,
            "kind": "absent",
            "label": label,
            "key": f"{len(findings.settings)} {label}",
            "words": f"{reasons[0]}{more}",
            "verdict": Verdict.not_measured.value,
            "ratio": None,
            "rate": "",
            "shown": True,
            "first": True,
        }
    ]


def _draw(palette: Palette, rows: Sequence[DataRow], domain: tuple[float, float], threshold: float) -> Chart:
    drawn = [row for row in rows if row["shown"]]
    forest = [row for row in drawn if row["kind"] == "setting"]
    keys = list(dict.fromkeys(row["key"] for row in drawn if row["kind"] != "repeat"))
    scale = alt.Scale(type="log", domain=list(domain), nice=False)
    axis = alt.Axis(values=ratio_ticks(domain), labelExpr="format(datum.value, '~r') + 'x'")
    x = alt.X("ratio:Q", scale=scale, axis=axis, title="rate relative to the baseline (dots: repeats)")
    verdict = verdict_encodings((row["verdict"] for row in forest), palette)
    encodings: dict[str, Any] = {
        "color": verdict["color"],
        "tooltip": tooltip({"label": "setting", "verdict": "verdict", "words": "speed-up", "rate": "rate"}),
    }
    y = row_axis(keys, grid=False).scale(type="point", padding=0.5)
    base = Layer().transform_filter("datum.shown").encode(y=y)
    of_kind = {kind: base.transform_filter(f"datum.kind == '{kind}'") for kind in ("setting", "repeat", "absent")}
    intervals = of_kind["setting"].mark_rule(strokeWidth=2)
    reason = of_kind["absent"].mark_text(align="left", baseline="middle", color=palette.muted, fontSize=12, limit=400)
    repeats = of_kind["repeat"].mark_circle(size=22, opacity=1, stroke=palette.page, strokeWidth=0.5, color=palette.ink)
    blank = Layer(alt.InlineData(values=[{}]))
    same = blank.mark_rect(color=palette.band, aria=False).encode(
        x=alt.XDatum(1 / (1 + threshold), type="quantitative", scale=scale), x2=alt.X2Datum(1 + threshold)
    )
    baseline = blank.mark_rule(color=palette.muted, strokeDash=[3, 3], aria=False)
    chart: Chart = alt.layer(
        same,
        baseline.encode(x=alt.XDatum(1, type="quantitative", scale=scale)),
        *(
            [reason.encode(x=alt.XValue(4), text=alt.Text("words:N"))]
            if any(row["kind"] == "absent" for row in drawn)
            else []
        ),
        *(
            [intervals.encode(x=alt.X("from:Q", scale=scale), x2=alt.X2("to:Q"), **encodings)]
            if has_values(forest, "low")
            else []
        ),
        *arrows(of_kind["setting"], forest, scale, **encodings),
        repeats.encode(x=x, tooltip=encodings["tooltip"]),
        of_kind["setting"].mark_point(filled=True, size=95).encode(x=x, shape=verdict["shape"], **encodings),
    ).properties(height=ROW_STEP * len(keys), usermeta={"step": ROW_STEP})
    return chart
