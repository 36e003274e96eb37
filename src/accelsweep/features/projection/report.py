"""Projections in the report, MLflow and the terminal, formatted so that no number can be mistaken for a measured one.

A measured number is followed by its interval in brackets. A projected number is written with two digits and the word
`about`, and its interval as `X to Y`.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import Any

from accelsweep.features.projection.model import FormError, MemoryFit, Projection, Projections, Range, two_digits
from accelsweep.records.findings import Findings
from accelsweep.report import formatting as fmt
from accelsweep.report.table_model import Column, Detail, Entry, ReportTable

NAME = "projections"
"""The name of the table and the figure."""

TITLE = "Projections (not measured)"

TITLES = (
    "Device",
    "Projected samples/s",
    "Over this machine",
    "USD per million samples",
    "Energy per sample, at most",
    "Memory",
    "Limit",
)

_ABSENT = Entry("-", tone="absent")


def tables(findings: Findings) -> list[ReportTable]:
    """Return a table with one row per device and form, or with the reason why it is empty."""
    projections = findings.section(Projections)
    if projections is None:
        return []
    return [
        ReportTable(
            name=NAME,
            title=TITLE,
            caption=" ".join(sentences(projections)),
            columns=tuple(Column(title, title in TITLES[1:5]) for title in TITLES),
            rows=tuple(projection_entries(projection) for projection in projections.devices),
            details=tuple(_more(projection) for projection in projections.devices),
            data=[_data(projection, projections) for projection in projections.devices],
            summary=summary_of(projections),
            folded=f"Show the {fmt.count(len(projections.devices), 'projection')}",
            empty=fmt.sentence((projections.reason or "not projected: no device was named").capitalize()),
        )
    ]


_ALIKE = 1.5
"""If the projected rates differ by at most this factor, a sentence says as much as a figure would."""


def are_alike(values: Sequence[float]) -> bool:
    """Return whether the projected rates hardly differ."""
    return max(values) <= _ALIKE * min(values)


def _span(low: str, high: str) -> str:
    return low if low == high else f"{low} to {high}"


def summary_of(projections: Projections) -> tuple[str, ...]:
    """Return a sentence on all projections, and whether the devices differ; nothing if none has a rate."""
    projected = [(one.rate.value, one) for one in projections.devices if one.rate is not None]
    if not projected:
        return ()
    (low, slowest), (high, fastest) = (pick(projected, key=itemgetter(0)) for pick in (min, max))
    values = [f"{_span(two_digits(low), two_digits(high))} samples/s"]
    if ratios := [one.ratio.value for _, one in projected if one.ratio is not None]:
        times = _span(*(f"{two_digits(end)}x" for end in (min(ratios), max(ratios))))
        values.append(f"about {times} the rate measured here")
    if not are_alike([value for value, _ in projected]):
        where = f"slowest on {slowest.name} ({slowest.form}), fastest on {fastest.name} ({fastest.form})"
        return (f"Projected, not measured: about {', '.join(values)}; {where}.",)
    limits = {one.limit for _, one in projected}
    why = "About the same on every device"
    if limits == {"starting kernels"}:
        why = "Too small for any of these GPUs: starting kernels limits it"
    elif len(limits) == 1:
        why += f", limited by {limits.pop()}"
    return (f"{why}. Projected, not measured: about {', '.join(values)}.",)


def sentences(projections: Projections) -> list[str]:
    """Return an introduction to the numbers: their meaning, their setting, and the errors on held-out devices."""
    if projections.reason is not None:
        return []
    what = f"{projections.label}, with batches of {projections.batch}"
    disturbed = "There was other load on the machine, so there is no ratio to this rate."
    return [
        f"These numbers were not measured. They are projected from published rates of other networks, for {what}.",
        f"Measured here, on {projections.here}: {fmt.number(projections.rate_here, '1/s')}.",
        *([disturbed] if projections.disturbed else []),
        *map(_how_wrong, projections.unseen),
        "The published rates were measured without torch.compile and channels_last.",
        "Energy is bounded by the board's power limit.",
    ]


def _how_wrong(error: FormError) -> str:
    form = error.form[:1].upper() + error.form[1:]
    return (
        f"{form}: fitted to {error.count:,} published rates of {error.networks:,} networks on {error.devices} devices. "
        f"On devices held out of the fit, half of the projections were off by more than {error.median_error:.0%}, and "
        f"{error.coverage:.0%} of the 90 % intervals contained the published rate."
    )


def times_text(value: Range | None) -> str:
    """Format a ratio such as `about 12x, 8.1x to 18x`."""
    return "-" if value is None else f"about {value.value:g}x, {value.low:g}x to {value.high:g}x"


def projection_entries(projection: Projection) -> tuple[Entry, ...]:
    """Return the row for a projection."""
    device = Entry(projection.name, projection.form)
    if projection.rate is None:
        return (device, Entry("not projected", projection.reason or "", tone="failed"), *[_ABSENT] * 5)
    ratio, memory = projection.ratio, projection.room
    return (
        device,
        Entry(projection.rate.words, tone="secondhand", order=projection.rate.value),
        Entry(times_text(ratio), tone="secondhand", order=ratio.value if ratio else None),
        _cost(projection),
        _energy(projection),
        Entry(memory.value, tone="failed" if memory is MemoryFit.too_large else ""),
        Entry(projection.limit),
    )


def _more(projection: Projection) -> tuple[Detail, ...]:
    """Return a projection's caveats, and the source of its device's figures."""
    source = [Detail("Datasheet", projection.source)] if projection.source else []
    monthly = [Detail("By the month", text) for text in projection.monthly]
    return (*(Detail("Note", note) for note in projection.notes), *monthly, *source)


def _cost(projection: Projection) -> Entry:
    cost = projection.usd_per_million_samples
    if cost is None:
        return Entry("no price", tone="absent")
    detail = f"at {projection.usd_per_hour:g} USD/h" + (f"; {projection.cheaper}" if projection.cheaper else "")
    if projection.usd_per_epoch is not None:
        detail += f"; {projection.usd_per_epoch.words} USD an epoch"
    return Entry(cost.words, detail, tone="secondhand", order=cost.value)


def _energy(projection: Projection) -> Entry:
    joules = projection.joules_per_sample_at_most
    return _ABSENT if joules is None else Entry(f"{two_digits(joules)} J", tone="secondhand", order=joules)


def _data(projection: Projection, projections: Projections) -> dict[str, Any]:
    """Return a CSV row. The names of all numeric columns mark them as projected."""
    data: dict[str, Any] = {"device": projection.device, "name": projection.name, "form": projection.form}
    data |= {"setting": projections.setting, "batch": projections.batch, "not_projected": projection.reason}
    for name in ("rate", "ratio", "usd_per_million_samples", "usd_per_epoch"):
        value: Range | None = getattr(projection, name)
        for end in ("value", "low", "high"):
            data[f"projected_{name}.{end}"] = None if value is None else getattr(value, end)
    return data | {
        "projected_joules_per_sample_at_most": projection.joules_per_sample_at_most,
        "memory": projection.room.value,
        "limit": projection.limit,
        "usd_per_hour": projection.usd_per_hour,
        "break_even": projection.cheaper,
        "break_even_by_month": "; ".join(projection.monthly),
        "notes": "; ".join(projection.notes),
        "datasheet": projection.source,
    }


PROJECTED_TAG = "accelsweep.projected"

MAX_TAG_LENGTH = 4000


def experiment_tags(findings: Findings) -> dict[str, str]:
    """Return the projections as a tag of the MLflow experiment, never as metrics and never on a run."""
    projections = findings.section(Projections)
    if projections is None:
        return {}
    rates = [f"{one.name} ({one.form}): {one.rate.words} samples/s" for one in projections.devices if one.rate]
    text = projections.reason or "no device could be projected"
    if rates:
        text = f"projected, not measured: {'; '.join(rates)}"
    return {PROJECTED_TAG: text[:MAX_TAG_LENGTH]}
