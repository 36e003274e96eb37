"""`--until-decided`: after each look, further blocks for the settings that have no verdict yet."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from accelsweep.base.digits import count_of
from accelsweep.commands.further.pilot import affordable_blocks
from accelsweep.core.findings.measured import CellFinding
from accelsweep.core.findings.numbers import Verdict
from accelsweep.core.planned.settings import LOOKS
from accelsweep.drive.terminal.console import say
from accelsweep.state.folders import SweepFolder

if TYPE_CHECKING:
    from accelsweep.plan.make import Plan

_OPEN = (Verdict.undecided, Verdict.not_yet, Verdict.disturbed)


def plan_after_look(
    home: Path, plan: Plan, overrides: Sequence[str], name: str | None, seconds_left: float | None
) -> Plan | None:
    """Return the plan with the blocks up to the next look, and say why; None where all is decided, or at the last look.

    The same runs give the same answer, so resuming decides nothing anew. A setting that was decided once stays so.
    """
    manifest, settings = plan.manifest, plan.manifest.settings
    if not settings.until_decided:
        return None
    from accelsweep.analyse.analyse import analyse
    from accelsweep.analyse.collected.collect import collect
    from accelsweep.plan.make import make_plan

    found = analyse(collect(SweepFolder(home, manifest.sweep)), manifest).cells
    compared = [cell for cell in found if cell.cell not in manifest.baselines]
    undecided = _undecided(compared, settings.decided_at)
    upcoming = next((look for look in settings.looks if look > settings.repeats), None)
    if not undecided or upcoming is None or _all_disturbed(compared, undecided, settings.repeats):
        left = f"{count_of(len(undecided), 'setting')} without a verdict" if undecided else "everything decided"
        why = "" if not undecided or upcoming is None else ", because others disturb all of them"
        say(f"until decided: after {count_of(settings.repeats, 'block')}, {left}; no further look follows{why}")
        return None
    decided_at = dict(settings.decided_at)
    for cell in compared:
        if cell.cell not in undecided:
            decided_at.setdefault(cell.cell, settings.repeats)
    further = make_plan(
        home, overrides, name=name, until_decided=True, decided=upcoming, decided_at=decided_at, trees=plan.trees
    )
    fits = affordable_blocks(home, further, settings.repeats, seconds_left) >= upcoming
    goes_on = f"the next look is after {upcoming}" if fits else f"the time budget has no room for {upcoming}"
    open_ones = f"{len(undecided)} of {count_of(len({cell.cell for cell in compared}), 'setting')} undecided"
    say(f"until decided: after {count_of(settings.repeats, 'block')}, {open_ones}; {goes_on}")
    return further if fits else None


def _all_disturbed(compared: Sequence[CellFinding], undecided: set[str], repeats: int) -> bool:
    """Return whether two looks or more have found nothing but disturbed settings left: more of the same is no help."""
    left = [cell.verdict for cell in compared if cell.cell in undecided]
    return repeats > LOOKS[0] and all(verdict is Verdict.disturbed for verdict in left)


def _undecided(compared: Sequence[CellFinding], decided_at: dict[str, int]) -> set[str]:
    """Return the settings that more blocks may decide. One that cannot be measured or compared is none of them."""
    return {cell.cell for cell in compared if cell.verdict in _OPEN and cell.cell not in decided_at}
