"""Projections as a table of their own: no cell of it can be taken for a measured one.

A measured number stands with its interval in brackets. A projected one says `about`, its ends stand behind `to`, and it
has two digits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

from accelsweep.features.projection.model import Elsewhere, Projected, Room, Unseen
from accelsweep.records.estimates import Range, two_digits
from accelsweep.records.findings import Findings
from accelsweep.report import units as fmt
from accelsweep.report.figures.figure import ROW_PIXELS, ROWS, Chart, DataRow, Figure, Palette, Skipped
from accelsweep.report.table_model import Column, Entry, More, ReportTable

ELSEWHERE = "elsewhere"

TITLE = "Elsewhere (projected, not measured)"

ELSEWHERE_TITLES = (
    "Device",
    "Projected samples/s",
    "Over this machine",
    "USD per million samples",
    "Energy per sample, at most",
    "Memory",
    "Limit",
)

NOT_SAID = Entry("-", tone="absent")


def tables(findings: Findings) -> list[ReportTable]:
    """Return the table of projections, where something was projected or there is a reason why nothing was."""
    found = findings.section(Elsewhere)
    return [] if found is None else [elsewhere_table(found)]


def elsewhere_table(found: Elsewhere) -> ReportTable:
    """Return one row per device and form, or the reason why there is none."""
    return ReportTable(
        name=ELSEWHERE,
        title=TITLE,
        caption=" ".join(sentences(found)),
        columns=tuple(Column(title, title in ELSEWHERE_TITLES[1:5]) for title in ELSEWHERE_TITLES),
        rows=tuple(elsewhere_entries(one) for one in found.devices),
        more=tuple(_more(one) for one in found.devices),
        data=[_data(one, found) for one in found.devices],
        empty=fmt.sentence((found.reason or "not projected: no device was named").capitalize()),
    )


def sentences(found: Elsewhere) -> list[str]:
    """Return what must be read before the numbers: what they are, of what, and how wrong they were."""
    if found.reason is not None:
        return []
    what = f"{found.label}, with batches of {found.batch}"
    return [
        f"Nobody measured these numbers. They are projected from published rates of other networks, for {what}.",
        f"Measured here, on {found.here}: {fmt.number(found.rate_here, '1/s')}.",
        *(["Others used the machine meanwhile, so there is no ratio to this rate."] if found.disturbed else []),
        *map(_how_wrong, found.unseen),
        "The published rates have no torch.compile and no channels_last.",
        "Energy is bounded by the board's power limit.",
    ]


def _how_wrong(unseen: Unseen) -> str:
    form = unseen.form[:1].upper() + unseen.form[1:]
    return (
        f"{form}: {unseen.count:,} rates of {unseen.networks:,} networks on {unseen.devices} devices were published. "
        "Where the fit had not seen the device, half of its projections were off by more than "
        f"{unseen.median_error:.0%}, and {unseen.coverage:.0%} of its 90 % intervals held."
    )


def about(value: Range | None) -> str:
    """Return `about 2,800, 1,900 to 4,100`, the words of a projection."""
    return "-" if value is None else value.words


def times(value: Range | None) -> str:
    """Return `about 12x, 8.1x to 18x`."""
    return "-" if value is None else f"about {value.value:g}x, {value.low:g}x to {value.high:g}x"


def elsewhere_entries(one: Projected) -> tuple[Entry, ...]:
    """Return a device's row."""
    device = Entry(one.name, one.form)
    if one.rate is None:
        return (device, Entry("not projected", one.reason or "", tone="failed"), *[NOT_SAID] * 5)
    return (
        device,
        Entry(about(one.rate), tone="projected", order=one.rate.value),
        Entry(times(one.ratio), tone="projected", order=one.ratio.value if one.ratio else None),
        _money(one),
        _energy(one),
        Entry(one.room.value, tone="failed" if one.room is Room.too_large else ""),
        Entry(one.limit),
    )


def _more(one: Projected) -> tuple[More, ...]:
    """Return what weakens a projection, and where its device's figures come from."""
    notes = [More("Note", note) for note in one.notes] + [More("By the month", words) for words in one.monthly]
    return (*notes, More("Datasheet", one.source)) if one.source else tuple(notes)


def _money(one: Projected) -> Entry:
    if one.usd_per_million_samples is None:
        return Entry("no price", tone="absent")
    words = f"at {one.usd_per_hour:g} USD/h" + (f"; {one.cheaper}" if one.cheaper else "")
    if one.usd_per_epoch is not None:
        words += f"; {about(one.usd_per_epoch)} USD an epoch"
    value = one.usd_per_million_samples
    return Entry(about(value), words, tone="projected", order=value.value)


def _energy(one: Projected) -> Entry:
    if one.joules_per_sample_at_most is None:
        return NOT_SAID
    return Entry(
        f"{two_digits(one.joules_per_sample_at_most)} J", tone="projected", order=one.joules_per_sample_at_most
    )


def _data(one: Projected, found: Elsewhere) -> dict[str, Any]:
    """Return a row of the CSV, whose columns all say that they are projected."""
    data: dict[str, Any] = {"device": one.device, "name": one.name, "form": one.form, "cell": found.cell}
    data |= {"batch": found.batch, "not_projected": one.reason}
    for name in ("rate", "ratio", "usd_per_million_samples", "usd_per_epoch"):
        value: Range | None = getattr(one, name)
        for end in ("value", "low", "high"):
            data[f"projected_{name}.{end}"] = None if value is None else getattr(value, end)
    data["projected_joules_per_sample_at_most"] = one.joules_per_sample_at_most
    return data | {
        "memory": one.room.value,
        "limit": one.limit,
        "usd_per_hour": one.usd_per_hour,
        "break_even": one.cheaper,
        "break_even_by_month": "; ".join(one.monthly),
        "notes": "; ".join(one.notes),
        "datasheet": one.source,
    }


# The projections: rates on devices that were not measured, as dashed bars, never as marks of measurements.

COLUMNS = ("device", "form", "projected_rate", "projected_low", "projected_high", "measured_here")


def elsewhere_figure(findings: Findings) -> Figure | Skipped:
    """Return the projected rates with their intervals, or why there is nothing to draw."""
    found = findings.section(Elsewhere)
    if found is None or found.reason is not None:
        return Skipped(ELSEWHERE, (found and found.reason) or "there is nothing to project")
    rows = [_row(one, found.rate_here) for one in found.devices if one.rate is not None]
    if not rows:
        return Skipped(ELSEWHERE, "no device could be projected; the table has the reasons")
    words = "; ".join(f"{row['line']} {row['words']}" for row in rows)
    return Figure(
        name=ELSEWHERE,
        alt=f"Projected, not measured: {words}.",
        rows=rows,
        columns=COLUMNS,
        draw=lambda palette: _draw(palette, rows, found.rate_here),
    )


def _row(one: Projected, here: float | None) -> dict[str, Any]:
    assert one.rate is not None, "only projections are drawn"
    return {
        "device": one.name,
        "form": one.form,
        "line": f"{one.name}, {one.form.partition(' (')[0]}",
        "projected_rate": one.rate.value,
        "projected_low": one.rate.low,
        "projected_high": one.rate.high,
        "measured_here": here,
        "words": f"{about(one.rate)} samples/s",
        "over": times(one.ratio),
    }


def _draw(palette: Palette, rows: Sequence[DataRow], here: float | None) -> Chart:
    lines = [row["line"] for row in rows]
    axis = alt.Axis(labelExpr="format(datum.value, '~s')", tickCount=6)
    scale = alt.Scale(type="log", nice=False)
    title = "projected samples per second, with 90 % intervals"
    x = alt.X("projected_low:Q", scale=scale, axis=axis, title=title)
    y = alt.Y("line:N", sort=lines, title=None, scale=alt.Scale(type="band", padding=0.4, domain=lines))
    tooltip = [alt.Tooltip(f"{key}:N", title=name) for key, name in _TOOLTIP.items()]
    base = alt.Chart(ROWS).encode(y=y, tooltip=tooltip)
    layers: list[Any] = [
        base.mark_bar(stroke=palette.muted, strokeDash=[4, 3], fill=palette.band, height=12).encode(
            x=x, x2=alt.X2("projected_high:Q")
        ),
        base.mark_tick(color=palette.muted, thickness=2, height=12).encode(x=alt.X("projected_rate:Q", scale=scale)),
    ]
    if here is not None:
        rule = alt.Chart(alt.InlineData(values=[{}])).mark_rule(color=palette.ink, aria=False)
        layers.append(rule.encode(x=alt.XDatum(here, type="quantitative", scale=scale)))
    return alt.layer(*layers).properties(height=ROW_PIXELS * len(lines), usermeta={"rows": len(lines)})


_TOOLTIP = {"line": "device", "words": "projected, not measured", "over": "over this machine"}


# The tag of the sweep's experiment in MLflow.

PROJECTED_TAG = "accelsweep.projected"

_LONGEST_TAG = 4000


def experiment_tags(findings: Findings) -> dict[str, str]:
    """Return the tag that names projections: never a metric, and never a tag of a measured run."""
    found = findings.section(Elsewhere)
    if found is None:
        return {}
    words = [f"{one.name} ({one.form}): {one.rate.words} samples/s" for one in found.devices if one.rate is not None]
    text = f"projected, not measured: {'; '.join(words)}" if words else found.reason or "no device could be projected"
    return {PROJECTED_TAG: text[:_LONGEST_TAG]}
