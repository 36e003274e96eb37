"""Adds blocks to a running sweep based on pilot noise (`repeats: auto`) or interim verdicts (`--until-decided`)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from accelsweep.config.sweep_options import LOOKS
from accelsweep.driver.console import say
from accelsweep.driver.plan_preview import estimate_remaining
from accelsweep.errors import InputError
from accelsweep.records.estimates import Verdict
from accelsweep.records.layout import SweepFolder
from accelsweep.significant_digits import count_of

if TYPE_CHECKING:
    from accelsweep.analysis.statistical_power import RepeatsNeeded
    from accelsweep.planning.plan import Plan

_OPEN_VERDICTS = (Verdict.undecided, Verdict.not_yet, Verdict.disturbed)


def refuse_short_budget(home: Path, plan: Plan, budget_seconds: float | None) -> None:
    """Raise InputError if the rest of the pilot would exceed the time budget even in the best case."""
    if budget_seconds is None or not plan.manifest.options.pilot:
        return
    remaining = estimate_remaining(home, plan)
    if remaining.runs_left and (least := 60.0 * remaining.minutes.least) > budget_seconds:
        raise InputError(
            f"--time-budget {budget_seconds:g}s is too short for the pilot of repeats=auto: its {remaining.runs_left} "
            f"runs take at least {least:.0f} s in their windows alone. Increase the budget or set repeats=N"
        )


def plan_after_pilot(
    home: Path, plan: Plan, overrides: Sequence[str], name: str | None, seconds_left: float | None
) -> Plan | None:
    """Extend the plan by the blocks that the pilot noise calls for, and report why; return None if none are needed.

    The number of blocks does not depend on observed effects, and the same pilot always yields the same number, so
    resuming a sweep cannot bias it. Only as many blocks are added as are expected to fit into `seconds_left`, based on
    the durations so far.
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
        say("repeats=auto: the pilot yielded no noise estimate from which to choose the number; see its report")
        return None
    if needed.repeats <= options.repeats:
        return None
    extended = make_plan(
        home, overrides, name=name, total_repeats=needed.repeats, versioned=plan.versioned, **plan.entry_options
    )
    affordable = _affordable_blocks(home, extended, options.repeats, seconds_left)
    say(_pilot_message(needed, options.repeats, affordable))
    if affordable <= options.repeats:
        return None
    if affordable >= needed.repeats:
        return extended
    return make_plan(
        home, overrides, name=name, total_repeats=affordable, versioned=plan.versioned, **plan.entry_options
    )


def _affordable_blocks(home: Path, extended: Plan, measured: int, seconds_left: float | None) -> int:
    """Return the total number of blocks that fit into `seconds_left`, capped at the number in the `extended` plan."""
    repeats = extended.manifest.options.repeats
    seconds = 60.0 * estimate_remaining(home, extended).minutes.expected
    if seconds_left is None or seconds <= seconds_left:
        return repeats
    return measured + max(0, math.floor(seconds_left * (repeats - measured) / seconds))


def _pilot_message(needed: RepeatsNeeded, measured: int, affordable: int) -> str:
    width = f"intervals of about ±{needed.half_width:.0%}"
    if needed.reached:
        answer = f"needs {needed.repeats} blocks in total ({width})"
    else:
        answer = f"is too high even for {needed.repeats} blocks, the maximum (repeats_most), which would give {width}"
    room = "" if affordable >= needed.repeats else f"; the time budget has room for {max(0, affordable - measured)}"
    return f"repeats=auto: the pilot's noise {answer}; {needed.repeats - measured} are left{room}"


def plan_after_interim_analysis(
    home: Path, plan: Plan, overrides: Sequence[str], name: str | None, seconds_left: float | None
) -> Plan | None:
    """Return the plan extended to the next interim analysis, and report why.

    Returns None if every setting is decided or this was the last analysis. The result depends only on the recorded
    runs, so resuming a sweep cannot bias it. Once a setting is decided, it stays decided.
    """
    manifest, options = plan.manifest, plan.manifest.options
    if not options.until_decided:
        return None
    from accelsweep.analysis.analyse_sweep import analyse
    from accelsweep.analysis.collect import collect
    from accelsweep.planning.plan import make_plan

    settings = analyse(collect(SweepFolder(home, manifest.sweep)), manifest).settings
    baselines = manifest.baselines
    compared = [setting for setting in settings if setting.setting not in baselines]
    # All other verdicts mean that a setting cannot be measured or compared, so more blocks would not help.
    undecided = {
        setting.setting
        for setting in compared
        if setting.verdict in _OPEN_VERDICTS and setting.setting not in options.decided_at
    }
    upcoming = next((look for look in options.looks if look > options.repeats), None)
    # From the second analysis on, more blocks do not help if all undecided settings are disturbed.
    open_verdicts = [setting.verdict for setting in compared if setting.setting in undecided]
    disturbed = options.repeats > LOOKS[0] and all(verdict is Verdict.disturbed for verdict in open_verdicts)
    prefix = f"until decided: after {count_of(options.repeats, 'block')}"
    if not undecided or upcoming is None or disturbed:
        left = f"{count_of(len(undecided), 'setting')} without a verdict" if undecided else "everything decided"
        why = "" if not undecided or upcoming is None else ", because other processes disturb all of them"
        say(f"{prefix}, {left}; no further analysis{why}")
        return None
    decided = {setting.setting for setting in compared} - undecided - options.decided_at.keys()
    extended = make_plan(
        home,
        overrides,
        name=name,
        until_decided=True,
        total_repeats=upcoming,
        decided_at={**options.decided_at, **dict.fromkeys(sorted(decided), options.repeats)},
        versioned=plan.versioned,
        **plan.entry_options,
    )
    fits = _affordable_blocks(home, extended, options.repeats, seconds_left) >= upcoming
    blocks = count_of(upcoming, "block")
    next_step = f"next analysis after {blocks}" if fits else f"the time budget has no room for {blocks}"
    total = count_of(len({setting.setting for setting in compared}), "setting")
    say(f"{prefix}, {len(undecided)} of {total} undecided; {next_step}")
    return extended if fits else None
