"""What the user sees when a sweep is over: a short table with intervals, verdicts and doubts, and where the rest is."""

from __future__ import annotations

from rich.console import JustifyMethod
from rich.table import Table

from accelsweep.core.findings import CellFinding, Findings
from accelsweep.core.outcome import Outcome
from accelsweep.drive.console import new_table, plain, say, show
from accelsweep.report import claims, ladder
from accelsweep.report.format import bare_text, in_about, ratio_text, unit_word
from accelsweep.state.folders import SweepFolder

_SHORTEST_NAME = 12
"""The characters that a setting's name has in a line, however narrow the terminal."""


def print_results(folder: SweepFolder) -> int:
    """Print the sweep's findings in short; return how many planned runs are not settled."""
    findings = Findings.read(folder.findings)
    show(_table(findings))
    for line in (*map(ladder.in_one_line, findings.ladder), *map(claims.in_one_line, findings.claims)):
        say(line)
    say(findings.recommendation.sentence)
    if findings.recommendation.settle:
        say(f"to settle what is open{in_about(findings.recommendation)}: {findings.recommendation.settle}")
    for refusal in findings.refusals[:3]:
        say(f"refused: {refusal}")
    unsettled = sum(count for outcome, count in findings.outcomes.items() if not outcome.settled)
    if unsettled:
        listed = ", ".join(f"{count} {name}" for name, count in findings.outcomes.items() if not name.settled)
        say(
            f"{unsettled} of {findings.planned_runs} runs have no final outcome ({listed}); "
            "the same command tries them again"
        )
    say(f"report: {folder.report / 'index.html'}")
    say("MLflow: accelsweep ui")
    return unsettled


def _table(findings: Findings) -> Table:
    table = new_table(f"{findings.sweep}: {findings.repeats} repeats")
    rows = [_row(cell) for cell in findings.cells if set(cell.outcomes) != {Outcome.unsupported}]
    headings = ["setting", unit_word(findings.rate_unit), "speed-up", "verdict", findings.quality_metric or "quality"]
    for heading, *texts in zip(headings, *(row[: len(headings)] for row in rows), strict=True):
        numbers = heading in headings[1:3]
        # Names and doubts take as many lines as they need. What else stands here keeps room for its longest word.
        least = _SHORTEST_NAME if heading == "setting" else max(map(len, " ".join([heading, *texts]).split()))
        align: JustifyMethod = "right" if numbers else "left"
        table.add_column(plain(heading), justify=align, min_width=least, overflow="fold")
    table.add_column("doubts", overflow="fold")
    for row in rows:
        table.add_row(*map(plain, row))
    return table


def _row(cell: CellFinding) -> list[str]:
    speedup = ratio_text(cell.speedup.ratio) if cell.speedup else "-"
    quality = bare_text(cell.quality) if cell.quality else "-"
    doubts = ", ".join(sorted({doubt.code for doubt in cell.doubts})) or "-"
    rate = bare_text(cell.rate) if cell.rate else _failure(cell)
    return [cell.label, rate, speedup, str(cell.verdict), quality, doubts]


def _failure(cell: CellFinding) -> str:
    return ", ".join(f"{count} {outcome}" for outcome, count in cell.outcomes.items())
