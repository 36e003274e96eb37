"""Projections as a table of their own: no cell of it can be taken for a measured one.

A measured number stands with its interval in brackets. A projected one says `about`, its ends stand behind `to`, and it
has two digits.
"""

from __future__ import annotations

from typing import Any

from accelsweep.core.findings.projections import Elsewhere, Projected, Room, Unseen
from accelsweep.records.estimates import Range, two_digits
from accelsweep.records.findings import Findings
from accelsweep.report import units as fmt
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


def elsewhere_table(findings: Findings) -> ReportTable:
    """Return one row per device and form, or the reason why there is none; the findings have an `elsewhere`."""
    found = findings.elsewhere or Elsewhere(reason="there is nothing to project")
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
