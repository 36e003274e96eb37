"""Shows a plan in the terminal: settings, unsupported settings with reasons, time, cost, and cluster jobs."""

from __future__ import annotations

import os
import re
from collections import Counter, defaultdict
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from pydantic import Field

from accelsweep.config.setting import label, shared_devices
from accelsweep.driver.auto_batch_size import announce_searches, plan_or_searches
from accelsweep.driver.console import Listing, say, show, warn
from accelsweep.driver.json_output import Answer
from accelsweep.driver.request import FIRST_COMMANDS, command_list
from accelsweep.driver.snakefile_functions import check_profile
from accelsweep.errors import InputError
from accelsweep.installation import config_folders
from accelsweep.planning.cost_estimate import PlanTable, TimeLimits
from accelsweep.planning.resources import idle_resources
from accelsweep.records.file_lock import driver_started_at
from accelsweep.records.layout import SweepFolder
from accelsweep.records.sweep_progress import outdated_text
from accelsweep.schedulers.job_environment import withheld_variables
from accelsweep.schedulers.select import scheduler_of
from accelsweep.significant_digits import approximate_duration, count_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from accelsweep.driver.request import Request
    from accelsweep.measure.busy_now import OtherLoad
    from accelsweep.planning.auto_batch_size import SearchResults
    from accelsweep.planning.cost_estimate import ObservedTimes, PlanEstimate
    from accelsweep.planning.plan import Plan
    from accelsweep.planning.project_config import Compositions
    from accelsweep.records.plan import Manifest, TrialFindings


_SUBJECTS = frozenset({"model", "data", "task", "hydra"})
"""Keys whose overrides determine what is measured, or where its config is found."""

_MAX_EXPERIMENTS = 3
"""The maximum number of the folder's own experiments that a message lists."""


class PlanAnswer(PlanTable, Answer):
    """`accelsweep plan --json`: what `accelsweep run` with the same arguments would measure."""

    kind: ClassVar[str] = "plan"

    warnings: tuple[str, ...] = Field(description="processes on this machine that would disturb runs started now")


def requested_plan(
    home: Path,
    request: Request,
    batches: SearchResults | None = None,
    *,
    keep_profile: bool = False,
    trial: TrialFindings | None = None,
    compositions: Compositions | None = None,
) -> Plan:
    """Return the plan for a request without writing it.

    If `keep_profile` is set, the profile of the earlier plan is kept. `trial` is what a trial of the user's own
    script has shown, and `compositions` are its configs, as far as an earlier plan composed them. Raises InputError for
    invalid input, and BatchSearchNeeded if batch sizes have to be searched for first.
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
        entry=request.entry,
        trial=trial,
        compositions=compositions,
        minutes=request.minutes,
    )
    if request.extension:
        return request.extension.plan(home, request, make, trial)
    plan = make()
    return plan if plan.manifest.entry or plan.manifest.experiment else _without_subject(home, request, plan)


def _without_subject(home: Path, request: Request, plan: Plan) -> Plan:
    """Return a plan for which neither a script nor an experiment was found, with a note if it measures our own model.

    Raises InputError if nothing was typed and no config file in `home` takes effect: a model that nobody asked for is
    no answer. Experiments and sites take effect only if an override names them.
    """
    conf, *shipped = config_folders(home)
    files = [path.relative_to(conf) for path in sorted(conf.rglob("*.yaml"))] if shipped else []
    keys = {re.split(r"[=./]", override.lstrip("+~"))[0] for override in request.overrides}
    if any(file.parts[0] not in ("experiment", "site") for file in files) or not keys.isdisjoint(_SUBJECTS):
        return plan
    searched = not (home / "conf" / "experiment").is_dir()  # see `measured_project`
    missing = f"no training script was {'found' if searched else 'named'} in {home} (--entry 'python SCRIPT' names one)"
    if request.overrides:
        return replace(plan, notes=(f"{missing}, so a small CNN on digits is measured instead", *plan.notes))
    names = ["/".join(file.with_suffix("").parts[1:]) for file in files if file.parts[0] == "experiment"]
    own = {f"accelsweep run experiment={name}": "an experiment in this folder" for name in names[:_MAX_EXPERIMENTS]}
    raise InputError(
        f"there is nothing to measure: no override is given, and {missing}. Type one of:\n"
        f"{command_list({**own, **FIRST_COMMANDS})}"
    )


def plan_to_show(home: Path, request: Request, *, keep_profile: bool = False) -> Plan:
    """Return the plan for a request without writing it; if searches must run first, warn and return their plan instead.

    Raises InputError if the profile does not fit the site, unless `keep_profile` is set.
    """
    plan = plan_or_searches(home, partial(requested_plan, home, request, keep_profile=keep_profile))
    if isinstance(plan, tuple):
        unsearched, plan = plan
        announce_searches(unsearched, plan, warn)
    if not keep_profile:
        check_profile(request.profile, plan.manifest.site)
    return plan


class _EarlierRuns(NamedTuple):
    """The number of planned runs that have a record, the settled and the outdated runs, and the observed durations.

    `outdated` is the number of settled runs to measure again, by what has changed.
    """

    recorded: int
    settled: set[str]
    outdated: dict[str, int]
    took: ObservedTimes


def _earlier_runs(home: Path, plan: Plan) -> _EarlierRuns:
    from accelsweep.driver.progress_display import observed_times
    from accelsweep.executor.result_reuse import CurrentConditions
    from accelsweep.planning.cost_estimate import RunTime
    from accelsweep.records.early_decisions import decided_runs
    from accelsweep.records.run_files import readable_records

    folder = SweepFolder(home, plan.manifest.sweep)
    begun = folder.begun_runs()  # most runs of a large plan have not begun
    current = CurrentConditions(folder, plan.manifest.site, since=driver_started_at(folder))
    settled, causes, times = set(decided_runs(folder, plan.manifest)), Counter[str](), list[RunTime | None]()
    for record in readable_records(folder, (run for run in plan.manifest.wanted_runs() if run in begun)):
        times.append(RunTime.of(record))
        if current.why_rerun(record) is None:
            settled.add(record.run)
        elif (cause := current.why_outdated(record)) is not None:
            causes[cause] += 1
    return _EarlierRuns(len(times), settled, dict(causes.most_common()), observed_times(folder, times))


def estimate_remaining(home: Path, plan: Plan) -> PlanEstimate:
    """Return the number of runs left to measure and how long they will take, based on earlier runs if there are any."""
    from accelsweep.planning.cost_estimate import estimate

    earlier = _earlier_runs(home, plan)
    return estimate(plan, earlier.settled, earlier.took)


def preview_table(home: Path, plan: Plan, rows: int | None = None) -> PlanTable:
    """Return the plan as a table, with the settled runs and the durations and noise observed in earlier runs.

    The table has at most this number of `rows`, if it is given.
    """
    return _table(home, plan, _earlier_runs(home, plan), rows)


def _table(home: Path, plan: Plan, earlier: _EarlierRuns, rows: int | None) -> PlanTable:
    from accelsweep.planning.cost_estimate import plan_table

    manifest, noise = plan.manifest, None
    if earlier.recorded:  # otherwise neither scipy nor pyarrow is needed
        from accelsweep.analysis.analyse_sweep import observed_noise
        from accelsweep.analysis.collect import read_runs

        noise = observed_noise(read_runs(SweepFolder(home, manifest.sweep), manifest), manifest)
    return plan_table(plan, earlier.settled, earlier.took, noise, outdated=earlier.outdated, rows=rows)


_MAX_ROWS = 40

_MAX_JOB_SIZES = 10


def preview_plan(home: Path, request: Request, *, keep_profile: bool = False, as_json: bool = False) -> None:
    """Plan a request without writing it; print the plan, the runs already settled, and what would disturb the others.

    Raises InputError like `plan_to_show`.
    """
    from accelsweep.measure.busy_now import OtherLoad

    load = OtherLoad()  # is observed while we plan
    plan = plan_to_show(home, request, keep_profile=keep_profile)
    table = preview_table(home, plan, rows=None if as_json else _MAX_ROWS)
    warnings = _disturbances(plan.manifest, table, load)
    if as_json:
        say(PlanAnswer(**dict(table), warnings=warnings).text())
    else:
        _print_plan(home, plan, table, warnings)


def show_plan(home: Path, plan: Plan) -> None:
    """Print a plan that is about to be run, and the runs already settled."""
    _print_plan(home, plan, preview_table(home, plan, rows=_MAX_ROWS))


def show_plan_to_run(home: Path, plan: Plan) -> None:
    """Print a plan like `show_plan`, but without its table of settings if all of its runs are settled."""
    earlier, manifest = _earlier_runs(home, plan), plan.manifest
    count = len(manifest.wanted_runs())
    if not count or not earlier.settled.issuperset(manifest.wanted_runs()):
        _print_plan(home, plan, _table(home, plan, earlier, _MAX_ROWS))
        return
    may_grow = manifest.options.auto_repeats or manifest.options.until_decided
    left = "" if may_grow else "; nothing is left to measure"
    say(f"{manifest.sweep}, revision {manifest.revision}: {count_of(count, 'run')}, {count} settled already{left}")
    for line in (*_reason_lines(manifest), *(f"note: {note}" for note in plan.notes)):
        say(line)


def _print_plan(home: Path, plan: Plan, table: PlanTable, warnings: Iterable[str] = ()) -> None:
    devices = shared_devices(plan.manifest.axes, (setting.config for setting in plan.settings))
    if table.settings:
        supported = sum(setting.unsupported is None for setting in plan.manifest.settings)
        show(_settings_table(table, supported, devices))
    else:
        say(f"{table.sweep}, revision {table.revision}: nothing to measure, because no setting can run{devices}")
    for line in (*_reason_lines(plan.manifest), *summary_lines(table)):
        say(line)
    for warning in warnings:
        say(f"warning: {warning}")
    for line in _job_lines(home, plan.manifest):
        say(line)


def _reason_lines(manifest: Manifest) -> Iterator[str]:
    """Yield a line for each reason why settings cannot run or are excluded."""
    axes: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for setting in manifest.settings:
        if setting.unsupported is not None:
            axes["unsupported", setting.unsupported].append(setting.axes)
    for excluded in manifest.excluded:
        axes["excluded", excluded.because].append(excluded.axes)
    for (heading, reason), these in axes.items():
        yield f"{heading}: {len(these)} x {reason} ({label(these[0])}{', ...' if these[1:] else ''})"


def _disturbances(manifest: Manifest, table: PlanTable, load: OtherLoad) -> tuple[str, ...]:
    """Describe other load on this machine, which matters only if runs are left and no cluster takes them."""
    if manifest.site.scheduler != "local" or table.settled == table.wanted:
        return ()
    return tuple(f"{sentence}: stop them, or they will disturb the runs" for sentence in load.sentences())


def _job_lines(home: Path, manifest: Manifest) -> list[str]:
    """Describe the number and size of a plan's cluster jobs, and the resources left idle if they occupy whole nodes."""
    scheduler = scheduler_of(manifest.site)
    if scheduler is None:
        return []
    limits = TimeLimits(SweepFolder(home, manifest.sweep), manifest)
    lines = []
    for needs, count in Counter(limits.of(block) for block in manifest.blocks).items():
        parts = [f"{scheduler.name}: {count} x {scheduler.in_words(needs)}", idle_resources(needs, manifest.site)]
        lines.append("\n       ".join(filter(None, [*parts, scheduler.command(needs)])))
    if len(lines) > _MAX_JOB_SIZES:
        lines[_MAX_JOB_SIZES:] = [f"{scheduler.name}: {len(lines) - _MAX_JOB_SIZES} more such lines"]
    if manifest.site.scheduler == "slurm":
        notes = withheld_variables(os.environ, manifest.site.slurm.secrets)
        lines += [f"{scheduler.name}: {note}" for note in notes]
    return lines


def _settings_table(table: PlanTable, settings: int, devices: str) -> Listing:
    rows = [
        (row.label, "baseline" if row.baseline else "", str(row.wanted), str(row.settled)) for row in table.settings
    ]
    if settings > len(rows):
        rows.append((f"... and {settings - len(rows)} more", "", "", ""))
    headings = ("setting", "", "runs", "measured already")
    title = f"{table.sweep}, revision {table.revision}: {settings} settings{devices}"
    return Listing(title, headings, tuple(rows), numbers=headings[2:])


def summary_lines(table: PlanTable) -> list[str]:
    """Return the lines under the table of settings: blocks, runs, time, cost, smallest detectable difference, notes."""
    notes = [f"note: {note}" for note in table.notes]
    if not table.settings:
        return notes
    estimate, effect = table.estimate, table.visible_effect
    new = sum(block.new for block in table.blocks)
    outdated = outdated_text(table.outdated)
    lines = [
        f"{count_of(len(table.blocks), 'block')} ({new} new), {count_of(table.wanted, 'run')}, "
        f"{table.settled} settled already{f' ({outdated})' if outdated else ''}"
    ]
    if estimate.runs_left:
        duration = approximate_duration(60 * estimate.minutes.expected)
        lines.append(f"left: {count_of(estimate.runs_left, 'run')}, about {duration} ({estimate.basis})")
        hours, usd = estimate.gpu_hours, estimate.usd
        gpus = f"about {hours.expected:.2f} GPU-hours (at most {hours.most:.2f})" if hours.most else ""
        if usd:
            cost = f"about {usd.expected:.2f} USD (at most {usd.most:.2f})"
            lines.append(f"      {f'{gpus}, ' if gpus else ''}{cost}")
        elif gpus:
            lines.append(f"      {gpus}, cost unknown: {estimate.usd_reason}")
    power = f"unknown: {effect.reason}"
    if effect.effect is not None:
        power = f"8 of 10 such sweeps would show a true difference of {effect.effect:.1%} ({effect.assumption})"
    return [*lines, f"expected power: {power}", *notes]
