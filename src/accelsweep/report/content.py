"""Everything in a report, before it is set as a page or as Markdown: both render this one value."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from accelsweep.core.cells.cell import in_words
from accelsweep.core.findings.choices import Choice
from accelsweep.core.findings.findings import Findings
from accelsweep.core.findings.measured import CellFinding
from accelsweep.core.recorded.outcome import Outcome
from accelsweep.core.recorded.record import Doubt
from accelsweep.report import format as fmt
from accelsweep.report.clean import printable_findings
from accelsweep.report.elsewhere.table import ELSEWHERE
from accelsweep.report.figures.build import build_figures
from accelsweep.report.figures.parts.figure import Figure, Skipped
from accelsweep.report.place import RunsPlace
from accelsweep.report.screen import Amber, Tile, amber, strip, tiles
from accelsweep.report.table import ReportTable
from accelsweep.report.tables.build import build_tables
from accelsweep.report.tables.readings import absent_metrics

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
        """The figures of measurements below the first screen."""
        return [figure for figure in self.figures if figure.name not in (FIRST, ELSEWHERE)]

    @property
    def projected(self) -> Figure | None:
        """The figure of the projections, which stands in their section."""
        return next((figure for figure in self.figures if figure.name == ELSEWHERE), None)

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
        cell.model_copy(update={"label": in_words(cell.axes) + (f", {cell.hardware}" if names[cell.cell] > 1 else "")})
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
