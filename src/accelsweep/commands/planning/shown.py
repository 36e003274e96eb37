"""A plan in the terminal: settings, unsupported ones with reasons, time, cost, and its jobs on a cluster."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from accelsweep.base.durations import rough
from accelsweep.commands.planning.made import table_of
from accelsweep.core.cells.cell import shared_devices
from accelsweep.drive.terminal.console import Listing, say, show
from accelsweep.engines.environment import not_handed_on
from accelsweep.engines.known import engine_of
from accelsweep.plan.blocks.resources import held_in_words
from accelsweep.plan.estimates.took import TimeLimits
from accelsweep.state.folders import SweepFolder

if TYPE_CHECKING:
    from accelsweep.answers.forms.planned import PlanAnswer
    from accelsweep.core.planned.plans import Manifest
    from accelsweep.plan.estimates.estimate import PlanEstimate
    from accelsweep.plan.make import Plan
    from accelsweep.plan.table import PlanTable, ReasonRow

_MOST_ROWS = 40
_MOST_JOBS = 10


def show_plan(home: Path, plan: Plan, *, as_json: bool = False) -> None:
    """Print a plan with the runs that are settled already, and with others who disturb this machine now."""
    table = table_of(home, plan)
    if as_json:
        say(_answer(table, _others_now(plan.manifest, table)).text())
        return
    _print(table, shared_devices(plan.manifest.axes, (cell.config for cell in plan.cells)))
    for sentence in _others_now(plan.manifest, table):
        say(f"warning: {sentence}")
    for line in _jobs(home, plan.manifest):
        say(line)


def _answer(table: PlanTable, warnings: Sequence[str]) -> PlanAnswer:
    from accelsweep.answers.forms.planned import PlanAnswer

    return PlanAnswer.made_of(table, warnings=tuple(warnings))


def _others_now(manifest: Manifest, table: PlanTable) -> list[str]:
    """Return who else works on the machine of the measurement.

    On a cluster that is not this machine. Where no run is left nobody can be disturbed, and the look takes its time.
    """
    if manifest.site.scheduler != "local" or table.settled == table.wanted:
        return []
    from accelsweep.measure.surroundings.busy_now import busy_now

    return [f"{sentence}: stop them, or they will disturb the runs" for sentence in busy_now()]


def _jobs(home: Path, manifest: Manifest) -> list[str]:
    """Return the number and the size of a plan's jobs on a cluster, and what whole nodes hold beyond that."""
    engine = engine_of(manifest.site)
    if engine is None:
        return []
    limits = TimeLimits(SweepFolder(home, manifest.sweep), manifest)
    sizes = Counter(limits.of(block) for block in manifest.blocks)
    lines = []
    for needs, count in sizes.items():
        held = held_in_words(needs, manifest.site)
        words = [f"{engine.name}: {count} x {engine.in_words(needs)}", *filter(None, [held]), engine.command(needs)]
        lines.append("\n       ".join(words))
    more = [f"{engine.name}: {len(lines) - _MOST_JOBS} more such lines"] if len(lines) > _MOST_JOBS else []
    slurm = manifest.site.slurm if manifest.site.scheduler == "slurm" else None
    left = not_handed_on(os.environ, slurm.secrets) if slurm is not None else []
    return [*lines[:_MOST_JOBS], *more, *(f"{engine.name}: {sentence}" for sentence in left)]


def _print(table: PlanTable, devices: str) -> None:
    if table.cells:
        show(_cells(table, devices))
    else:
        say(f"{table.sweep}, revision {table.revision}: no setting can run{devices}")
    for heading, rows in (("unsupported", table.unsupported), ("excluded", table.excluded)):
        for line in _by_reason(rows):
            say(f"{heading}: {line}")
    for line in in_short(table):
        say(line)


def _cells(table: PlanTable, devices: str) -> Listing:
    rows = [
        (row.label, "baseline" if row.baseline else "", str(row.wanted), str(row.settled))
        for row in table.cells[:_MOST_ROWS]
    ]
    if len(table.cells) > _MOST_ROWS:
        rows.append((f"... and {len(table.cells) - _MOST_ROWS} more", "", "", ""))
    headings = ("setting", "", "runs", "measured already")
    title = f"{table.sweep}, revision {table.revision}: {len(table.cells)} settings{devices}"
    return Listing(title, headings, tuple(rows), numbers=headings[2:])


def _by_reason(rows: Sequence[ReasonRow]) -> list[str]:
    grouped: dict[str, list[str]] = defaultdict(list)
    for row in rows:
        grouped[row.reason].append(row.label)
    return [
        f"{len(labels)} x {reason} ({labels[0]}{', ...' if labels[1:] else ''})" for reason, labels in grouped.items()
    ]


def in_short(table: PlanTable) -> list[str]:
    """Return the lines below the table of settings: blocks, runs, time, cost, the smallest visible difference."""
    notes = [f"note: {note}" for note in table.notes]
    if not table.cells:
        return notes
    estimate, effect = table.estimate, table.visible_effect
    new = sum(block.new for block in table.blocks)
    lines = [f"{len(table.blocks)} blocks ({new} new), {table.wanted} runs, {table.settled} settled already"]
    if estimate.runs_left:
        lines.append(
            f"left: {estimate.runs_left} runs, about {rough(60 * estimate.minutes.expected)} ({estimate.basis})"
        )
        lines += _costs(estimate)
    shown = f"{effect.effect:.1%} ({effect.assumption})" if effect.effect is not None else f"unknown: {effect.reason}"
    lines.append(f"smallest difference that these repeats can show: {shown}")
    return lines + notes


def _costs(estimate: PlanEstimate) -> list[str]:
    hours = estimate.gpu_hours
    gpus = f"about {hours.expected:.2f} GPU-hours (at most {hours.most:.2f})" if hours.most else ""
    if estimate.usd:
        usd = f"about {estimate.usd.expected:.2f} USD (at most {estimate.usd.most:.2f})"
        return [f"      {f'{gpus}, ' if gpus else ''}{usd}"]
    return [f"      {gpus}, cost unknown: {estimate.usd_reason}"] if gpus else []
