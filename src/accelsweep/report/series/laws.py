"""The scaling laws as a table: contention and coherency of each series, and where adding devices stops to pay."""

from __future__ import annotations

from typing import Any

from accelsweep.base.digits import interval_digits, significant
from accelsweep.core.findings.findings import Findings
from accelsweep.core.findings.numbers import Estimate
from accelsweep.core.findings.series import DeviceCount, LawForm, ScalingLaw
from accelsweep.report import format as fmt
from accelsweep.report.table import Column, Entry, ReportTable

_TONES = {LawForm.universal: "slower", LawForm.amdahl: "slower", LawForm.ideal: "same", LawForm.beyond: "faster"}


def laws_table(findings: Findings) -> ReportTable:
    """Return one row per scaling series that was measured on four numbers of devices or more."""
    titles = ("Series", "Devices", "Law", "Contention", "Coherency", "A further device pays up to", "Rate falls beyond")
    return ReportTable(
        name="scaling_law",
        title="Scaling law",
        caption="Gunther's universal scalability law, fitted to each series. Contention is the share of the work that "
        "cannot be divided. Coherency is what each pair of devices costs; without it the law is Amdahl's. A further "
        "device pays while it adds at least half of what one alone does. Intervals stand in brackets and hold together "
        f"at {fmt.share(findings.confidence)}. What lies beyond the measured devices is the law's, and nobody measured "
        "it.",
        columns=tuple(Column(title, title not in ("Series", "Devices", "Law")) for title in titles),
        rows=tuple(_row(law) for law in findings.laws),
        data=[_data(law) for law in findings.laws],
        empty="No series was measured on four numbers of devices.",
    )


def _row(law: ScalingLaw) -> tuple[Entry, ...]:
    off = f"off by {fmt.share(law.misfit)} at most"
    return (
        Entry(law.series, f"{law.kind} scaling"),
        Entry(", ".join(map(str, law.devices))),
        Entry(law.form.value, law.reason or off, tone=_TONES.get(law.form, law.form.value)),
        Entry(_number(law.contention), order=law.contention.value),
        Entry(_number(law.coherency), order=law.coherency.value),
        _count(law.pays, "no end"),
        _count(law.peak, "never"),
    )


def _number(value: Estimate) -> str:
    """Return a number of the law with its interval, whose lower end may be 0."""
    if value.low is None or value.high is None:
        return f"{significant(value.value)} (no interval)"
    middle, low, high = interval_digits(value.value, value.low, value.high)
    return f"{middle} [{low}, {high}]"


def _count(found: DeviceCount | None, endless: str) -> Entry:
    if found is None:
        return Entry("-", tone="absent")
    value, low, high = (endless if end is None else f"{end:,}" for end in (found.value, found.low, found.high))
    return Entry(value if value == low == high else f"{value} [{low}, {high}]", order=found.value)


def _data(law: ScalingLaw) -> dict[str, Any]:
    data: dict[str, Any] = law.model_dump(mode="json", exclude={"contention", "coherency", "pays", "peak"})
    for name in ("contention", "coherency", "pays", "peak"):
        value = getattr(law, name)
        data |= {f"{name}.{field}": getattr(value, field, None) for field in ("value", "low", "high")}
    return data
