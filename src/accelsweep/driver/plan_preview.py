"""A plan in the terminal: settings, unsupported ones with reasons, time, cost, and its jobs on a cluster."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from pydantic import Field

from accelsweep.config.setting import shared_devices
from accelsweep.driver.auto_batch_size import planned_after_searches, tell_of_searches
from accelsweep.driver.console import Listing, say, show, warn
from accelsweep.driver.json_output import Answer, AnswerPart
from accelsweep.driver.snakefile_functions import check_profile, find_profile
from accelsweep.planning.cost_estimate import TimeLimits
from accelsweep.planning.resources import idle_resources
from accelsweep.records.layout import SweepFolder
from accelsweep.schedulers.job_environment import withheld_variables
from accelsweep.schedulers.protocol import Resources
from accelsweep.schedulers.select import engine_of
from accelsweep.significant_digits import approximate_duration

if TYPE_CHECKING:
    from accelsweep.driver.request import Request
    from accelsweep.planning.auto_batch_size import SearchResults
    from accelsweep.planning.cost_estimate import ObservedTimes, PlanEstimate, PlanTable, ReasonRow
    from accelsweep.planning.plan import Plan
    from accelsweep.records.plan import Manifest


# The answer of `accelsweep plan`.


class PlannedSetting(AnswerPart):
    """A setting that can run."""

    setting: str = Field(description="the setting's name in files")
    label: str = Field(description="the setting in words")
    axes: dict[str, Any] = Field(description="the swept keys with this setting's values")
    baseline: bool = Field(description="whether speed-ups are relative to it")
    wanted: int = Field(description="the runs that the plan wants of it")
    settled: int = Field(description="those of them that have an answer already")


class NotPlanned(AnswerPart):
    """A setting that is not going to run."""

    setting: str | None = Field(description="the setting's name in files, null for one that a rule dropped")
    label: str = Field(description="the setting in words")
    axes: dict[str, Any] = Field(description="the swept keys with this setting's values")
    reason: str = Field(description="why it does not run")


class BlockInPlan(AnswerPart):
    """A block of runs that share one allocation."""

    block: str = Field(description="the block's name")
    new: bool = Field(description="whether this plan adds it")
    runs: int = Field(description="its runs that the plan wants")
    settled: int = Field(description="those of them that have an answer already")
    resources: Resources = Field(description="what it needs of a machine or cluster")


class PlannedRange(AnswerPart):
    """An amount that nobody knows before the runs have ended."""

    least: float = Field(description="that of the measuring windows alone")
    expected: float = Field(description="the amount to reckon with")
    most: float = Field(description="what time limits and second tries allow")


class PlannedTime(AnswerPart):
    """The time and the cost of the runs that are left."""

    runs_left: int = Field(description="the runs without an answer")
    minutes: PlannedRange = Field(description="their time, one after another")
    gpu_hours: PlannedRange = Field(description="that time, times the GPUs that are kept from others")
    usd: PlannedRange | None = Field(description="their cost, null where a price is missing")
    usd_reason: str | None = Field(description="why there is no cost")
    basis: str = Field(description="what the expected amounts rest on")


class PlannedEffect(AnswerPart):
    """The smallest difference that the plan's repeats can show."""

    effect: float | None = Field(description="the smallest true gain in rate that is found four times out of five")
    assumption: str = Field(description="the noise that this supposes")
    reason: str | None = Field(description="why there is none")


class PlanAnswer(Answer):
    """`accelsweep plan --json`: what `accelsweep run` with the same arguments would measure."""

    kind: ClassVar[str] = "plan"

    sweep: str = Field(description="the sweep's name")
    revision: int = Field(description="the number that this plan has, or would get")
    settings: tuple[PlannedSetting, ...] = Field(description="the settings that can run, in grid order")
    unsupported: tuple[NotPlanned, ...] = Field(description="settings that cannot run here")
    excluded: tuple[NotPlanned, ...] = Field(description="settings that a rule of the experiment drops")
    blocks: tuple[BlockInPlan, ...] = Field(description="the blocks, in the order in which they were planned")
    wanted: int = Field(description="the runs that the plan wants")
    settled: int = Field(description="those of them that have an answer already")
    estimate: PlannedTime = Field(description="what the rest will take")
    visible_effect: PlannedEffect = Field(description="what the repeats can show")
    notes: tuple[str, ...] = Field(description="what the user should know of this plan")
    warnings: tuple[str, ...] = Field(description="others that would disturb the runs now")


# A plan as it was asked for, with the automatic batches that are found so far; and the runs of it that are left.


def planned(home: Path, request: Request, batches: SearchResults | None = None, *, keep_profile: bool = False) -> Plan:
    """Return the plan that the request asks for; write nothing. With `keep_profile` it keeps that of the earlier plan.

    Raises InputError for wrong input, and BatchSearchNeeded where batches have to be searched first.
    """
    from accelsweep.planning.plan import make_plan

    make = partial(
        make_plan,
        home,
        request.overrides,
        name=request.name,
        add_repeats=request.add_repeats,
        until_decided=request.until_decided,
        profile=None if keep_profile else request.profile,
        search_results=batches,
    )
    return request.extension.plan(home, request, make) if request.extension else make()


def made_plan(home: Path, request: Request, *, keep_profile: bool = False) -> Plan:
    """Return the plan, or that of the searches which come before it, and say so; write nothing.

    Raises InputError for a profile that does not fit the site, except with `keep_profile`.
    """
    plan = planned_after_searches(home, partial(planned, home, request, keep_profile=keep_profile))
    if isinstance(plan, tuple):
        unsearched, plan = plan
        tell_of_searches(unsearched, plan, warn)
    if not keep_profile:
        check_profile(find_profile(request.profile), plan.manifest.site)
    return plan


def what_is_left(home: Path, plan: Plan) -> PlanEstimate:
    """Return the number of runs left to measure and their time, estimated by earlier runs if there are any."""
    from accelsweep.planning.cost_estimate import estimate

    earlier = _Earlier.of(home, plan)
    return estimate(plan, earlier.settled, earlier.took)


def table_of(home: Path, plan: Plan) -> PlanTable:
    """Return the plan as rows: the runs that are settled already, and the time and noise that earlier runs showed."""
    from accelsweep.planning.cost_estimate import plan_table

    earlier = _Earlier.of(home, plan)
    return plan_table(plan, earlier.settled, earlier.took, _noise(home, plan) if earlier.runs else None)


class _Earlier(NamedTuple):
    """The number of the plan's `runs` that have a record, those that are `settled`, and the time that runs `took`."""

    runs: int
    settled: set[str]
    took: ObservedTimes

    @classmethod
    def of(cls, home: Path, plan: Plan) -> _Earlier:
        from accelsweep.driver.progress_display import time_taken
        from accelsweep.executor.result_reuse import reusable_runs
        from accelsweep.planning.cost_estimate import RunTime
        from accelsweep.records.run_files import readable_records

        folder = SweepFolder(home, plan.manifest.sweep)
        records = list(readable_records(folder, plan.manifest.wanted_runs()))
        settled = reusable_runs(records, folder, plan.manifest.site)
        return cls(len(records), settled, time_taken(folder, map(RunTime.of, records)))


def _noise(home: Path, plan: Plan) -> float | None:
    from accelsweep.analysis.analyse_sweep import observed_noise
    from accelsweep.analysis.collect import read_runs

    manifest = plan.manifest
    return observed_noise(read_runs(SweepFolder(home, manifest.sweep), manifest), manifest)


_MOST_ROWS = 40

_MOST_JOBS = 10


def show_plan(home: Path, plan: Plan, *, as_json: bool = False) -> None:
    """Print a plan with the runs that are settled already, and with others who disturb this machine now."""
    table = table_of(home, plan)
    if as_json:
        say(_answer(table, _others_now(plan.manifest, table)).text())
        return
    _print(table, shared_devices(plan.manifest.axes, (setting.config for setting in plan.settings)))
    for sentence in _others_now(plan.manifest, table):
        say(f"warning: {sentence}")
    for line in _jobs(home, plan.manifest):
        say(line)


def _answer(table: PlanTable, warnings: Sequence[str]) -> PlanAnswer:

    return PlanAnswer.made_of(table, warnings=tuple(warnings))


def _others_now(manifest: Manifest, table: PlanTable) -> list[str]:
    """Return who else works on the machine of the measurement.

    On a cluster that is not this machine. Where no run is left nobody can be disturbed, and the look takes its time.
    """
    if manifest.site.scheduler != "local" or table.settled == table.wanted:
        return []
    from accelsweep.measure.busy_now import busy_now

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
        held = idle_resources(needs, manifest.site)
        words = [f"{engine.name}: {count} x {engine.in_words(needs)}", *filter(None, [held]), engine.command(needs)]
        lines.append("\n       ".join(words))
    more = [f"{engine.name}: {len(lines) - _MOST_JOBS} more such lines"] if len(lines) > _MOST_JOBS else []
    slurm = manifest.site.slurm if manifest.site.scheduler == "slurm" else None
    left = withheld_variables(os.environ, slurm.secrets) if slurm is not None else []
    return [*lines[:_MOST_JOBS], *more, *(f"{engine.name}: {sentence}" for sentence in left)]


def _print(table: PlanTable, devices: str) -> None:
    if table.settings:
        show(_settings(table, devices))
    else:
        say(f"{table.sweep}, revision {table.revision}: no setting can run{devices}")
    for heading, rows in (("unsupported", table.unsupported), ("excluded", table.excluded)):
        for line in _by_reason(rows):
            say(f"{heading}: {line}")
    for line in in_short(table):
        say(line)


def _settings(table: PlanTable, devices: str) -> Listing:
    rows = [
        (row.label, "baseline" if row.baseline else "", str(row.wanted), str(row.settled))
        for row in table.settings[:_MOST_ROWS]
    ]
    if len(table.settings) > _MOST_ROWS:
        rows.append((f"... and {len(table.settings) - _MOST_ROWS} more", "", "", ""))
    headings = ("setting", "", "runs", "measured already")
    title = f"{table.sweep}, revision {table.revision}: {len(table.settings)} settings{devices}"
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
    if not table.settings:
        return notes
    estimate, effect = table.estimate, table.visible_effect
    new = sum(block.new for block in table.blocks)
    lines = [f"{len(table.blocks)} blocks ({new} new), {table.wanted} runs, {table.settled} settled already"]
    if estimate.runs_left:
        left = approximate_duration(60 * estimate.minutes.expected)
        lines.append(f"left: {estimate.runs_left} runs, about {left} ({estimate.basis})")
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
