"""`repeats: auto`: after the pilot, the further blocks that its noise requires, within the time budget."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from accelsweep.config.sweep_options import LOOKS
from accelsweep.driver.console import say
from accelsweep.driver.plan_preview import what_is_left
from accelsweep.errors import InputError
from accelsweep.records.estimates import Verdict
from accelsweep.records.findings import SettingFinding
from accelsweep.records.layout import SweepFolder
from accelsweep.significant_digits import count_of

if TYPE_CHECKING:
    from accelsweep.analysis.power import RepeatsNeeded
    from accelsweep.planning.plan import Plan


def refuse_short_budget(home: Path, plan: Plan, budget_seconds: float | None) -> None:
    """Raise InputError where the time budget is shorter than the least time that the rest of the pilot takes."""
    options = plan.manifest.options
    if budget_seconds is None or not options.pilot:
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
    manifest, options = plan.manifest, plan.manifest.options
    if not options.auto_repeats:
        return None
    from accelsweep.analysis.analyse_sweep import repeats_from_pilot
    from accelsweep.analysis.collect import collect
    from accelsweep.planning.plan import make_plan

    records = collect(SweepFolder(home, manifest.sweep))
    needed = repeats_from_pilot(records, manifest, options.analysis.resolution, options.repeats_most)
    if needed is None:
        say("repeats=auto: the pilot shows no noise by which a number could be chosen; see its report")
        return None
    if needed.repeats <= options.repeats:
        return None
    further = make_plan(home, overrides, name=name, total_repeats=needed.repeats, versioned=plan.versioned)
    affordable = affordable_blocks(home, further, options.repeats, seconds_left)
    say(_in_words(needed, options.repeats, affordable))
    if affordable <= options.repeats:
        return None
    if affordable >= needed.repeats:
        return further
    return make_plan(home, overrides, name=name, total_repeats=affordable, versioned=plan.versioned)


def affordable_blocks(home: Path, further: Plan, measured: int, seconds_left: float | None) -> int:
    """Return how many blocks in all the seconds that are left allow, no more than `further` has."""
    repeats = further.manifest.options.repeats
    seconds = 60.0 * what_is_left(home, further).minutes.expected
    if seconds_left is None or seconds <= seconds_left:
        return repeats
    return measured + max(0, math.floor(seconds_left * (repeats - measured) / seconds))


def _in_words(needed: RepeatsNeeded, measured: int, affordable: int) -> str:
    width = f"intervals of about {needed.half_width:.0%} to each side"
    reached = f"asks for {needed.repeats} blocks in all ({width})"
    least = f"is too much even for {needed.repeats} blocks, the most (repeats_most), which leave {width}"
    room = "" if affordable >= needed.repeats else f"; the time budget has room for {max(0, affordable - measured)}"
    answer = reached if needed.reached else least
    return f"repeats=auto: the pilot's noise {answer}; {needed.repeats - measured} are left{room}"


# `--until-decided`: after each look, further blocks for the settings that have no verdict yet.

_OPEN = (Verdict.undecided, Verdict.not_yet, Verdict.disturbed)


def plan_after_look(
    home: Path, plan: Plan, overrides: Sequence[str], name: str | None, seconds_left: float | None
) -> Plan | None:
    """Return the plan with the blocks up to the next look, and say why; None where all is decided, or at the last look.

    The same runs give the same answer, so resuming decides nothing anew. A setting that was decided once stays so.
    """
    manifest, options = plan.manifest, plan.manifest.options
    if not options.until_decided:
        return None
    from accelsweep.analysis.analyse_sweep import analyse
    from accelsweep.analysis.collect import collect
    from accelsweep.planning.plan import make_plan

    found = analyse(collect(SweepFolder(home, manifest.sweep)), manifest).settings
    compared = [setting for setting in found if setting.setting not in manifest.baselines]
    undecided = _undecided(compared, options.decided_at)
    upcoming = next((look for look in options.looks if look > options.repeats), None)
    if not undecided or upcoming is None or _all_disturbed(compared, undecided, options.repeats):
        left = f"{count_of(len(undecided), 'setting')} without a verdict" if undecided else "everything decided"
        why = "" if not undecided or upcoming is None else ", because others disturb all of them"
        say(f"until decided: after {count_of(options.repeats, 'block')}, {left}; no further look follows{why}")
        return None
    decided_at = dict(options.decided_at)
    for setting in compared:
        if setting.setting not in undecided:
            decided_at.setdefault(setting.setting, options.repeats)
    further = make_plan(
        home,
        overrides,
        name=name,
        until_decided=True,
        total_repeats=upcoming,
        decided_at=decided_at,
        versioned=plan.versioned,
    )
    fits = affordable_blocks(home, further, options.repeats, seconds_left) >= upcoming
    goes_on = f"the next look is after {upcoming}" if fits else f"the time budget has no room for {upcoming}"
    open_ones = f"{len(undecided)} of {count_of(len({setting.setting for setting in compared}), 'setting')} undecided"
    say(f"until decided: after {count_of(options.repeats, 'block')}, {open_ones}; {goes_on}")
    return further if fits else None


def _all_disturbed(compared: Sequence[SettingFinding], undecided: set[str], repeats: int) -> bool:
    """Return whether two looks or more have found nothing but disturbed settings left: more of the same is no help."""
    left = [setting.verdict for setting in compared if setting.setting in undecided]
    return repeats > LOOKS[0] and all(verdict is Verdict.disturbed for verdict in left)


def _undecided(compared: Sequence[SettingFinding], decided_at: dict[str, int]) -> set[str]:
    """Return the settings that more blocks may decide. One that cannot be measured or compared is none of them."""
    return {setting.setting for setting in compared if setting.verdict in _OPEN and setting.setting not in decided_at}
