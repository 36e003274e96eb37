"""The Snakefile's view of a sweep: file names, digests that trigger reruns, and the resources of a block's job.

The main Snakemake process may first plan the sweep, and audits existing files; job processes only read the manifest.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from accelsweep.config.site import JobOptions, Site
from accelsweep.config.sweep_options import PILOT_BLOCKS
from accelsweep.driver.job_queue import check_jobs_accepted
from accelsweep.driver.snakemake_hooks import cache_slurm_configuration, override_retries, override_slurm_polling
from accelsweep.driver.sweep_lock import active_driver, clear_leftovers, lock_sweep, refuse_unwritable
from accelsweep.errors import AccelsweepError, InputError
from accelsweep.files import sha256_file
from accelsweep.installation import executor_plugin_install_command, shipped_root
from accelsweep.plain_json import canonical_json, sha256_text
from accelsweep.planning.resources import allocated_gpus
from accelsweep.records.layout import SweepFolder, existing_sweep, sweep_name_in
from accelsweep.records.not_run_reasons import read_halt
from accelsweep.records.plan import BLOCK_NAME, Manifest, PlannedBlock
from accelsweep.records.sweep_commands import sweep_command
from accelsweep.schedulers.job_environment import (
    KEPT_THREADS_VARIABLE,
    kept_threads,
    secrets_in,
    withheld_variables,
    without_options,
)
from accelsweep.schedulers.protocol import Resources, Scheduler, Value, python
from accelsweep.schedulers.select import scheduler_of
from accelsweep.schedulers.slurm import keep_restarts

if TYPE_CHECKING:
    from accelsweep.planning.cost_estimate import TimeLimits

_PACKAGE = Path(__file__).resolve().parents[1]

_NOT_MEASURING = ("__main__.py", "analysis", "api.py", "cli", "driver", "report", "tracking")
"""Packages and root modules that do not affect a measurement."""


def code_digest(*, without: Sequence[str] = (), package: Path = _PACKAGE) -> str:
    """Return a digest of our code, except for the packages and root modules in `without`.

    The digest does not depend on the installation: the folder `shipped`, which exists only in an installed package, is
    excluded.
    """
    parts = sorted(part for part in package.iterdir() if part.name not in (*without, "__pycache__", "shipped"))
    return _digest([digests for part in parts if (digests := _file_digests(part))])


@cache
def _file_digests(part: Path) -> list[tuple[str, str]]:
    files = sorted(path for path in part.rglob("*.*") if path.suffix != ".pyc") if part.is_dir() else [part]
    return [(str(path.relative_to(part.parent)), sha256_file(path)) for path in files]


def _digest(value: Any) -> str:
    return sha256_text(canonical_json(value))[:16]


GPUS_HELD = "gpus_held"
"""The Snakemake resource that the site's `max_gpus` limits."""


class _KindLimits(NamedTuple):
    """A node kind with its own limits, and the names of its Snakemake resources."""

    kind: str
    jobs: JobOptions
    gpus_held: str
    job_count: str


def resource_limits(site: Site) -> dict[str, int | None]:
    """Return the limit of each Snakemake resource for all jobs together; None means unlimited."""
    limits = {GPUS_HELD: site.jobs.max_gpus, "_nodes": site.jobs.max_jobs}
    for kind in _limited_kinds(site):
        limits |= {kind.gpus_held: kind.jobs.max_gpus, kind.job_count: kind.jobs.max_jobs}
    return limits


def resource_usage(needs: Resources, site: Site) -> dict[str, int]:
    """Return how much of each limited resource a job uses. All jobs of a site use the same resource names."""
    held = allocated_gpus(needs, site)
    usage = {GPUS_HELD: _capped(held, site.jobs)}
    for kind in _limited_kinds(site):
        matches = needs.node_kind == kind.kind
        usage |= {kind.gpus_held: _capped(held, kind.jobs) if matches else 0, kind.job_count: int(matches)}
    return usage


def _limited_kinds(site: Site) -> Iterator[_KindLimits]:
    for number, kind in enumerate(site.kinds):
        jobs = site.of_kind(kind.name).jobs
        if (jobs.max_gpus, jobs.max_jobs) != (site.jobs.max_gpus, site.jobs.max_jobs):
            yield _KindLimits(kind.name, jobs, f"kind_{number}_{GPUS_HELD}", f"kind_{number}_jobs")


def _capped(held: int, jobs: JobOptions) -> int:
    """Return the GPU count, capped at the limit so that a CPU job on whole nodes with more GPUs can still run."""
    return held if jobs.max_gpus is None else min(held, jobs.max_gpus)


def find_profile(profile: str) -> Path:
    """Return the folder of a Snakemake profile, given its path or its name in workflows/profiles."""
    shipped = shipped_root() / "workflows" / "profiles"
    for candidate in (Path(profile), shipped / profile):
        if candidate.is_dir() and any(candidate.glob("*.yaml")):
            return candidate.resolve()
    known = ", ".join(sorted(path.name for path in shipped.iterdir() if path.is_dir()))
    raise InputError(f"no Snakemake profile {profile!r}: pass a folder with a profile.yaml, or one of: {known}")


def profile_executor(profile: str) -> str:
    """Return the Snakemake executor that a profile sets."""
    folder = find_profile(profile)
    files = [folder / name for name in ("profile.yaml", "config.yaml") if (folder / name).is_file()]
    match = re.search(r"^executor:\s*['\"]?([\w-]+)", files[0].read_text("utf-8"), re.MULTILINE) if files else None
    return "local" if match is None else match[1]


def check_profile(profile: str, site: Site) -> None:
    """Raise InputError if the profile's executor does not fit the site, or is not installed."""
    executor = profile_executor(profile)
    check_executor(site, executor)
    if install := executor_plugin_install_command(executor):
        raise InputError(f"the profile {Path(profile).name!r} needs Snakemake's executor '{executor}': {install}")


def check_executor(site: Site, executor: str) -> None:
    """Raise InputError if Snakemake's `executor` would run blocks locally that the site submits, or vice versa.

    Also raised if the executor submits to a different scheduler.
    """
    scheduler = scheduler_of(site)
    if scheduler is not None and executor != scheduler.executor:
        effect = "measure on this machine" if executor == "local" else f"submit through its executor '{executor}'"
        raise InputError(
            f"the site '{site.name}' submits to {scheduler.name}, but Snakemake would {effect}: "
            f"add --profile {scheduler.profile} (for snakemake itself: "
            f"--profile workflows/profiles/{scheduler.profile}), or choose site=local"
        )
    if scheduler is None and executor != "local":
        raise InputError(
            f"the site '{site.name}' is this machine, but Snakemake would submit jobs: "
            "add site=NAME, a file in conf/site/ with `scheduler: slurm` (see conf/site/slurm_example.yaml), "
            "or use --profile local"
        )


PYTHON_VARIABLE = "ACCELSWEEP_PYTHON"
"""Environment variable with our interpreter's path, for commands in profiles, which are static files."""

SWEEP_VARIABLE = "ACCELSWEEP_SWEEP"
"""Environment variable that tells jobs the name of the sweep that the main process planned from `experiment`."""


@dataclass(frozen=True)
class Sweep:
    """A planned sweep, as seen by the Snakefile. Paths are relative to the working directory."""

    folder: SweepFolder
    manifest: Manifest

    def _relative(self, path: Path) -> str:
        return str(path.relative_to(self.folder.home))

    @property
    def root(self) -> str:
        """`sweeps/NAME`."""
        return self._relative(self.folder.root)

    @property
    def done_files(self) -> list[str]:
        """The done file of each block, which exists once all of the block's runs have records."""
        return [self._relative(self.folder.done(block.name)) for block in self.manifest.blocks]

    @property
    def results(self) -> list[str]:
        """The table of all records, the findings, and the report page."""
        return [self._relative(path) for path in (self.folder.records, self.folder.findings, self.folder.page)]

    @property
    def published(self) -> str:
        """The marker file for records that were copied to MLflow."""
        return self._relative(self.folder.copied)

    @cached_property
    def software_digest(self) -> str:
        """A digest of everything a measurement depends on: versions, the user's sources, and our measuring code."""
        return _digest([self.manifest.versions, self.manifest.sources, code_digest(without=_NOT_MEASURING)])

    def runs_digest(self, wildcards: Any) -> str:
        """Return a digest of a block's runs in this revision of the plan."""
        return _digest(list(self._block(wildcards).runs))

    @cached_property
    def scheduler(self) -> Scheduler | None:
        """The scheduler that runs the blocks; None if they are measured locally."""
        return scheduler_of(self.manifest.site)

    @property
    def job_resources(self) -> dict[str, Callable[[Any, int], Value]]:
        """The resources of a block's job, keyed by name; empty without a scheduler."""
        return self._resources(like=Resources())

    @property
    def multi_node_resources(self) -> dict[str, Callable[[Any, int], Value]]:
        """The resources of a multi-node block's job, keyed by name."""
        return self._resources(like=Resources(nodes=2, tasks=2))

    def _resources(self, like: Resources) -> dict[str, Callable[[Any, int], Value]]:
        """Return functions that compute a block's job resources, keyed by name; `like` determines the names."""
        scheduler = self.scheduler
        if scheduler is None:
            return {}

        def values(needs: Resources) -> dict[str, Value]:
            return {**scheduler.resources(needs), **resource_usage(needs, self.manifest.site)}

        def resource(name: str) -> Callable[[Any, int], Value]:
            return lambda wildcards, attempt: values(self._needs(wildcards, attempt))[name]

        return {name: resource(name) for name in values(like)}

    def _needs(self, wildcards: Any, attempt: int) -> Resources:
        """Return the resources that a block's job needs; a resubmitted job keeps the planned time limit."""
        block = self._block(wildcards)
        return self._time_limits.of(block) if attempt == 1 else block.resources

    @cached_property
    def _time_limits(self) -> TimeLimits:
        from accelsweep.planning.cost_estimate import TimeLimits  # reads records, which is pointless without jobs

        return TimeLimits(self.folder, self.manifest)

    def _block(self, wildcards: Any) -> PlannedBlock:
        return next(block for block in self.manifest.blocks if block.name == wildcards.block)

    def is_skipped(self, block: str) -> bool:
        """Return whether the driver has skipped this block in the current command."""
        try:
            halt = read_halt(self.folder, block)
        except (OSError, AccelsweepError):  # an error in this callback would make Snakemake wait forever
            return False
        return halt is not None and halt.retry != "now"

    def block_pattern(self, *, multi_node: bool) -> str:
        """Return a regular expression that matches the blocks that use several nodes, or those that use one."""
        wide = "|".join(block.name for block in self.manifest.blocks if block.resources.nodes > 1) or "none"
        return f"(?:{wide})" if multi_node else rf"(?!(?:{wide})\b){BLOCK_NAME}"

    def python(self, wildcards: Any) -> str:
        """Return the shell command that starts Python for a block."""
        if self.scheduler is None:
            return shlex.quote(sys.executable)
        needs = self._block(wildcards).resources
        return python(self.manifest.site.of_kind(needs.node_kind).jobs, sys.executable, needs.nodes)

    def before_block(self, wildcards: Any) -> str:
        """Return shell commands that prepare the node for a block."""
        return self.scheduler.before_block(self._block(wildcards).resources) if self.scheduler else ""

    def apply_limits(self, workflow: Any) -> None:
        """Limit the main Snakemake process to the GPUs and queued jobs that the site and its node kinds allow."""
        for name, limit in resource_limits(self.manifest.site).items():
            if workflow.is_main_process and limit is not None:
                given = workflow.global_resources.get(name)
                workflow.register_resource(name, min(limit, given.value) if given and given.value else limit)

    def needs_preparation(self) -> bool:
        """Return whether data must be prepared, which takes a process with torch and the user's modules."""
        from accelsweep.executor.prepare_data import is_prepared  # only the main process needs it

        return not is_prepared(self.folder)

    def remove_secrets(self) -> None:
        """Remove secrets from the environment, which sbatch copies into jobs in its entirety, and report their names.

        Must be called after everything that may need the secrets, such as downloading data.
        """
        site = self.manifest.site
        if site.scheduler != "slurm":  # jobs of other schedulers are submitted by our own programs
            return
        kinds = (site, *(site.of_kind(kind.name) for kind in site.kinds))
        listed = [name for kind in kinds for name in kind.slurm.secrets]
        for note in withheld_variables(os.environ, listed):
            print(note, file=sys.stderr)  # noqa: T201 - for users of plain Snakemake
        for name in secrets_in(os.environ, listed):
            del os.environ[name]

    def check_executor(self, workflow: Any) -> None:
        """Raise WorkflowError if Snakemake's executor does not fit the site, or the scheduler would reject the jobs."""
        from snakemake.exceptions import WorkflowError

        try:
            executor = "local" if workflow.local_exec else workflow.executor_plugin.name
            check_executor(self.manifest.site, executor)
            if active_driver(self.folder) is None:  # a driver would already have checked this
                left = [block.resources for block in self.manifest.blocks if not self.folder.done(block.name).exists()]
                check_jobs_accepted(self.manifest.site, left, partial(print, file=sys.stderr))
        except InputError as error:
            raise WorkflowError(str(error)) from None

    def install_hooks(self, workflow: Any) -> None:
        """Override Snakemake's retries of failed jobs and its polling of Slurm."""
        override_retries(workflow, self.done_files, self.scheduler, self.is_skipped)
        driven = active_driver(self.folder) is not None
        override_slurm_polling(workflow, self.folder.name, self._relative(self.folder.jobs_changed), driven=driven)


def load_sweep(config: Mapping[str, Any], *, is_main: bool) -> Sweep:
    """Return the sweep that Snakemake's config specifies; the main process may plan it first.

    `config` contains `sweep` (a planned sweep, as NAME or sweeps/NAME), or `experiment` or `entry` (the command of the
    user's own training script) with `overrides` (Hydra overrides, separated by spaces) and `name`; jobs receive the
    same config. Raises WorkflowError, which Snakemake prints without a traceback.
    """
    from snakemake.exceptions import WorkflowError

    keep_restarts()
    try:
        home = Path.cwd()
        names_sweep = {"experiment", "entry"}.isdisjoint(config)
        folder = existing_sweep(home, _name(config)) if names_sweep or not is_main else _plan(home, config)
        sweep = Sweep(folder, Manifest.read(folder.manifest))
        if is_main:
            _prepare(sweep)
        return sweep
    except AccelsweepError as error:
        raise WorkflowError(str(error)) from None


def _prepare(sweep: Sweep) -> None:
    """Set up the environment and the files for the main process."""
    from accelsweep.executor.result_reuse import audit

    folder, manifest = sweep.folder, sweep.manifest
    if manifest.site.scheduler == "slurm":
        for name in os.environ.keys() - without_options(os.environ).keys():
            del os.environ[name]
    os.environ |= {
        SWEEP_VARIABLE: folder.name,
        PYTHON_VARIABLE: sys.executable,
        KEPT_THREADS_VARIABLE: kept_threads(os.environ),
    }
    if active_driver(folder) is None:
        refuse_unwritable(folder)
        clear_leftovers(folder, partial(print, file=sys.stderr))
        if manifest.options.pilot:
            # Snakemake's graph is fixed, so the blocks after the pilot need another command.
            note = f"repeats=auto: Snakemake alone measures the {PILOT_BLOCKS} blocks of the pilot. Then continue with:"
            print(note, sweep_command(manifest), file=sys.stderr)  # noqa: T201 - for users of plain Snakemake
    audit(folder, check_conditions=True)
    if manifest.site.scheduler == "slurm":
        cache_slurm_configuration()


def _plan(home: Path, config: Mapping[str, Any]) -> SweepFolder:
    from accelsweep.planning.plan import make_plan, write_plan

    overrides = str(config.get("overrides", ""))
    name = str(config["name"]) if "name" in config else None
    entry = str(config["entry"]) if "entry" in config else None
    experiment = [f"experiment={config['experiment']}"] if "experiment" in config else []
    plan = make_plan(home, [*experiment, *shlex.split(overrides)], name=name, entry=entry)
    if plan.manifest.site.scheduler != "local" and not {"'", '"'}.isdisjoint(f"{overrides} {entry}"):
        raise InputError(
            "overrides and entries with quotes do not reach cluster jobs intact: Snakemake passes them through two "
            "shells. Write such a value to a file in conf/, or use accelsweep run"
        )
    with lock_sweep(SweepFolder(home, plan.manifest.sweep)):  # only a running sweep's driver may replace its plan
        return write_plan(home, plan)


def _name(config: Mapping[str, Any]) -> str:
    for key in ("sweep", "name"):
        if key in config:
            return sweep_name_in(str(config[key]))
    if SWEEP_VARIABLE in os.environ and not {"experiment", "entry"}.isdisjoint(config):
        return os.environ[SWEEP_VARIABLE]
    raise InputError(
        "name a sweep: --config sweep=NAME for a planned one, or --config experiment=NAME or entry='python SCRIPT' to "
        "plan it"
    )
