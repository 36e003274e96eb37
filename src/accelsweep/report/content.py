"""Everything in a report, before it is set as a page or as Markdown: both render this one value."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from accelsweep import registry
from accelsweep.config.setting import axes_in_words
from accelsweep.records.estimates import Estimate
from accelsweep.records.findings import CellFinding, Certainty, Choice, Findings, Recommendation
from accelsweep.records.layout import RunsPlace
from accelsweep.records.metrics import MEMORY_METRICS
from accelsweep.records.run_record import Doubt, Outcome, doubt_in_words
from accelsweep.report import units as fmt
from accelsweep.report.captions import CAPTIONS, TABLE_FIGURES
from accelsweep.report.figures.breakdown import breakdown_figure
from accelsweep.report.figures.drift import drift_figure
from accelsweep.report.figures.figure import Figure, Skipped
from accelsweep.report.figures.memory import memory_figure
from accelsweep.report.figures.quality import quality_figure
from accelsweep.report.figures.rate import heatmap_figure, throughput_figure
from accelsweep.report.figures.scaling import efficiency_figure, scaling_figure
from accelsweep.report.figures.speedup import speedup_figure
from accelsweep.report.figures.steps import steps_figure
from accelsweep.report.figures.tradeoff import tradeoff_figures
from accelsweep.report.report_tables import build_tables
from accelsweep.report.setting_table import ENERGY, absent_metrics, cost_of, metric_entry, quality_words
from accelsweep.report.table_model import ReportTable
from accelsweep.report.units import printable_findings

# All figures of a report, in the order in which a reader meets them.


def build_figures(findings: Findings, folder: RunsPlace) -> list[Figure | Skipped]:
    """Return every figure of `captions.CAPTIONS`, drawn or skipped with a reason, in reading order."""
    figures = [
        speedup_figure(findings),
        heatmap_figure(findings),
        throughput_figure(findings),
        scaling_figure(findings),
        efficiency_figure(findings),
        memory_figure(findings),
        drift_figure(findings),
        steps_figure(findings, folder),
        breakdown_figure(findings),
        quality_figure(findings),
        *tradeoff_figures(findings),
        *(registry.load(figure.draw)(findings) for feature in registry.features() for figure in feature.figures),
    ]
    order = list(CAPTIONS)
    return sorted(figures, key=lambda figure: order.index(figure.name))


# The first screen: four tiles, the main reason for doubt, and a strip that says where the numbers come from.

_RUNS = re.compile(r"(\d+ of \d+ runs): ")

_NO_COST = "add prices=NAME"

_MONEY = (("usd_per_result", "Cost of a result"), ("usd_per_million_samples", "Cost of 1M samples"), (ENERGY, "Energy"))


@dataclass(frozen=True)
class Tile:
    """One figure of the first screen: its name, its value now, and a smaller line with interval and baseline."""

    name: str
    value: str
    detail: str = ""


@dataclass(frozen=True)
class Amber:
    """The main reason for doubt: `words` with its `code` (empty without one), the `remedy` and the `minutes` of it."""

    words: str
    code: str
    remedy: str
    minutes: str


def tiles(findings: Findings, chosen: CellFinding | None) -> tuple[Tile, ...]:
    """Return rate, memory, quality, and cost or energy of the chosen setting, of the baseline where none is chosen."""
    base = next((cell for cell in findings.cells if cell.cell == findings.baseline and cell.measured), None)
    now = chosen or base
    if now is None:
        return ()
    other = base if base is not None and base is not now else None
    title = _capital(fmt.rate_title(findings.rate_metric))
    return (_rate(title, now, other), _memory(now, other), _quality(findings, now, other), _price(findings, now, other))


def amber(advice: Recommendation, doubts: Sequence[Doubt]) -> Amber | None:
    """Return the main reason for doubt, its remedy and the minutes of the advised command; None without any."""
    minutes = _minutes(advice)
    if doubts:
        main = next((doubt for doubt in doubts if doubt.disturbing), doubts[0])
        found = _RUNS.match(main.message)
        return Amber(
            _capital(doubt_in_words(main)) + (f" in {found[1]}" if found else ""), main.code, main.remedy, minutes
        )
    if advice.certainty is Certainty.sure or not minutes:
        return None
    return Amber("Something is still open", "", "", minutes)


def strip(findings: Findings) -> tuple[str, ...]:
    """Return model, data, machine, torch, commit, days and accelsweep's version; an unknown one is left out."""
    origin, environment = findings.origin, findings.environment
    commits = ", ".join(origin.commits)
    changes = " with local changes" if origin.changed else ""
    torch = environment.get("torch")
    own = environment.get("accelsweep")
    return tuple(
        _some(
            _several(origin.model),
            _several(origin.data),
            _machine(findings),
            f"torch {torch}" if torch else "",
            f"commit {commits}{changes}" if commits else "no commit known",
            " to ".join(origin.dates),
            f"accelsweep {own}" if own else "",
        )
    )


def _machine(findings: Findings) -> str:
    """Return the machines with their threads and memory: `AMD EPYC, 2 threads, 23.5 GiB`."""
    origin = findings.origin
    threads = " to ".join(str(count) for count in _ends(origin.threads))
    memory = " to ".join(fmt.number(size, "B") for size in _ends(origin.memory_bytes))
    names = _several([hardware.name for hardware in findings.hardware])
    return ", ".join(_some(names, f"{threads} threads" if threads else "", memory))


def _some(*parts: str) -> list[str]:
    return [part for part in parts if part]


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _several(names: Sequence[str]) -> str:
    return ", ".join(names[:2]) + (f" and {len(names) - 2} more" if len(names) > 2 else "")


def _ends(values: Sequence[int]) -> Sequence[int]:
    return tuple(dict.fromkeys((values[0], values[-1]))) if values else ()


def _minutes(advice: Recommendation) -> str:
    time = fmt.in_about(advice).removeprefix(", in ")
    if not advice.settle_blocks or not time:
        return ""
    return f"{fmt.count(advice.settle_blocks, 'more repeat')} take{'s' if advice.settle_blocks == 1 else ''} {time}"


def _tile(name: str, value: Estimate | None, other: Estimate | None, *more: str) -> Tile:
    """Return a tile of two estimates; the baseline's interval stands in its row below."""
    text, bracket, rest = fmt.estimate_text(value).partition(" [")
    was = f"baseline {fmt.estimate_text(other).partition(' [')[0]}" if other is not None else ""
    return Tile(name, text.partition(" (no interval")[0], ", ".join(_some(f"[{rest}" if bracket else "", *more, was)))


def _rate(title: str, now: CellFinding, other: CellFinding | None) -> Tile:
    return _tile(title, now.rate, other.rate if other else None, "" if other else "of the baseline")


def _memory(now: CellFinding, other: CellFinding | None) -> Tile:
    entry, was = metric_entry(now, MEMORY_METRICS), metric_entry(other, MEMORY_METRICS) if other else None
    beside = f"baseline {was.text}" if was is not None and was.order is not None else ""
    known = entry.order is not None
    return Tile("Memory", entry.text, ", ".join(_some(now.memory_words if known else entry.detail, beside)))


def _quality(findings: Findings, now: CellFinding, other: CellFinding | None) -> Tile:
    name = (findings.quality_metric or "quality").removeprefix("val_")
    if now.quality is None:
        return Tile(_capital(name), fmt.ABSENT, "" if findings.quality_metric else "set measure.quality_metric")
    bare = now.quality.model_copy(update={"unit": ""})
    was = other.quality.model_copy(update={"unit": ""}) if other and other.quality else None
    return _tile(_capital(name), bare, was, quality_words(now) if other else "")


def _price(findings: Findings, now: CellFinding, other: CellFinding | None) -> Tile:
    for name, title in _MONEY:
        if (own := cost_of(now, name)) is not None:
            return _tile(title, own, cost_of(other, name) if other else None)
    return Tile("Cost", "not known", findings.costs_note if findings.prices and findings.costs_note else _NO_COST)


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


def method_of(findings: Findings) -> tuple[str, ...]:
    """Return the method in lines; one more where looks decided about the number of blocks."""
    if not findings.looks:
        return METHOD
    looks = ", ".join(map(str, findings.looks))
    line = (
        f"Verdicts were looked at after {looks} blocks, and what was undecided got more. The intervals are repeated "
        "confidence intervals, which hold at every look."
    )
    return (*METHOD[:7], line, *METHOD[7:])


FIRST = "speedup"
"""The figure of the first screen."""

MUCH = 1.0
"""An effect of this size doubles the rate; where nothing smaller can be seen, more digits would say nothing."""


@dataclass(frozen=True)
class Content:
    """The words, tables and figures of one report."""

    findings: Findings
    tiles: tuple[Tile, ...]
    amber: Amber | None
    strip: tuple[str, ...]
    scope: tuple[str, ...]
    doubts: tuple[Doubt, ...]
    absent: tuple[str, ...]
    figures: tuple[Figure, ...]
    skipped: tuple[Skipped, ...]
    tables: tuple[ReportTable, ...]
    method: str | None

    @property
    def headline(self) -> str:
        """The answer in at most twelve words; findings of an older version have a sentence only."""
        return self.findings.recommendation.headline or self.findings.recommendation.sentence

    @property
    def first(self) -> Figure | Skipped:
        """The figure of the first screen."""
        drawn = (figure for figure in self.figures if figure.name == FIRST)
        return next(drawn, None) or next(skipped for skipped in self.skipped if skipped.name == FIRST)

    @property
    def others(self) -> list[Figure]:
        """The figures below the first screen, save those that belong to a table."""
        return [figure for figure in self.figures if figure.name != FIRST and figure.name not in TABLE_FIGURES]

    def figure_of(self, table: ReportTable) -> Figure | None:
        """Return the figure that belongs above a table, or None."""
        return next((one for one in self.figures if one.name == table.name and one.name in TABLE_FIGURES), None)

    @property
    def alternatives(self) -> list[tuple[str, str, str]]:
        """Title, label and sentence of each alternative; the sentence does not begin with the title again."""
        return [
            (choice.title, self._label(choice), fmt.sentence(_without_title(choice)))
            for choice in self.findings.recommendation.alternatives
        ]

    def _label(self, choice: Choice) -> str:
        return next((cell.label for cell in self.findings.cells if choice.chooses(cell)), choice.cell)


def build_content(raw: Findings, folder: RunsPlace, method: str | None = None) -> Content:
    """Return the content of the report of these findings; `folder` is only read for the raw steps of some runs.

    `method` is the link to `docs/method.md`, where the report lies beside it.
    """
    findings = _told_apart(printable_findings(raw))
    figures = build_figures(findings, folder)
    chosen = _chosen(findings)
    weakening = _weakening(findings, chosen)
    return Content(
        findings=findings,
        tiles=tiles(findings, chosen),
        amber=amber(findings.recommendation, weakening),
        strip=strip(findings),
        scope=tuple(_scope(findings)),
        doubts=weakening,
        absent=tuple(absent_metrics(findings)),
        figures=tuple(figure for figure in figures if isinstance(figure, Figure)),
        skipped=tuple(figure for figure in figures if isinstance(figure, Skipped)),
        tables=tuple(build_tables(findings)),
        method=method,
    )


def _told_apart(findings: Findings) -> Findings:
    """Return the findings with prose as labels, as in the headline, and the machine where a cell ran on two kinds."""
    names = Counter(cell.cell for cell in findings.cells)
    cells = tuple(
        cell.model_copy(
            update={"label": axes_in_words(cell.axes) + (f", {cell.hardware}" if names[cell.cell] > 1 else "")}
        )
        for cell in findings.cells
    )
    return findings.model_copy(update={"cells": cells})


def _without_title(choice: Choice) -> str:
    return choice.sentence.removeprefix(f"{choice.title}: ")


def _chosen(findings: Findings) -> CellFinding | None:
    choice = findings.recommendation.choice
    return next((cell for cell in findings.cells if choice and choice.chooses(cell)), None)


def _scope(findings: Findings) -> Sequence[str]:
    measured = findings.outcomes.get(Outcome.measured, 0)
    lines = [
        f"{measured:,} of {fmt.count(findings.planned_runs, 'run')} measured",
        fmt.count(len(findings.cells), "setting"),
        fmt.count(findings.repeats, "repeat") + " planned",
        f"{fmt.share(findings.confidence)} sure of {_all(findings.family)}",
        f"differences below {fmt.share(findings.threshold)} count as none",
    ]
    if findings.smallest_visible_effect is not None:
        lines.append(f"can only see {_effect(findings.smallest_visible_effect)}")
    return lines


def _all(comparisons: int) -> str:
    return "the comparison" if comparisons == 1 else f"all {comparisons} comparisons at once"


def _effect(effect: float) -> str:
    return f"differences above {fmt.share(effect)}" if effect < MUCH else "rates that more than double"


def _weakening(findings: Findings, chosen: CellFinding | None) -> tuple[Doubt, ...]:
    """Return the doubts of the recommended cell, of the baseline where there is none, and of the whole sweep."""
    told = chosen or next((cell for cell in findings.cells if cell.cell == findings.baseline), None)
    return tuple(dict.fromkeys([*(told.doubts if told else ()), *findings.doubts]))
