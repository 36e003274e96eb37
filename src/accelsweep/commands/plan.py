"""`accelsweep plan`, and the plan that `run` shows before it begins: settings, and unsupported ones with reasons."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table

from accelsweep.base.errors import InputError
from accelsweep.drive.console import new_table, plain, say, show
from accelsweep.drive.profiles import check_profile, find_profile
from accelsweep.state.folders import SweepFolder

if TYPE_CHECKING:
    from accelsweep.core.plans import Manifest
    from accelsweep.plan.estimate import PlanEstimate
    from accelsweep.plan.make import Plan
    from accelsweep.plan.table import PlanTable, ReasonRow

_MOST_ROWS = 40


def print_config(home: Path, overrides: Sequence[str], what: str) -> None:
    """Print the composed config, as `--cfg job` does for users of Hydra."""
    if what != "job":
        raise InputError(f"--cfg {what!r} is not known here: the only choice is `--cfg job`")
    from accelsweep.plan.grid.job import composed_yaml

    say(composed_yaml(home, overrides), nl=False)


def print_plan(
    home: Path, overrides: Sequence[str], *, name: str | None, add_repeats: int, profile: str | None = None
) -> None:
    """Make the plan, print it, and write nothing. Raises InputError for a `profile` that does not fit the site."""
    from accelsweep.plan.make import make_plan

    plan = make_plan(home, overrides, name=name, add_repeats=add_repeats)
    if profile is not None:
        check_profile(find_profile(profile), plan.manifest.site)
    show_plan(home, plan)


def show_plan(home: Path, plan: Plan) -> None:
    """Print a plan with the runs that are settled already, and with others who disturb this machine now."""
    _print(_table(home, plan))
    for line in (*_others_now(plan.manifest), *_jobs(plan.manifest)):
        say(line)


def what_is_left(home: Path, plan: Plan) -> PlanEstimate:
    """Return the number of runs left to measure and their time, estimated by earlier runs if there are any."""
    return _table(home, plan).estimate


def _table(home: Path, plan: Plan) -> PlanTable:
    from accelsweep.plan.table import plan_table
    from accelsweep.state.records import readable_records
    from accelsweep.supervise.skips import standing

    folder = SweepFolder(home, plan.manifest.sweep)
    records = list(readable_records(folder, plan.manifest.wanted_runs()))
    wall_seconds: dict[str, list[float]] = defaultdict(list)
    for record in records:
        wall_seconds[record.cell].append(record.wall_seconds)
    return plan_table(plan, standing(records, home, plan.manifest.site), wall_seconds)


def _others_now(manifest: Manifest) -> list[str]:
    """Return who else works on the machine of the measurement; on a cluster that is not this machine."""
    if manifest.site.scheduler != "local":
        return []
    from accelsweep.measure.surroundings.busy_now import busy_now

    return [f"warning: {sentence}: stop them, or they will disturb the runs" for sentence in busy_now()]


def _jobs(manifest: Manifest) -> list[str]:
    """Return the number and the size of a plan's jobs on a cluster."""
    from accelsweep.plan.blocks.slurm import in_words, sbatch_options

    slurm = manifest.site.slurm
    if manifest.site.scheduler != "slurm":
        return []
    sizes = Counter(
        (in_words(block.resources, slurm), sbatch_options(block.resources, slurm)) for block in manifest.blocks
    )
    return [f"Slurm: {count} x {size}\n       sbatch {options}" for (size, options), count in sizes.items()]


def _print(table: PlanTable) -> None:
    show(_cells(table))
    for heading, rows in (("unsupported", table.unsupported), ("excluded", table.excluded)):
        for line in _by_reason(rows):
            say(f"{heading}: {line}")
    for line in _summary(table):
        say(line)


def _cells(table: PlanTable) -> Table:
    shown = new_table(f"{table.sweep}, revision {table.revision}: {len(table.cells)} settings")
    shown.add_column("setting", overflow="fold")
    shown.add_column("")
    shown.add_column("runs", justify="right")
    shown.add_column("measured already", justify="right")
    for row in table.cells[:_MOST_ROWS]:
        role = "baseline" if row.baseline else ""
        shown.add_row(plain(row.label), role, str(row.wanted), str(row.settled))
    if len(table.cells) > _MOST_ROWS:
        shown.add_row(f"... and {len(table.cells) - _MOST_ROWS} more", "", "", "")
    return shown


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
        least, most = estimate.minutes
        basis = f"at least {least:.1f} minutes ({estimate.basis})"
        lines.append(f"left: {estimate.runs_left} runs, {basis}; their time limits allow {most:.0f}")
        gpus = f"at least {estimate.gpu_hours[0]:.2f} GPU-hours, " if estimate.gpu_hours[1] else ""
        if estimate.usd:
            lines.append(f"      {gpus}at least {estimate.usd[0]:.2f} USD")
        elif gpus:
            lines.append(f"      {gpus}cost unknown: {estimate.usd_reason}")
    shown = f"{effect.effect:.1%}" if effect.effect is not None else f"unknown: {effect.reason}"
    lines.append(f"smallest difference that these repeats can show: {shown} ({effect.assumption})")
    return lines + [f"note: {note}" for note in table.notes]


def planned(
    home: Path, overrides: Sequence[str], *, name: str | None, add_repeats: int, profile: str | None = None
) -> PlanTable:
    """Return what `print_plan` prints, as rows. Raises as it does."""
    from accelsweep.plan.make import make_plan

    plan = make_plan(home, overrides, name=name, add_repeats=add_repeats)
    if profile is not None:
        check_profile(find_profile(profile), plan.manifest.site)
    return _table(home, plan)


def in_short(table: PlanTable) -> list[str]:
    """Return the lines below the table of settings: blocks, runs, time, cost, the smallest visible difference."""
    return _summary(table)
