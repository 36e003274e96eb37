"""The interface of a scheduler: submit, list, requeue and cancel jobs, and read how they ended."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

from accelsweep.config.site import JobOptions, Site
from accelsweep.errors import AccelsweepError, InputError
from accelsweep.json_documents import Frozen
from accelsweep.schedulers.job_environment import for_commands


class Resources(Frozen):
    """The resources required by a block's allocation. `minutes` is the sum of its runs' time limits plus start-up time.

    `node_kind` is the name of the node kind if a site defines several; `node` is the node to which a block is pinned.
    """

    nodes: int = 1
    tasks: int = 1
    cpus: int = 1
    gpus: int = 0
    gpu_model: str | None = None
    mem_mb: int | None = None
    minutes: int | None = None
    node_kind: str | None = None
    node: str | None = None


Value = str | int | None
"""The value of a Snakemake rule's resource."""


@dataclass(frozen=True)
class Job:
    """One of the sweep's jobs in the queue. `reason` explains why it is waiting; `nodes` is empty until it runs."""

    number: str
    block: str
    state: str
    reason: str
    nodes: str
    elapsed: str

    def __str__(self) -> str:
        """`job 12 RUNNING on gpu1 for 1:03, block b...`."""
        where = f" on {self.nodes} for {self.elapsed}" if self.nodes else f" ({self.reason})"
        return f"job {self.number} {self.state}{where}, block {self.block}"


class Remedy(NamedTuple):
    """A command that unblocks a stuck job, with a message for the user."""

    command: tuple[str, ...]
    message: str


class JobOffer(NamedTuple):
    """Whether a scheduler would accept a job, with its message and the `command` that was used to find out.

    A rejection lists the `keys` of the site's job settings that caused it, if known. A `temporary` rejection resolves
    itself: the scheduler did not answer, or its limit on queued jobs has been reached. `nodes` is where an accepted
    job would start, if the scheduler reports that.
    """

    accepted: bool
    message: str
    command: str
    keys: tuple[str, ...] = ()
    temporary: bool = False
    nodes: str = ""


class JobEnd(NamedTuple):
    """A failed job in Snakemake's log: the scheduler's `refusal`, or the job's number, state and log.

    If `log` is set but the file does not exist, the job never reached a node.
    """

    refusal: str | None = None
    number: str = ""
    state: str = ""
    log: Path | None = None


class Scheduler(Protocol):
    """A scheduler at one site. Its commands raise AccelsweepError if it does not answer."""

    @property
    def site(self) -> Site:
        """The site whose jobs the scheduler runs."""

    @property
    def name(self) -> str:
        """The scheduler's name as shown to users."""

    @property
    def executor(self) -> str:
        """Snakemake's executor plugin for the scheduler."""

    @property
    def profile(self) -> str:
        """The Snakemake profile that we ship for the scheduler."""

    @property
    def programs(self) -> tuple[str, ...]:
        """The commands that a sweep needs."""

    @property
    def starts_ranks(self) -> bool:
        """Whether the scheduler can start a run's ranks on several nodes."""

    def resources(self, needs: Resources) -> dict[str, Value]:
        """Return the resources of Snakemake's rule for a block; their names depend only on `needs.nodes`."""

    def in_words(self, needs: Resources) -> str:
        """Describe the size of one job in words."""

    def command(self, needs: Resources) -> str:
        """Return the command that submits such a job, with its options quoted for a shell."""

    def before_block(self, needs: Resources) -> str:
        """Return the shell commands that prepare a node for a block, each followed by ` && `."""

    def options(self, sweep: str) -> list[str]:
        """Return additional Snakemake options for this sweep."""

    def version(self) -> str:
        """Return the scheduler's name and version as it prints them."""

    def offer(self, needs: Resources) -> JobOffer:
        """Return whether the scheduler would accept such a job. Nothing is submitted."""

    def default_memory_mb(self, needs: Resources) -> int | None:
        """Return the MB per node of a job for which the site specifies no memory; None if unlimited or unknown."""

    def submit(self, needs: Resources, command: str, log: Path) -> str:
        """Submit a job that runs a shell `command` and writes to `log`; return its number."""

    def state(self, number: str) -> str | None:
        """Return the state and reason of a waiting or running job as text; None once the job has ended."""

    def jobs(self, home: Path, blocks: Collection[str]) -> list[Job]:
        """Return the waiting and running jobs of these blocks that were submitted from the folder `home`."""

    def own_jobs(self, log: str, home: Path, blocks: Collection[str]) -> list[Job] | None:
        """Return the jobs of the Snakemake process that wrote `log`, including ended jobs if they are known.

        None if the process has not submitted any.
        """

    def waits(self, job: Job) -> bool:
        """Return whether a job is waiting in the queue."""

    def remedy(self, job: Job, tried: int) -> Remedy | None:
        """Return a remedy for a stuck job that Snakemake does not handle, after `tried` earlier remedies."""

    def cancel(self, numbers: Sequence[str]) -> tuple[str, ...]:
        """Return the command that cancels these jobs."""

    def keys_for(self, words: str) -> tuple[str, ...]:
        """Return the keys of the site's job settings that caused a rejection or keep a job waiting."""

    def queue_limit(self, refusal: str) -> str | None:
        """If a rejection lasts until another job ends, return the limit on queued jobs that caused it; else None."""

    def is_unreachable(self, refusal: str) -> bool:
        """Return whether `refusal` means that the scheduler was unreachable, rather than that it rejected a job."""

    def in_queue(self) -> int:
        """Return the number of the user's waiting and running jobs, including those of other programs."""

    def never_starts(self, reason: str) -> bool:
        """Return whether a job with this reason will never start. May query the user's other jobs."""

    def advice(self, reason: str) -> str | None:
        """Return a sentence about what the user can do about this reason; None if the job is just waiting its turn."""

    def job_end(self, paragraph: str, home: Path) -> JobEnd | None:
        """Return how a job submitted from `home` failed, from a paragraph of Snakemake's log."""

    def own_messages(self, lines: Sequence[str]) -> list[str]:
        """Return the scheduler's own messages among these lines of a job's log."""


_TIMEOUT_SECONDS = 60.0


def missing_programs(scheduler: Scheduler) -> list[str]:
    """Return the scheduler's commands that a sweep needs but this machine lacks."""
    return [name for name in scheduler.programs if shutil.which(name) is None]


def refuse_without(scheduler: Scheduler, asked: str) -> None:
    """Raise InputError if a command that a sweep needs is missing; `asked` is the option or site that requires it."""
    if missing := missing_programs(scheduler):
        raise InputError(
            f"{asked} submits to {scheduler.name}, but this machine has no {missing[0]}: "
            "run this on a login node of the cluster, or choose site=local without --profile"
        )


def ask(
    *command: str,
    timeout_seconds: float = _TIMEOUT_SECONDS,
    environment: Mapping[str, str] | None = None,
    base: Mapping[str, str] | None = None,
) -> str:
    """Return the output of a scheduler's command, run with our variables (or `base` if given) and `environment`.

    Variables that change the behaviour or output of Slurm's commands are dropped. Raises AccelsweepError if the command
    fails, is missing, or does not respond in time.
    """
    variables = for_commands(os.environ if base is None else base) | dict(environment or {})
    result = _run(command, timeout_seconds, variables)
    if result.returncode != 0:
        raise AccelsweepError(f"{command[0]} failed: {result.stderr.strip() or result.stdout.strip()}")
    return result.stdout


def answered(*command: str) -> tuple[bool, str]:
    """Return whether a scheduler's command succeeded, and all its output.

    Raises AccelsweepError if the command is missing or does not respond in time.
    """
    result = _run(command, _TIMEOUT_SECONDS, for_commands(os.environ))
    return result.returncode == 0, f"{result.stdout}\n{result.stderr}"


def _run(
    command: Sequence[str], timeout_seconds: float, variables: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=timeout_seconds, env=variables
        )
    except FileNotFoundError:
        raise AccelsweepError(f"there is no {command[0]} here: run this on a login node of the cluster") from None
    except subprocess.TimeoutExpired:
        raise AccelsweepError(f"{command[0]} did not answer within {timeout_seconds:.0f} s") from None


INTERFACE_VARIABLE = "ACCELSWEEP_INTERFACE"
"""The environment variable that specifies the network interface between nodes, for runs on several nodes."""

SCRATCH_VARIABLE = "ACCELSWEEP_SCRATCH"
"""The environment variable that contains the path of a job's own scratch folder.

The path contains the job's number; the folder is deleted when the job ends.
"""

_SPECIAL = re.compile(r'[\\"`]|\$(?![A-Za-z_]|\{[A-Za-z_][A-Za-z0-9_]*\})')
"""Characters with a special meaning inside double quotes, except the `$` of a variable."""


def prepared(options: JobOptions, job_id: str) -> list[str]:
    """Return the shell commands that load modules and set up the network interface and the scratch folder.

    `job_id` is the name of the variable that contains the job's number.
    """
    commands = [f"module load {shlex.quote(module)}" for module in options.modules]
    if options.interface:
        commands.append(f"export {INTERFACE_VARIABLE}={shlex.quote(options.interface)}")
    if options.scratch:
        # One shell word in which only `$NAME` and `${NAME}` are expanded, on the node.
        folder = '"' + _SPECIAL.sub(r"\\\g<0>", options.scratch) + '"'
        commands += [f"mkdir -p {folder}", f"export TMPDIR={folder}"]
        if re.search(rf"\$({job_id}(?![A-Za-z0-9_])|\{{{job_id}\}})", options.scratch):
            commands.insert(0, f': "${{{job_id}:?}}"')  # if it were empty, the path would be a different folder
            cleanup = f"""trap 'rm -rf -- "${SCRATCH_VARIABLE}"' EXIT"""
            commands += [f"export {SCRATCH_VARIABLE}={folder}", cleanup]
    return commands


def python(options: JobOptions, own: str, nodes: int = 1) -> str:
    """Return the shell words that start Python for a block: our `own` interpreter, or the container's.

    A block on several `nodes` first starts our own interpreter outside the container, where srun is available.
    """
    if options.container is None:
        return shlex.quote(own)
    inside = f"{options.container} {shlex.quote(options.container_python)}"
    return inside if nodes == 1 else f"{shlex.quote(own)} -P -m accelsweep.executor.srun {inside}"
