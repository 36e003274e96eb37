"""Everything in a report, before it is set as a page or as Markdown: both render this one value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from accelsweep.core.findings import CellFinding, Choice, Findings
from accelsweep.core.metrics import MEMORY_METRICS
from accelsweep.core.outcome import Outcome
from accelsweep.core.record import Doubt
from accelsweep.report import format as fmt
from accelsweep.report.cells import ENERGY, absent_metrics, metric_entry, quality_words
from accelsweep.report.clean import printable_findings
from accelsweep.report.figures.build import build_figures
from accelsweep.report.figures.figure import Figure, Skipped
from accelsweep.report.place import RunsPlace
from accelsweep.report.table import ReportTable
from accelsweep.report.tables import build_tables

METHOD = (
    "Each run is a process group of its own; the run, not the step, is the unit of every interval.",
    "Runs of one block share an allocation and are measured in random order, the baseline among them.",
    "Warm-up is a fixed number of steps, cut off before the window opens; loading and the first step are apart.",
    "The window's length is fixed before it opens; the devices are synchronised before the clock is read at both ends.",
    "A rate is the samples of all ranks over the window's seconds on the slowest rank. Results per hour are one hour "
    "over the time of training to the target.",
    "A speed-up has a paired t-interval on log-ratios to the baseline within blocks, or Welch's where nothing pairs.",
    "All intervals against the baseline are widened (Bonferroni), so that together they hold at the stated confidence.",
    "Faster, slower and same need the whole interval beyond the threshold, or within it; all else is undecided.",
    "Quality is a phase of its own after a fixed number of samples, with a seed per repeat.",
    "Nothing is dropped: outliers, failures and doubts are shown. Unknown values have their reason.",
)
"""The method in ten lines; `docs/method.md` has the rest."""


MUCH = 1.0
"""An effect of this size doubles the rate; where nothing smaller can be seen, more digits would say nothing."""


@dataclass(frozen=True)
class Fact:
    """One figure of the first screen: its name, its value, and a smaller line such as the interval."""

    name: str
    value: str
    detail: str = ""
    tone: str = ""


@dataclass(frozen=True)
class Content:
    """The words, tables and figures of one report."""

    findings: Findings
    facts: tuple[Fact, ...]
    scope: tuple[str, ...]
    doubts: tuple[Doubt, ...]
    absent: tuple[str, ...]
    figures: tuple[Figure, ...]
    skipped: tuple[Skipped, ...]
    tables: tuple[ReportTable, ...]

    @property
    def alternatives(self) -> list[tuple[str, str, str]]:
        """Title, label and sentence of each alternative; the sentence does not begin with the title again."""
        return [
            (choice.title, self._label(choice), sentence(_without_title(choice)))
            for choice in self.findings.recommendation.alternatives
        ]

    def _label(self, choice: Choice) -> str:
        return next((cell.label for cell in self.findings.cells if choice.chooses(cell)), choice.cell)


def sentence(text: str) -> str:
    """Return `text` with a capital first and one full stop last; a command stays as it is."""
    text = text.strip()
    if not text or text.startswith("accelsweep "):  # a command is no sentence
        return text
    return text[0].upper() + text[1:].rstrip(".") + "."


def build_content(raw: Findings, folder: RunsPlace) -> Content:
    """Return the content of the report of these findings; `folder` is only read for the raw steps of some runs."""
    findings = _told_apart(printable_findings(raw))
    figures = build_figures(findings, folder)
    chosen = _chosen(findings)
    return Content(
        findings=findings,
        facts=_facts(findings, chosen) if chosen else (),
        scope=tuple(_scope(findings)),
        doubts=_weakening(findings, chosen),
        absent=tuple(absent_metrics(findings)),
        figures=tuple(figure for figure in figures if isinstance(figure, Figure)),
        skipped=tuple(figure for figure in figures if isinstance(figure, Skipped)),
        tables=tuple(build_tables(findings)),
    )


def _told_apart(findings: Findings) -> Findings:
    """Return the findings with the machine in the label of every cell that was measured on machines of two kinds."""
    names = [cell.cell for cell in findings.cells]
    cells = tuple(
        cell.model_copy(update={"label": f"{cell.label} | {cell.hardware}"}) if names.count(cell.cell) > 1 else cell
        for cell in findings.cells
    )
    return findings.model_copy(update={"cells": cells})


def _without_title(choice: Choice) -> str:
    return choice.sentence.removeprefix(f"{choice.title}: ")


def _chosen(findings: Findings) -> CellFinding | None:
    choice = findings.recommendation.choice
    return next((cell for cell in findings.cells if choice and choice.chooses(cell)), None)


def _facts(findings: Findings, cell: CellFinding) -> tuple[Fact, ...]:
    ratio = cell.speedup.ratio if cell.speedup else None
    facts = [_fact("Rate", fmt.estimate_text(cell.rate, cell.verdict_reason))]
    if cell.cell != findings.baseline:
        facts.append(_fact("Speed-up", fmt.ratio_text(ratio, cell.verdict_reason), tone=cell.verdict.value))
    for name, metrics in _FIRST_SCREEN:
        entry = metric_entry(cell, metrics)
        if entry.order is not None:
            facts.append(Fact(name, entry.text, entry.detail))
    if cell.quality is not None:
        words = fmt.estimate_text(cell.quality.model_copy(update={"unit": ""}))
        facts.append(_fact(f"Quality: {findings.quality_metric or 'quality'}", words, quality_words(cell)))
    return tuple(facts)


_FIRST_SCREEN: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("Time to target", ("time_to_target",)),
    ("Median latency", ("query_seconds_p50",)),
    ("Cost of a result", ("usd_per_result",)),
    ("Cost of 1M samples", ("usd_per_million_samples",)),
    ("Energy", (ENERGY, "energy_joules")),
    ("Memory", MEMORY_METRICS),
)


def _fact(name: str, words: str, more: str = "", tone: str = "") -> Fact:
    value, bracket, rest = words.partition(" [")
    detail = f"[{rest}" if bracket else ""
    return Fact(name, value, ", ".join(part for part in (detail, more) if part), tone)


def _scope(findings: Findings) -> Sequence[str]:
    measured = findings.outcomes.get(Outcome.measured, 0)
    lines = [
        f"{measured:,} of {fmt.count(findings.planned_runs, 'run')} measured",
        fmt.count(len(findings.cells), "setting"),
        fmt.count(findings.repeats, "repeat") + " planned",
        f"{fmt.share(findings.confidence)} intervals, {findings.family} together",
        f"threshold {fmt.share(findings.threshold)}",
    ]
    if findings.smallest_visible_effect is not None:
        lines.append(f"smallest visible effect {_effect(findings.smallest_visible_effect)}")
    return lines


def _effect(effect: float) -> str:
    return fmt.share(effect) if effect < MUCH else "more than double the rate"


def _weakening(findings: Findings, chosen: CellFinding | None) -> tuple[Doubt, ...]:
    """Return the doubts of the recommended cell and of the whole sweep, each once."""
    return tuple(dict.fromkeys([*(chosen.doubts if chosen else ()), *findings.doubts]))
