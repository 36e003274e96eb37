"""The ladder as a table: each rung's rate, its gain over the rung before and over the first, or why it has none."""

from __future__ import annotations

import re
from typing import Any

from accelsweep.records.estimates import Estimate, Verdict
from accelsweep.records.findings import Findings, Rung
from accelsweep.report import units as fmt
from accelsweep.report.table_model import Column, Entry, ReportTable


def ladder_table(findings: Findings) -> ReportTable:
    """Return one row per rung, in the order in which the rungs add up."""
    titles = ("Rung", "Rate", "Gain over the rung before", "Verdict", "Gain over the first rung", "Verdict so far")
    return ReportTable(
        name="ladder",
        title="Ladder",
        caption="Each rung keeps all rungs before it and adds one. Intervals stand in brackets; all gains hold "
        f"together at {fmt.share(findings.confidence)}. A rung that could not be measured has its reason. The next one "
        "is compared with the last rung that was measured.",
        columns=tuple(Column(title, title not in ("Rung", "Verdict", "Verdict so far")) for title in titles),
        rows=tuple(_row(rung) for rung in findings.ladder),
        data=[_data(rung) for rung in findings.ladder],
        empty="The experiment climbs no ladder.",
    )


def step_words(step: str) -> str:
    """Return the name of a rung without the number that orders its files: `2_larger_batch` is `larger batch`."""
    return re.sub(r"^\d+_", "", step).replace("_", " ")


def in_one_line(rung: Rung) -> str:
    """Return a rung as a sentence: `larger batch: 2.1x [2.0, 2.2] over naive (faster), 2.1x [2.0, 2.2] in all`."""
    name = step_words(rung.step)
    if rung.rate is None:
        return f"{name}: {rung.verdict.value} ({rung.reason})"
    if rung.verdict is Verdict.baseline:
        return f"{name}: {fmt.estimate_text(rung.rate)}"
    if rung.gain is None:
        return f"{name}: {fmt.estimate_text(rung.rate)}, {rung.verdict.value} ({rung.reason})"
    over = f"over {step_words(rung.before)}" if rung.before else ""
    in_all = fmt.ratio_text(rung.total) if rung.total else rung.total_verdict.value
    return f"{name}: {fmt.ratio_text(rung.gain)} {over} ({rung.verdict.value}), {in_all} in all"


def _row(rung: Rung) -> tuple[Entry, ...]:
    where = ", ".join(part for part in (rung.ladder, rung.hardware) if part and part != "all settings")
    step = Entry(step_words(rung.step), where, tone="baseline" if rung.verdict is Verdict.baseline else "")
    if rung.rate is None:
        absent = Entry(fmt.ABSENT, tone="absent")
        return (step, absent, absent, Entry(rung.verdict.value, rung.reason, tone="failed"), absent, absent)
    return (
        step,
        Entry(fmt.estimate_text(rung.rate), order=rung.rate.value),
        _gain(rung.gain, f"over {step_words(rung.before)}" if rung.before else ""),
        _verdict(rung.verdict, rung.reason if rung.gain is None or rung.gain.low is None else ""),
        _gain(rung.total),
        _verdict(rung.total_verdict),
    )


def _verdict(verdict: Verdict, reason: str = "") -> Entry:
    first = verdict is Verdict.baseline
    return Entry("first rung" if first else verdict.value, "" if first else reason, tone=verdict.value)


def _gain(ratio: Estimate | None, over: str = "") -> Entry:
    return Entry("-", tone="absent") if ratio is None else Entry(fmt.ratio_text(ratio), over, order=ratio.value)


def _data(rung: Rung) -> dict[str, Any]:
    data: dict[str, Any] = rung.model_dump(mode="json", exclude={"rate", "gain", "total"})
    for name, value in (("rate", rung.rate), ("gain", rung.gain), ("total", rung.total)):
        data |= {f"{name}.{field}": getattr(value, field, None) for field in ("value", "low", "high", "unit", "count")}
    return data
