"""A plan as it was asked for, with the automatic batches that are found so far; and the runs of it that are left."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from accelsweep.commands.planning.batches import planned_after_searches, tell_of_searches
from accelsweep.drive.snakemake.profiles import check_profile, find_profile
from accelsweep.drive.terminal.console import warn
from accelsweep.state.folders import SweepFolder

if TYPE_CHECKING:
    from accelsweep.core.cells.versions import Tree
    from accelsweep.core.planned.settings import Fleet
    from accelsweep.plan.estimates.estimate import PlanEstimate
    from accelsweep.plan.estimates.took import Took
    from accelsweep.plan.make import Plan
    from accelsweep.plan.table import PlanTable


def made_plan(
    home: Path,
    overrides: Sequence[str],
    *,
    name: str | None,
    add_repeats: int = 0,
    profile: str | None = None,
    until_decided: bool = False,
    trees: Sequence[Tree] = (),
    fleet: Fleet | None = None,
) -> Plan:
    """Return the plan, or that of the searches which come before it, and say so; write nothing.

    `trees` are those of the versions that are compared; they must be there. `fleet` are the nodes that are compared.
    Raises InputError for a `profile` that does not fit the site.
    """
    from accelsweep.plan.make import make_plan

    wanted = partial(make_plan, home, overrides, name=name, add_repeats=add_repeats, trees=trees, fleet=fleet)
    plan = planned_after_searches(home, lambda batches: wanted(until_decided=until_decided, batches=batches))
    if isinstance(plan, tuple):
        unsearched, plan = plan
        tell_of_searches(unsearched, plan, warn)
    if profile is not None:
        check_profile(find_profile(profile), plan.manifest.site)
    return plan


def what_is_left(home: Path, plan: Plan) -> PlanEstimate:
    """Return the number of runs left to measure and their time, estimated by earlier runs if there are any."""
    from accelsweep.plan.estimates.estimate import estimate

    earlier = _Earlier.of(home, plan)
    return estimate(plan, earlier.settled, earlier.took)


def table_of(home: Path, plan: Plan) -> PlanTable:
    """Return the plan as rows: the runs that are settled already, and the time and noise that earlier runs showed."""
    from accelsweep.plan.table import plan_table

    earlier = _Earlier.of(home, plan)
    return plan_table(plan, earlier.settled, earlier.took, _noise(home, plan) if earlier.runs else None)


class _Earlier(NamedTuple):
    """The number of the plan's `runs` that have a record, those that are `settled`, and the time that runs `took`."""

    runs: int
    settled: set[str]
    took: Took

    @classmethod
    def of(cls, home: Path, plan: Plan) -> _Earlier:
        from accelsweep.drive.following.remaining import time_taken
        from accelsweep.plan.estimates.took import RunTime
        from accelsweep.state.records import readable_records
        from accelsweep.supervise.standing.skips import standing

        folder = SweepFolder(home, plan.manifest.sweep)
        records = list(readable_records(folder, plan.manifest.wanted_runs()))
        settled = standing(records, folder, plan.manifest.site)
        return cls(len(records), settled, time_taken(folder, map(RunTime.of, records)))


def _noise(home: Path, plan: Plan) -> float | None:
    from accelsweep.analyse.collected.collect import look_up
    from accelsweep.analyse.noise import noise_so_far

    manifest = plan.manifest
    return noise_so_far(look_up(SweepFolder(home, manifest.sweep), manifest), manifest)
