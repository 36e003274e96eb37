"""`repeats: auto`: after the pilot, the further blocks that its noise requires, within the time budget."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from accelsweep.base.errors import InputError
from accelsweep.commands.planning.made import what_is_left
from accelsweep.drive.terminal.console import say
from accelsweep.state.folders import SweepFolder

if TYPE_CHECKING:
    from accelsweep.plan.make import Plan
    from accelsweep.repeats.resolution import Needed


def refuse_short_budget(home: Path, plan: Plan, budget_seconds: float | None) -> None:
    """Raise InputError where the time budget is shorter than the least time that the rest of the pilot takes."""
    settings = plan.manifest.settings
    if budget_seconds is None or not settings.pilot:
        return
    left = what_is_left(home, plan)
    if left.runs_left and (least := 60.0 * left.minutes.least) > budget_seconds:
        raise InputError(
            f"--time-budget {budget_seconds:g}s is too short for the pilot of repeats=auto: its {left.runs_left} runs "
            f"take {least:.0f} s at least (their windows alone). Allow more time, or give a number: repeats=N"
        )


def plan_after_pilot(
    home: Path, plan: Plan, overrides: Sequence[str], name: str | None, seconds_left: float | None
) -> Plan | None:
    """Return the plan with the blocks that the pilot's noise requires, and say why; None where no more are due.

    Effects do not enter, and the answer stays the same when it is asked again. So resuming chooses nothing anew. With
    `seconds_left` there are as many blocks as fit by the wall times of the runs so far.
    """
    manifest, settings = plan.manifest, plan.manifest.settings
    if not settings.auto_repeats:
        return None
    from accelsweep.analyse.collected.collect import collect
    from accelsweep.analyse.pilot import repeats_from_pilot
    from accelsweep.plan.make import make_plan

    records = collect(SweepFolder(home, manifest.sweep))
    needed = repeats_from_pilot(records, manifest, settings.analysis.resolution, settings.repeats_most)
    if needed is None:
        say("repeats=auto: the pilot shows no noise by which a number could be chosen; see its report")
        return None
    if needed.repeats <= settings.repeats:
        return None
    further = make_plan(home, overrides, name=name, decided=needed.repeats, trees=plan.trees)
    affordable = affordable_blocks(home, further, settings.repeats, seconds_left)
    say(_in_words(needed, settings.repeats, affordable))
    if affordable <= settings.repeats:
        return None
    if affordable >= needed.repeats:
        return further
    return make_plan(home, overrides, name=name, decided=affordable, trees=plan.trees)


def affordable_blocks(home: Path, further: Plan, measured: int, seconds_left: float | None) -> int:
    """Return how many blocks in all the seconds that are left allow, no more than `further` has."""
    repeats = further.manifest.settings.repeats
    seconds = 60.0 * what_is_left(home, further).minutes.expected
    if seconds_left is None or seconds <= seconds_left:
        return repeats
    return measured + max(0, math.floor(seconds_left * (repeats - measured) / seconds))


def _in_words(needed: Needed, measured: int, affordable: int) -> str:
    width = f"intervals of about {needed.half_width:.0%} to each side"
    reached = f"asks for {needed.repeats} blocks in all ({width})"
    least = f"is too much even for {needed.repeats} blocks, the most (repeats_most), which leave {width}"
    room = "" if affordable >= needed.repeats else f"; the time budget has room for {max(0, affordable - measured)}"
    answer = reached if needed.reached else least
    return f"repeats=auto: the pilot's noise {answer}; {needed.repeats - measured} are left{room}"
