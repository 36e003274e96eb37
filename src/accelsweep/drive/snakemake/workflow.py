"""The Snakefile's view of a sweep: names of files, digests that trigger a rerun, resources of a block.

The main Snakemake process may plan first, and it audits the existing files; job processes only read the manifest.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from accelsweep.base.documents import canonical_json, sha256_text
from accelsweep.base.errors import AccelsweepError, InputError
from accelsweep.base.rooms import code_of
from accelsweep.core.planned.names import BLOCK_NAME
from accelsweep.core.planned.plans import Manifest, PlannedBlock, Resources
from accelsweep.core.planned.settings import PILOT
from accelsweep.drive.head import living_head
from accelsweep.drive.jobs import retries
from accelsweep.drive.jobs.failures import refuse_before_submission
from accelsweep.drive.ready import make_ready, refuse_unwritable
from accelsweep.drive.slurm.job_status import follow_jobs, read_configuration_once
from accelsweep.drive.snakemake.limits import limits, taken
from accelsweep.drive.snakemake.profiles import check_executor
from accelsweep.engines.engine import Engine, Value
from accelsweep.engines.environment import secrets_in, undisturbed
from accelsweep.engines.known import engine_of
from accelsweep.engines.node import python
from accelsweep.engines.slurm.options import keep_restarts
from accelsweep.state.folders import SweepFolder, existing_sweep
from accelsweep.state.halts import halt_of
from accelsweep.state.names import sweep_name_in

if TYPE_CHECKING:
    from accelsweep.plan.estimates.took import TimeLimits

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
        return _digest([self.manifest.versions, self.manifest.sources, code_of("supervise")])

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
        """The shell command that asks the cluster about the sweep's jobs, which have ended; empty without a cluster."""
        if self.manifest.site.scheduler != "slurm":
            return ""
        return (
            f"{shlex.quote(sys.executable)} -P -m accelsweep.drive.slurm.accounting {shlex.quote(self.root)} || true; "
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
        if site.scheduler != "slurm":  # for Grid Engine our own program submits
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
        retries.decide(workflow, self.done_files, self.engine, self.left_out)
        driven = living_head(self.folder) is not None
        follow_jobs(workflow, self.folder.name, self._from_home(self.folder.jobs_changed), driven=driven)

    def _needs(self, wildcards: Any, attempt: int) -> Resources:
        """Return what a block's job asks for; a job that is submitted again has the planned time limit."""
        block = self._block(wildcards)
        return self._time_limits.of(block) if attempt == 1 else block.resources

    @cached_property
    def _time_limits(self) -> TimeLimits:
        from accelsweep.plan.estimates.took import TimeLimits  # reads records: of no use where no job is submitted

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
            from accelsweep.supervise.standing.audit import audit

            if manifest.site.scheduler == "slurm":
                for name in os.environ.keys() - undisturbed(os.environ).keys():
                    del os.environ[name]
            os.environ |= {SWEEP_VARIABLE: folder.name, PYTHON_VARIABLE: sys.executable}
            if living_head(folder) is None:
                refuse_unwritable(folder)
                make_ready(folder, lambda line: print(line, file=sys.stderr))  # noqa: T201 - what Snakemake's user reads
                _tell_of_pilot(manifest)
            audit(folder, check_present=True)
            if manifest.site.scheduler == "slurm":
                read_configuration_once()
        return Sweep(folder, manifest)
    except AccelsweepError as error:
        raise WorkflowError(str(error)) from None


def _tell_of_pilot(manifest: Manifest) -> None:
    """Say how `repeats: auto` continues. Snakemake has one fixed graph, so later blocks need another command."""
    if manifest.settings.pilot:
        from accelsweep.analyse.advice.words import command

        go_on = f"repeats=auto: Snakemake alone measures the {PILOT} blocks of the pilot. Then go on with:"
        print(go_on, command(manifest), file=sys.stderr)  # noqa: T201 - what Snakemake's user reads


def _planned(home: Path, config: Mapping[str, Any]) -> SweepFolder:
    from accelsweep.drive.head import held
    from accelsweep.plan.make import make_plan, write_plan

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
