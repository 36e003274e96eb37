"""`accelsweep compare`: two sweeps cell by cell, and a gate for continuous integration."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from accelsweep.base.errors import EXIT_OK
from accelsweep.core.planned.plans import Manifest
from accelsweep.drive.terminal.console import Listing, Marked, say, show
from accelsweep.drive.terminal.tones import tone_of
from accelsweep.report.format import bare_text, ratio_text, unit_word
from accelsweep.state.folders import existing_sweep

if TYPE_CHECKING:
    from accelsweep.analyse.collected.runs import RunRow
    from accelsweep.analyse.findings.between_sweeps import CellInBoth, SweepComparison
    from accelsweep.analyse.findings.gate import Gated
    from accelsweep.answers.forms.compared import CompareAnswer


def compare_sweeps(home: Path, before: str, after: str, fail_if: str | None, *, as_json: bool = False) -> int:
    """Print the comparison; return 0 without a gate.

    With `fail_if` the code is 3 for a supported regression, 1 where a setting could not be judged, and 0 otherwise.
    """
    from accelsweep.analyse.findings import between_sweeps
    from accelsweep.analyse.findings.gate import gated_rows, words_of_gate, worst

    gate = between_sweeps.parse_gate(fail_if) if fail_if is not None else None
    comparison = between_sweeps.compare_sweeps(_collected(home, before), _collected(home, after))
    settings = gated_rows(comparison, gate) if gate else ()
    state = worst(settings)
    if as_json:
        say(_answer(comparison, fail_if, settings).text())
    else:
        _print(comparison)
        if gate:
            say(f"{fail_if}: {words_of_gate(settings, state)}")
    return state.exit_code if gate else EXIT_OK


def _answer(comparison: SweepComparison, fail_if: str | None, settings: Sequence[Gated]) -> CompareAnswer:
    from accelsweep.analyse.findings.gate import GateState
    from accelsweep.answers.forms.compared import CompareAnswer

    failing = tuple(one.cell.cell for one in settings if one.state is GateState.regression)
    return CompareAnswer.made_of(comparison, fail_if=fail_if, failing=failing)


def _collected(home: Path, name: str) -> tuple[list[RunRow], Manifest]:
    from accelsweep.analyse.collected.collect import collect

    folder = existing_sweep(home, name)
    return collect(folder), Manifest.read(folder.manifest)


def _print(comparison: SweepComparison) -> None:
    unit = unit_word(comparison.rate_unit)
    headings = ("setting", f"before, {unit}", f"after, {unit}", "ratio", "verdict", "doubts")
    title = f"{comparison.after} against {comparison.before}"
    show(Listing(title, headings, tuple(map(_row, comparison.rows)), numbers=headings[1:4]))
    for row in comparison.rows:
        if row.ratio is None:
            say(f"{row.label}: {row.reason}")
        for doubt in row.doubts:
            say(f"{row.label}: {doubt.code}: {doubt.message}")
    for side, labels in ((comparison.before, comparison.only_before), (comparison.after, comparison.only_after)):
        if labels:
            say(f"only in {side}: {', '.join(labels)}")


def _row(row: CellInBoth) -> tuple[str | Marked, ...]:
    before, after = (bare_text(rate) if rate else "-" for rate in (row.before, row.after))
    ratio = ratio_text(row.ratio) if row.ratio else "-"
    doubts = ", ".join(sorted({doubt.code for doubt in row.doubts})) or "-"
    return row.label, before, after, ratio, Marked(row.verdict, tone_of(row.verdict)), doubts
