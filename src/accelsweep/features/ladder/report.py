"""The ladder in the report: each rung's rate, and its gains over the previous and the first rung."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from accelsweep.config.setting import option_words
from accelsweep.features.ladder.model import Ladder, Rung
from accelsweep.records.estimates import Verdict
from accelsweep.records.findings import Findings
from accelsweep.report import formatting as fmt
from accelsweep.report.setting_table import estimate_column, with_unit
from accelsweep.report.table_model import Column, Entry, ReportTable


def rungs_of(findings: Findings) -> tuple[Rung, ...]:
    """Return the rungs of the sweep's ladders, from first to last."""
    ladder = findings.section(Ladder)
    return () if ladder is None else ladder.rungs


def tables(findings: Findings) -> list[ReportTable]:
    """Return the ladder's table, with a row per rung, if there is a ladder."""
    rungs = rungs_of(findings)
    if not rungs:
        return []
    rates = estimate_column([rung.rate for rung in rungs], findings.rate_unit)
    gains = estimate_column([rung.gain for rung in rungs], "x", ratios=True)
    totals = estimate_column([rung.total for rung in rungs], "x", ratios=True)
    titles = (
        "Rung", with_unit("Rate", rates.unit), "Gain over the rung before", "Verdict", "Gain over the first rung",
        "Verdict so far",
    )  # fmt: skip
    return [
        ReportTable(
            name="ladder",
            title="Ladder",
            caption="Each rung keeps all previous rungs and adds one optimisation. Intervals are in brackets and hold "
            f"simultaneously for all gains at {fmt.share(findings.confidence)}. For a rung that could not be measured, "
            "the reason is shown, and the next rung is compared with the last measured one.",
            columns=tuple(Column(title, title not in ("Rung", "Verdict", "Verdict so far")) for title in titles),
            rows=tuple(_row(*cells) for cells in zip(rungs, rates.cells, gains.cells, totals.cells, strict=True)),
            data=[_data(rung) for rung in rungs],
            empty="The experiment has no ladder.",
        )
    ]


def last_lines(findings: Findings) -> list[str]:
    """Return a line for each rung."""
    return [in_one_line(rung) for rung in rungs_of(findings)]


def in_one_line(rung: Rung) -> str:
    """Format a rung as one line: `larger batch: 2.1x [2.0, 2.2] over naive (faster), 2.1x [2.0, 2.2] in all`."""
    name = option_words(rung.step)
    if rung.rate is None:
        return f"{name}: {rung.verdict.value} ({rung.reason})"
    if rung.verdict is Verdict.baseline:
        return f"{name}: {fmt.estimate_text(rung.rate)}"
    if rung.gain is None:
        return f"{name}: {fmt.estimate_text(rung.rate)}, {rung.verdict.value} ({rung.reason})"
    over = f"over {option_words(rung.before)}" if rung.before else ""
    in_all = fmt.ratio_text(rung.total) if rung.total else rung.total_verdict.value
    return f"{name}: {fmt.ratio_text(rung.gain)} {over} ({rung.verdict.value}), {in_all} in all"


def _row(rung: Rung, rate: Entry, gain: Entry, total: Entry) -> tuple[Entry, ...]:
    where = ", ".join(part for part in (rung.ladder, rung.hardware) if part and part != "all settings")
    step = Entry(option_words(rung.step), where, tone="baseline" if rung.verdict is Verdict.baseline else "")
    if rung.rate is None:
        absent = Entry(fmt.ABSENT, tone="absent")
        return (step, rate, absent, Entry(rung.verdict.value, rung.reason, tone="failed"), absent, absent)
    return (
        step,
        rate,
        _gain(gain, f"over {option_words(rung.before)}" if rung.before else ""),
        _verdict(rung.verdict, rung.reason if rung.gain is None or rung.gain.low is None else ""),
        _gain(total),
        _verdict(rung.total_verdict),
    )


def _verdict(verdict: Verdict, reason: str = "") -> Entry:
    first = verdict is Verdict.baseline
    return Entry("first rung" if first else verdict.value, "" if first else reason, tone=verdict.value)


def _gain(ratio: Entry, over: str = "") -> Entry:
    if ratio.order is None:
        return Entry("-", tone="absent")
    return replace(ratio, detail=" ".join(filter(None, (ratio.detail, over))))


def _data(rung: Rung) -> dict[str, Any]:
    data: dict[str, Any] = rung.model_dump(mode="json", exclude={"rate", "gain", "total"})
    for name, value in (("rate", rung.rate), ("gain", rung.gain), ("total", rung.total)):
        data |= {f"{name}.{field}": getattr(value, field, None) for field in ("value", "low", "high", "unit", "count")}
    return data
