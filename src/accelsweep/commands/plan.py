"""`accelsweep plan`, and the plan that `run` shows before it begins: settings, and unsupported ones with reasons."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from accelsweep.base.durations import rough
from accelsweep.base.errors import InputError
from accelsweep.commands.first.batches import planned_after_searches, tell_of_searches
from accelsweep.core.cell import shared_devices
from accelsweep.drive.console import Listing, say, show, warn
from accelsweep.drive.snakemake.profiles import check_profile, find_profile
from accelsweep.engines.known import engine_of
from accelsweep.state.folders import SweepFolder

if TYPE_CHECKING:
    from accelsweep.core.plans import Manifest
    from accelsweep.core.settings import Fleet
    from accelsweep.core.versions import Tree
    from accelsweep.drive.answers.planned import PlanAnswer
    from accelsweep.plan.estimate import PlanEstimate
    from accelsweep.plan.make import Plan
    from accelsweep.plan.table import PlanTable, ReasonRow

_MOST_ROWS = 40
_MOST_JOBS = 10


def print_config(home: Path, overrides: Sequence[str], what: str) -> None:
    """Print the composed config, as `--cfg job` does for users of Hydra."""
    if what != "job":
        raise InputError(f"--cfg {what!r} is not known here: the only choice is `--cfg job`")
    from accelsweep.plan.grid.job import composed_yaml

    say(composed_yaml(home, overrides), nl=False)


def print_plan(
    home: Path,
    overrides: Sequence[str],
    *,
    name: str | None,
    add_repeats: int,
    profile: str | None = None,
    as_json: bool = False,
    until_decided: bool = False,
    trees: Sequence[Tree] = (),
    fleet: Fleet | None = None,
) -> None:
    """Make the plan, print it, and write nothing. Raises InputError for a `profile` that does not fit the site.

    `trees` are those of the versions that are compared; they must be there. `fleet` are the nodes that are compared.
    """
    plan = _made(home, overrides, name, add_repeats, profile, until_decided=until_decided, trees=trees, fleet=fleet)
    if as_json:
        table = _table(home, plan)
        say(_answer(table, _others_now(plan.manifest, table)).text())
    else:
        show_plan(home, plan)


def show_plan(home: Path, plan: Plan) -> None:
    """Print a plan with the runs that are settled already, and with others who disturb this machine now."""
    table = _table(home, plan)
    _print(table, shared_devices(plan.manifest.axes, (cell.config for cell in plan.cells)))
    for sentence in _others_now(plan.manifest, table):
        say(f"warning: {sentence}")
    for line in _jobs(plan.manifest):
        say(line)


def _answer(table: PlanTable, warnings: Sequence[str]) -> PlanAnswer:
    from accelsweep.drive.answers.planned import PlanAnswer

    return PlanAnswer.model_validate({**vars(table), "warnings": tuple(warnings)})


def what_is_left(home: Path, plan: Plan) -> PlanEstimate:
    """Return the number of runs left to measure and their time, estimated by earlier runs if there are any."""
    return _table(home, plan).estimate


def _table(home: Path, plan: Plan) -> PlanTable:
    from accelsweep.drive.remaining import time_taken
    from accelsweep.plan.table import plan_table
    from accelsweep.plan.took import RunTime
    from accelsweep.state.records import readable_records
    from accelsweep.supervise.standing.skips import standing

    folder = SweepFolder(home, plan.manifest.sweep)
    records = list(readable_records(folder, plan.manifest.wanted_runs()))
    took = time_taken(folder, map(RunTime.of, records))
    return plan_table(plan, standing(records, folder, plan.manifest.site), took)


def _others_now(manifest: Manifest, table: PlanTable) -> list[str]:
    """Return who else works on the machine of the measurement.

    On a cluster that is not this machine. Where no run is left nobody can be disturbed, and the look takes its time.
    """
    if manifest.site.scheduler != "local" or table.settled == table.wanted:
        return []
    from accelsweep.measure.surroundings.busy_now import busy_now

    return [f"{sentence}: stop them, or they will disturb the runs" for sentence in busy_now()]


def _jobs(manifest: Manifest) -> list[str]:
    """Return the number and the size of a plan's jobs on a cluster."""
    engine = engine_of(manifest.site)
    if engine is None:
        return []
    needs = [block.resources for block in manifest.blocks]
    sizes = Counter((engine.in_words(each), engine.command(each)) for each in needs)
    lines = [f"{engine.name}: {count} x {size}\n       {command}" for (size, command), count in sizes.items()]
    more = [f"{engine.name}: {len(lines) - _MOST_JOBS} more such lines"] if len(lines) > _MOST_JOBS else []
    return [*lines[:_MOST_JOBS], *more]


def _print(table: PlanTable, devices: str) -> None:
    show(_cells(table, devices))
    for heading, rows in (("unsupported", table.unsupported), ("excluded", table.excluded)):
        for line in _by_reason(rows):
            say(f"{heading}: {line}")
    for line in _summary(table):
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


def _summary(table: PlanTable) -> list[str]:
    estimate, effect = table.estimate, table.visible_effect
    new = sum(block.new for block in table.blocks)
    lines = [f"{len(table.blocks)} blocks ({new} new), {table.wanted} runs, {table.settled} settled already"]
    if estimate.runs_left:
        lines.append(
            f"left: {estimate.runs_left} runs, about {rough(60 * estimate.minutes.expected)} ({estimate.basis})"
        )
        lines += _costs(estimate)
    shown = f"{effect.effect:.1%}" if effect.effect is not None else f"unknown: {effect.reason}"
    lines.append(f"smallest difference that these repeats can show: {shown} ({effect.assumption})")
    return lines + [f"note: {note}" for note in table.notes]


def _costs(estimate: PlanEstimate) -> list[str]:
    hours = estimate.gpu_hours
    gpus = f"about {hours.expected:.2f} GPU-hours (at most {hours.most:.2f})" if hours.most else ""
    if estimate.usd:
        usd = f"about {estimate.usd.expected:.2f} USD (at most {estimate.usd.most:.2f})"
        return [f"      {f'{gpus}, ' if gpus else ''}{usd}"]
    return [f"      {gpus}, cost unknown: {estimate.usd_reason}"] if gpus else []


def planned(
    home: Path, overrides: Sequence[str], *, name: str | None, add_repeats: int, profile: str | None = None
) -> PlanTable:
    """Return what `print_plan` prints, as rows. Raises as it does."""
    return _table(home, _made(home, overrides, name, add_repeats, profile))


def _made(
    home: Path,
    overrides: Sequence[str],
    name: str | None,
    add_repeats: int,
    profile: str | None,
    *,
    until_decided: bool = False,
    trees: Sequence[Tree] = (),
    fleet: Fleet | None = None,
) -> Plan:
    from accelsweep.plan.make import make_plan

    wanted = partial(make_plan, home, overrides, name=name, add_repeats=add_repeats, trees=trees, fleet=fleet)
    plan = planned_after_searches(home, lambda batches: wanted(until_decided=until_decided, batches=batches))
    if isinstance(plan, tuple):
        unsearched, plan = plan
        tell_of_searches(unsearched, plan, warn)
    if profile is not None:
        check_profile(find_profile(profile), plan.manifest.site)
    return plan


def in_short(table: PlanTable) -> list[str]:
    """Return the lines below the table of settings: blocks, runs, time, cost, the smallest visible difference."""
    return _summary(table)
