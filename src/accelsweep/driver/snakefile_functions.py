"""The Snakefile's view of a sweep: names of files, digests that trigger a rerun, resources of a block.

The main Snakemake process may plan first, and it audits the existing files; job processes only read the manifest.
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

from accelsweep import registry
from accelsweep.config.site import JobOptions, Site
from accelsweep.config.sweep_options import PILOT_BLOCKS
from accelsweep.driver import job_retries
from accelsweep.driver.job_queue import refuse_before_submission
from accelsweep.driver.slurm_job_status import follow_jobs, read_configuration_once
from accelsweep.driver.sweep_lock import living_head, make_ready, refuse_unwritable
from accelsweep.errors import AccelsweepError, InputError
from accelsweep.files import sha256_file
from accelsweep.installation import executor_plugin_install_command, shipped_root
from accelsweep.plain_json import canonical_json, sha256_text
from accelsweep.planning.resources import allocated_gpus
from accelsweep.records.layout import SweepFolder, existing_sweep, sweep_name_in
from accelsweep.records.plan import BLOCK_NAME, Manifest, PlannedBlock
from accelsweep.records.stop_reasons import halt_of
from accelsweep.schedulers.job_environment import secrets_in, without_options
from accelsweep.schedulers.protocol import Engine, Resources, Value, python
from accelsweep.schedulers.select import engine_of
from accelsweep.schedulers.slurm import keep_restarts

if TYPE_CHECKING:
    from accelsweep.planning.cost_estimate import TimeLimits


# The digest of our code: of all of it, or of what a measurement depends on.

_PACKAGE = Path(__file__).resolve().parents[1]

_NOT_MEASURING = ("__main__.py", "analysis", "api.py", "cli", "driver", "report", "tracking")
"""The packages and root modules without which a run is measured."""


def code_digest(*, without: Sequence[str] = (), package: Path = _PACKAGE) -> str:
    """Return a digest of all our code, save that of some packages and root modules.

    It is the same wherever the code lies: only what was installed has the folder of shipped files.
    """
    parts = sorted(part for part in package.iterdir() if part.name not in (*without, "__pycache__", "shipped"))
    return sha256_text(canonical_json([found for part in parts if (found := _source(part))]))[:16]


@cache
def _source(folder: Path) -> list[tuple[str, str]]:
    files = sorted(path for path in folder.rglob("*.*") if path.suffix != ".pyc") if folder.is_dir() else [folder]
    return [(str(path.relative_to(folder.parent)), sha256_file(path)) for path in files]


# A site's limits as resources of Snakemake: what each job takes of them, and the most that all jobs may take at once.

GPUS_HELD = "gpus_held"
"""The resource of a job that `max_gpus` of the site bounds."""


class _OfKind(NamedTuple):
    """A kind of node that has limits of its own, and the names of its resources."""

    kind: str
    jobs: JobOptions
    gpus_held: str
    jobs_at_once: str


def limits(site: Site) -> dict[str, int | None]:
    """Return the most that all jobs together may take of each resource; None is no bound."""
    found = {GPUS_HELD: site.jobs.max_gpus, "_nodes": site.jobs.max_jobs}
    for one in _limited_kinds(site):
        found |= {one.gpus_held: one.jobs.max_gpus, one.jobs_at_once: one.jobs.max_jobs}
    return found


def taken(needs: Resources, site: Site) -> dict[str, int]:
    """Return what a job with these `needs` takes of each resource. The names are the same for all jobs of a site."""
    held = allocated_gpus(needs, site)
    found = {GPUS_HELD: _within(held, site.jobs)}
    for one in _limited_kinds(site):
        here = needs.node_kind == one.kind
        found |= {one.gpus_held: _within(held, one.jobs) if here else 0, one.jobs_at_once: int(here)}
    return found


def _limited_kinds(site: Site) -> Iterator[_OfKind]:
    for number, kind in enumerate(site.kinds):
        jobs = site.of_kind(kind.name).jobs
        if (jobs.max_gpus, jobs.max_jobs) != (site.jobs.max_gpus, site.jobs.max_jobs):
            yield _OfKind(kind.name, jobs, f"kind_{number}_{GPUS_HELD}", f"kind_{number}_jobs")


def _within(held: int, jobs: JobOptions) -> int:
    """Return how many of the `held` GPUs count: no more than the limit, or a job of a CPU setting might never run."""
    return held if jobs.max_gpus is None else min(held, jobs.max_gpus)


# Snakemake's profiles: found by name or path, and checked against the site of their jobs.


def find_profile(profile: str) -> Path:
    """Return the folder of a Snakemake profile, by path or by its name in workflows/profiles."""
    shipped = shipped_root() / "workflows" / "profiles"
    for candidate in (Path(profile), shipped / profile):
        if candidate.is_dir() and any(candidate.glob("*.yaml")):
            return candidate.resolve()
    known = ", ".join(sorted(path.name for path in shipped.iterdir() if path.is_dir()))
    raise InputError(f"no Snakemake profile {profile!r}: give a folder with a profile.yaml, or one of: {known}")


def executor_of(profile: Path) -> str:
    """Return the executor of Snakemake that a profile names."""
    files = [profile / name for name in ("profile.yaml", "config.yaml") if (profile / name).is_file()]
    named = re.search(r"^executor:\s*['\"]?([\w-]+)", files[0].read_text("utf-8"), re.MULTILINE) if files else None
    return "local" if named is None else named[1]


def check_profile(profile: Path, site: Site) -> None:
    """Raise InputError where the profile would submit jobs that the site runs itself, or the other way round.

    So it does where Snakemake lacks the profile's executor.
    """
    executor = executor_of(profile)
    check_executor(site, executor)
    if remedy := executor_plugin_install_command(executor):
        raise InputError(f"the profile {profile.name!r} needs Snakemake's executor '{executor}': {remedy}")


def check_executor(site: Site, executor: str) -> None:
    """Raise InputError where Snakemake's `executor` would run jobs here that the site submits, or the other way round.

    So it does where a profile is one for another engine.
    """
    engine = engine_of(site)
    if engine is not None and executor != engine.executor:
        what = "measure on this machine" if executor == "local" else f"submit through its executor '{executor}'"
        raise InputError(
            f"the site '{site.name}' submits to {engine.name}, but Snakemake would {what}: "
            f"add --profile {engine.profile} (for snakemake itself: --profile workflows/profiles/{engine.profile}), "
            "or choose site=local"
        )
    if engine is None and executor != "local":
        raise InputError(
            f"the site '{site.name}' is this machine, but Snakemake would submit jobs: "
            "add site=NAME, a file in conf/site/ with `scheduler: slurm` (see conf/site/slurm_example.yaml), "
            "or take --profile local"
        )


PYTHON_VARIABLE = "ACCELSWEEP_PYTHON"
"""Names our interpreter for the commands of a profile, which is a file and cannot know it."""

SWEEP_VARIABLE = "ACCELSWEEP_SWEEP"
"""Environment variable that names the sweep of its `experiment`: the main process sets it for its jobs."""


@dataclass(frozen=True)
class Sweep:
    """A planned sweep as the Snakefile sees it. Paths are relative to the working directory."""

    folder: SweepFolder
    manifest: Manifest

    @property
    def root(self) -> str:
        """`sweeps/NAME`."""
        return self._from_home(self.folder.root)

    @property
    def report(self) -> str:
        """The page of the report, the last output."""
        return self._from_home(self.folder.page)

    @property
    def concluded(self) -> list[str]:
        """The table of all records, and the findings."""
        return [self._from_home(path) for path in (self.folder.records, self.folder.findings)]

    @property
    def published(self) -> str:
        """The mark that the records were copied to MLflow."""
        return self._from_home(self.folder.copied)

    @property
    def done_files(self) -> list[str]:
        """The files that each block leaves when all its runs have records."""
        return [self._from_home(self.folder.done(block.name)) for block in self.manifest.blocks]

    def _from_home(self, path: Path) -> str:
        return str(path.relative_to(self.folder.home))

    @cached_property
    def software(self) -> str:
        """A digest of the versions, the user's packages and our measuring code, which a measurement depends on."""
        return _digest([self.manifest.versions, self.manifest.sources, code_digest(without=_NOT_MEASURING)])

    def wanted(self, wildcards: Any) -> str:
        """Return a digest of the runs that this revision wants of a block."""
        return _digest(list(self._block(wildcards).runs))

    @cached_property
    def engine(self) -> Engine | None:
        """What takes the blocks as jobs; None where they are measured here."""
        return engine_of(self.manifest.site)

    @property
    def job(self) -> dict[str, Callable[[Any, int], Value]]:
        """The resources of a block's job, by name; nothing where no job is submitted."""
        return self._asked(like=Resources())

    @property
    def job_across_nodes(self) -> dict[str, Callable[[Any, int], Value]]:
        """The resources of a job for a block of several nodes, by name."""
        return self._asked(like=Resources(nodes=2, tasks=2))

    def _asked(self, like: Resources) -> dict[str, Callable[[Any, int], Value]]:
        """Return what is asked for a block, by the names of a block `like` this."""
        engine = self.engine
        if engine is None:
            return {}

        def of(needs: Resources) -> dict[str, Value]:
            return {**engine.resources(needs), **taken(needs, self.manifest.site)}

        def asked(name: str) -> Callable[[Any, int], Value]:
            return lambda wildcards, attempt: of(self._needs(wildcards, attempt))[name]

        return {name: asked(name) for name in of(like)}

    def left_out(self, block: str) -> bool:
        """Return whether the head has given a block up in this command."""
        try:
            halt = halt_of(self.folder, block)
        except (OSError, AccelsweepError):  # whoever asks is a callback of Snakemake, which would wait for ever
            return False
        return halt is not None and halt.again != "now"

    def blocks(self, *, across_nodes: bool) -> str:
        """Return the regular expression of the blocks that take several nodes, or of those that take one."""
        wide = "|".join(block.name for block in self.manifest.blocks if block.resources.nodes > 1) or "none"
        return f"(?:{wide})" if across_nodes else rf"(?!(?:{wide})\b){BLOCK_NAME}"

    def python(self, wildcards: Any) -> str:
        """Return the shell words that start Python for a block."""
        if self.engine is None:
            return shlex.quote(sys.executable)
        needs = self._block(wildcards).resources
        return python(self.manifest.site.of_kind(needs.node_kind).jobs, sys.executable, needs.nodes)

    def before_block(self, wildcards: Any) -> str:
        """Return shell commands that prepare the node for a block."""
        return self.engine.before_block(self._block(wildcards).resources) if self.engine else ""

    @property
    def before_findings(self) -> str:
        """The shell commands that features run when all jobs of a cluster have ended; empty without a cluster."""
        if self.manifest.site.scheduler == "local":
            return ""
        programs = [feature.after_blocks for feature in registry.features() if feature.after_blocks]
        return "".join(
            f"{shlex.quote(sys.executable)} -P -m {program} {shlex.quote(self.root)} || true; " for program in programs
        )

    def hold_limits(self, workflow: Any) -> None:
        """Hold every main Snakemake to the limits of the site and of its kinds: GPUs at once, jobs in the queue."""
        for name, most in limits(self.manifest.site).items():
            if workflow.is_main_process and most is not None:
                given = workflow.global_resources.get(name)
                workflow.register_resource(name, min(most, given.value) if given and given.value else most)

    def leave_secrets_behind(self) -> None:
        """Take variables that tell of a secret out of the environment, all of which sbatch hands to jobs; name them.

        To be called when all has been done that may need them, such as the download of data.
        """
        site = self.manifest.site
        if site.scheduler != "slurm":  # other engines' jobs are submitted by programs of ours
            return
        sites = (site, *(site.of_kind(kind.name) for kind in site.kinds))
        names = secrets_in(os.environ, (name for one in sites for name in one.slurm.secrets))
        for name in names:
            del os.environ[name]
        if names:
            kept = f"jobs do not get {', '.join(names)}: if they need one, list it in site.slurm.secrets"
            print(kept, file=sys.stderr)  # noqa: T201 - what Snakemake's user reads

    def check_executor(self, workflow: Any) -> None:
        """Raise WorkflowError where blocks would run on this machine and must not, or the other way round.

        So it does where the engine would refuse their jobs.
        """
        from snakemake.exceptions import WorkflowError

        try:
            executor = "local" if workflow.local_exec else workflow.executor_plugin.name
            check_executor(self.manifest.site, executor)
            if living_head(self.folder) is None:  # Snakemake alone: a command of ours has asked before
                left = [block.resources for block in self.manifest.blocks if not self.folder.done(block.name).exists()]
                refuse_before_submission(self.manifest.site, left, partial(print, file=sys.stderr))
        except InputError as error:
            raise WorkflowError(str(error)) from None

    def follow_jobs(self, workflow: Any) -> None:
        """Decide about failed jobs of blocks, and let Snakemake ask Slurm only when there is something to learn."""
        job_retries.decide(workflow, self.done_files, self.engine, self.left_out)
        driven = living_head(self.folder) is not None
        follow_jobs(workflow, self.folder.name, self._from_home(self.folder.jobs_changed), driven=driven)

    def _needs(self, wildcards: Any, attempt: int) -> Resources:
        """Return what a block's job asks for; a job that is submitted again has the planned time limit."""
        block = self._block(wildcards)
        return self._time_limits.of(block) if attempt == 1 else block.resources

    @cached_property
    def _time_limits(self) -> TimeLimits:
        from accelsweep.planning.cost_estimate import TimeLimits  # reads records: of no use where no job is submitted

        return TimeLimits(self.folder, self.manifest)

    def _block(self, wildcards: Any) -> PlannedBlock:
        return next(block for block in self.manifest.blocks if block.name == wildcards.block)


def sweep_of_config(config: Mapping[str, Any], *, plan_if_asked: bool) -> Sweep:
    """Return the sweep that Snakemake's config names, planned first if this is the main process.

    `config` holds either `sweep` (planned before; NAME or sweeps/NAME) or `experiment`, with `overrides` (Hydra's,
    separated by spaces) and `name`; jobs are handed the same. Raises WorkflowError, of which Snakemake prints the
    message and no traceback.
    """
    from snakemake.exceptions import WorkflowError

    keep_restarts()
    try:
        home = Path.cwd()
        if plan_if_asked and "experiment" in config:
            folder = _planned(home, config)
        else:
            folder = existing_sweep(home, _sweep_name(config))
        manifest = Manifest.read(folder.manifest)
        if plan_if_asked:
            from accelsweep.executor.result_reuse import audit

            if manifest.site.scheduler == "slurm":
                for name in os.environ.keys() - without_options(os.environ).keys():
                    del os.environ[name]
            os.environ |= {SWEEP_VARIABLE: folder.name, PYTHON_VARIABLE: sys.executable}
            if living_head(folder) is None:
                refuse_unwritable(folder)
                make_ready(folder, lambda line: print(line, file=sys.stderr))  # noqa: T201 - what Snakemake's user reads
                _tell_of_pilot(manifest)
            audit(folder, check_conditions=True)
            if manifest.site.scheduler == "slurm":
                read_configuration_once()
        return Sweep(folder, manifest)
    except AccelsweepError as error:
        raise WorkflowError(str(error)) from None


def _tell_of_pilot(manifest: Manifest) -> None:
    """Say how `repeats: auto` continues. Snakemake has one fixed graph, so later blocks need another command."""
    if manifest.options.pilot:
        from accelsweep.analysis.headline import sweep_command

        go_on = f"repeats=auto: Snakemake alone measures the {PILOT_BLOCKS} blocks of the pilot. Then go on with:"
        print(go_on, sweep_command(manifest), file=sys.stderr)  # noqa: T201 - what Snakemake's user reads


def _planned(home: Path, config: Mapping[str, Any]) -> SweepFolder:
    from accelsweep.driver.sweep_lock import held
    from accelsweep.planning.plan import make_plan, write_plan

    given = str(config.get("overrides", ""))
    name = str(config["name"]) if "name" in config else None
    plan = make_plan(home, [f"experiment={config['experiment']}", *shlex.split(given)], name=name)
    if plan.manifest.site.scheduler != "local" and not {"'", '"'}.isdisjoint(given):
        raise InputError(
            "overrides with quotes do not reach jobs of a cluster whole: Snakemake hands them through two shells. "
            "Write such a value into a file of conf/, or use accelsweep run"
        )
    with held(SweepFolder(home, plan.manifest.sweep)):  # the plan of a sweep that is being run belongs to its head
        return write_plan(home, plan)


def _sweep_name(config: Mapping[str, Any]) -> str:
    for key in ("sweep", "name"):
        if key in config:
            return sweep_name_in(str(config[key]))
    if "experiment" in config and SWEEP_VARIABLE in os.environ:
        return os.environ[SWEEP_VARIABLE]
    raise InputError("name a sweep: --config sweep=NAME for a planned one, or --config experiment=NAME to plan it")


def _digest(value: Any) -> str:
    return sha256_text(canonical_json(value))[:16]
