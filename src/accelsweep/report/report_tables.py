"""All tables of a report in reading order: settings, scaling laws, failures, doubts, runs and environment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict
from typing import Any

from accelsweep import registry
from accelsweep.records.estimates import Estimate
from accelsweep.records.findings import DeviceCount, Findings, LawForm, ScalingLaw
from accelsweep.report import formatting as fmt
from accelsweep.report.setting_table import settings_table
from accelsweep.report.table_model import Column, Entry, ReportTable
from accelsweep.results import Doubt, Outcome
from accelsweep.significant_digits import interval_digits, significant

_TONES = {LawForm.universal: "slower", LawForm.amdahl: "slower", LawForm.ideal: "same", LawForm.beyond: "faster"}


def build_tables(findings: Findings, pictures: Collection[str] = ()) -> list[ReportTable]:
    """Return all tables in reading order, including features' tables that are not empty.

    `pictures` are the names of the files beside the page, to which settings link.
    """
    return [
        *_feature_tables(findings, "first"),
        settings_table(findings, pictures),
        *([laws_table(findings)] if findings.laws else []),
        *_feature_tables(findings, "results"),
        *(build(findings) for build in (failures_table, doubts_table, runs_table, environment_table)),
    ]


def _feature_tables(findings: Findings, place: str) -> Iterator[ReportTable]:
    for feature in registry.features():
        if feature.tables is not None and feature.tables.place == place:
            yield from registry.load(feature.tables.target)(findings)


def laws_table(findings: Findings) -> ReportTable:
    """Return the scaling law of each series that was measured at four or more device counts."""
    titles = ("Series", "Devices", "Law", "Contention", "Coherency", "Worthwhile up to", "Rate falls beyond")
    rows = []
    data = []
    for law in findings.laws:
        off = f"off by at most {fmt.share(law.misfit)}"
        rows.append(
            (
                Entry(law.series, f"{law.kind} scaling"),
                Entry(", ".join(map(str, law.devices))),
                Entry(law.form.value, law.reason or off, tone=_TONES.get(law.form, law.form.value)),
                Entry(_coefficient(law.contention), order=law.contention.value),
                Entry(_coefficient(law.coherency), order=law.coherency.value),
                _device_count(law.pays, "no end"),
                _device_count(law.peak, "never"),
            )
        )
        data.append(_law_data(law))
    return ReportTable(
        name="scaling_law",
        title="Scaling law",
        caption="Gunther's universal scalability law, fitted to each series. Contention is the share of the work that "
        "cannot be divided. Coherency is the cost per pair of devices; if it is 0, the law is Amdahl's. Adding a "
        "device is worthwhile as long as it adds at least half the rate of a single device. Intervals are in brackets "
        f"and hold simultaneously at {fmt.share(findings.confidence)} confidence. Beyond the measured "
        "devices, the law is an extrapolation.",
        columns=tuple(Column(title, title not in ("Series", "Devices", "Law")) for title in titles),
        rows=tuple(rows),
        data=data,
        empty="No series was measured at four device counts.",
    )


def _coefficient(value: Estimate) -> str:
    """Return a coefficient with its interval; the lower end may be 0."""
    if value.low is None or value.high is None:
        return f"{significant(value.value)} (no interval)"
    middle, low, high = interval_digits(value.value, value.low, value.high)
    return f"{middle} [{low}, {high}]"


def _device_count(count: DeviceCount | None, endless: str) -> Entry:
    if count is None:
        return Entry("-", tone="absent")
    value, low, high = (endless if end is None else f"{end:,}" for end in (count.value, count.low, count.high))
    return Entry(value if value == low == high else f"{value} [{low}, {high}]", order=count.value)


def _law_data(law: ScalingLaw) -> dict[str, Any]:
    intervals = ("contention", "coherency", "pays", "peak")
    data: dict[str, Any] = law.model_dump(mode="json", exclude=set(intervals))
    for name in intervals:
        value = getattr(law, name)
        data |= {f"{name}.{field}": getattr(value, field, None) for field in ("value", "low", "high")}
    return data


def failures_table(findings: Findings) -> ReportTable:
    """Return all outcomes except `measured`, one row per setting and outcome, and combinations excluded by a rule."""
    rows: list[tuple[Entry, ...]] = []
    data: list[dict[str, Any]] = []
    for setting in findings.settings:
        for outcome, count in setting.outcomes.items():
            if outcome is Outcome.measured or not count:
                continue
            reasons = [point.reason for point in setting.runs if point.outcome is outcome and point.reason]
            reason = "; ".join(dict.fromkeys(reasons or setting.reasons)) or setting.verdict_reason
            words = fmt.outcome_words(outcome)
            amount = f"{count} of {setting.planned}" if setting.planned else "not planned"
            rows.append(
                (Entry(setting.label, setting.setting), Entry(words, tone="failed"), Entry(amount), Entry(reason))
            )
            data.append(
                {"setting": setting.setting, "label": setting.label, "outcome": words, "runs": count, "reason": reason}
            )
    for excluded in findings.excluded:
        label = ", ".join(f"{key}={value}" for key, value in excluded.axes.items()) or "the only setting"
        reason = excluded.because
        rows.append((Entry(label), Entry("excluded", tone="failed"), Entry("not planned"), Entry(reason)))
        data.append({"setting": "", "label": label, "outcome": "excluded", "runs": 0, "reason": reason})
    return ReportTable(
        name="unmeasured",
        title="Not measured",
        caption="Settings that are unsupported, failed, were excluded or have not run, each with its reason.",
        columns=(Column("Setting"), Column("Outcome"), Column("Runs"), Column("Reason")),
        rows=tuple(rows),
        data=data,
        empty="Every planned run was measured.",
        **_common_reasons(rows),
    )


_MAX_REASONS = 5


def _common_reasons(rows: Sequence[tuple[Entry, ...]]) -> dict[str, Any]:
    """Return a `summary` of the most common reasons, with the table folded; nothing if every row has its own reason."""
    counts = Counter((outcome.text, reason.text) for _, outcome, _, reason in rows)
    if len(counts) == len(rows):
        return {}
    common = [
        f"{fmt.count(count, 'setting')} {outcome}: {reason.rstrip('.')}."
        for (outcome, reason), count in counts.most_common(_MAX_REASONS)
    ]
    more = len(counts) - len(common)
    summary = (*common, *([f"{fmt.count(more, 'other reason')}."] if more else []))
    return {"summary": summary, "folded": f"Show the {fmt.count(len(rows), 'setting')}"}


def doubts_table(findings: Findings) -> ReportTable:
    """Return every doubt with the settings that it affects and its remedy."""
    labels: dict[Doubt, list[str]] = {doubt: [] for doubt in findings.doubts}
    for setting in findings.settings:
        for doubt in setting.doubts:
            labels.setdefault(doubt, []).append(setting.label)
    return ReportTable(
        name="doubts",
        title="Doubts",
        caption="Reasons to distrust a number, found by accelsweep. They are shown wherever the number is.",
        columns=(Column("Doubt"), Column("Evidence"), Column("Where"), Column("Remedy")),
        rows=tuple(
            (
                Entry(doubt.code, tone="doubt", code=True),
                Entry(doubt.message),
                Entry(_where(where)),
                Entry(doubt.remedy),
            )
            for doubt, where in labels.items()
        ),
        data=[{**asdict(doubt), "settings": "; ".join(where)} for doubt, where in labels.items()],
        empty="No doubt was found.",
    )


def _where(labels: list[str]) -> str:
    if not labels:
        return "the whole sweep"
    return "; ".join(labels) if len(labels) <= 3 else f"{'; '.join(labels[:2])} and {len(labels) - 2} more settings"


def runs_table(findings: Findings) -> ReportTable:
    """Return the runs behind the numbers, in grid order."""
    caption = f"Each run's record is sweeps/{findings.sweep}/runs/RUN/record.json."
    if findings.merged:
        caption = "Each run is named SWEEP/RUN; its record is sweeps/SWEEP/runs/RUN/record.json."
    titles = ("Run", "Setting", "Block", "Outcome", "Rate", "Quality", "Doubts")
    rows: list[tuple[Entry, ...]] = []
    data: list[dict[str, Any]] = []
    for setting in findings.settings:
        for point in setting.runs:
            codes = [doubt.code for doubt in point.doubts]
            tone = "" if point.outcome is Outcome.measured else "failed"
            rows.append(
                (
                    Entry(point.run, code=True),
                    Entry(setting.label),
                    Entry(point.block, code=True),
                    Entry(fmt.outcome_words(point.outcome), point.reason or "", tone=tone),
                    _number(point.rate, findings.rate_unit),
                    _number(point.quality),
                    Entry(", ".join(codes) or "none", tone="doubt" if codes else "absent"),
                )
            )
            fields = point.model_dump(mode="json", exclude={"doubts"}) | {"doubts": "; ".join(codes)}
            data.append({"setting": setting.setting, "label": setting.label, **fields})
    return ReportTable(
        name="runs",
        title="Runs",
        caption=caption,
        columns=tuple(Column(title, title in ("Rate", "Quality")) for title in titles),
        rows=tuple(rows),
        data=data,
        empty="No run was planned.",
        folded="Show the runs behind the numbers",
    )


def _number(value: float | None, unit: str = "") -> Entry:
    return Entry(fmt.number(value, unit), order=value, tone="absent" if value is None else "")


def environment_table(findings: Findings) -> ReportTable:
    """Return the machines and the software behind the numbers."""
    facts = [(hardware.name, key, value) for hardware in findings.hardware for key, value in hardware.details.items()]
    facts += [("software", key, value) for key, value in findings.environment.items()]
    return ReportTable(
        name="environment",
        title="Environment",
        caption="The machines and the software, as reported by the runs.",
        columns=(Column("Group"), Column("Fact"), Column("Value")),
        rows=tuple((Entry(group), Entry(key), Entry(value)) for group, key, value in facts),
        data=[{"group": group, "fact": key, "value": value} for group, key, value in facts],
        empty="No run reported its environment.",
    )
