"""Advice where nothing can be compared: why, and the command that goes on."""

from __future__ import annotations

from accelsweep.analyse.advice.headline import advice, whole
from accelsweep.analyse.advice.situation import Situation
from accelsweep.analyse.advice.words import command
from accelsweep.core.findings.choices import Certainty, Recommendation
from accelsweep.core.findings.measured import CellFinding
from accelsweep.core.findings.numbers import Verdict


def nothing_to_compare(situation: Situation) -> Recommendation:
    """Return that only the baseline was measured, or that every comparison was refused, and why."""
    refused = situation.having(Verdict.refused)
    why, more = "only the baseline was measured", "There is nothing to compare it with."
    if refused:
        why, more = "every comparison was refused", whole(refused[0].verdict_reason)
    return advice(f"Nothing can be recommended: {why}", Certainty.not_yet, more)


def nothing_without_baseline(situation: Situation) -> Recommendation:
    """Return why the baseline has no rate, or that there is no baseline."""
    measured = [cell for cell in situation.cells if cell.measured]
    wanted = next((cell for cell in situation.cells if cell.cell == situation.manifest.baseline), None)
    if not measured:
        why, more = "no run was measured", f"{_why_nothing(situation, wanted)}."
    elif wanted is None:
        why, more = "the plan names no baseline", "Set baseline={key: value} and run again."
    else:
        why, more = "the baseline was not measured", f"It is {wanted.verdict_reason}."
    settle = command(situation.manifest) if wanted is not None else None
    return advice(f"Nothing can be recommended: {why}", Certainty.not_yet, more, settle=settle)


def _why_nothing(situation: Situation, baseline: CellFinding | None) -> str:
    if baseline is not None:
        return f"The baseline: {baseline.verdict_reason}"
    if not situation.cells:
        return "The plan has no setting"
    return f"No setting can run here; the first is {situation.cells[0].verdict_reason}"
