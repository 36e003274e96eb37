"""The interface of an engine: how its jobs are asked for, listed, set going again, cancelled, and how they ended."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from pydantic import SerializerFunctionWrapHandler, model_serializer

from accelsweep.config.site import JobSettings, Site
from accelsweep.errors import AccelsweepError, InputError
from accelsweep.json_documents import Frozen
from accelsweep.schedulers.job_environment import for_commands

# The needs of a job.


class Resources(Frozen):
    """The needs of a block's allocation. `minutes` is the sum of its runs' time limits plus start-up.

    `node_kind` is the kind of node where a site has several, and `node` the very node of a fleet's block; other blocks
    hold neither.
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

    @model_serializer(mode="wrap")
    def _as_before(self, written: SerializerFunctionWrapHandler) -> dict[str, Any]:
        found: dict[str, Any] = written(self)
        return {name: value for name, value in found.items() if name not in _LATE or value is not None}


_LATE = ("node_kind", "node")
"""Fields that came later: a block's file from before is written back byte for byte."""

Value = str | int | None


@dataclass(frozen=True)
class Job:
    """One of the sweep's jobs as its engine sees it; `reason` is why it waits, `nodes` are empty until it runs."""

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
    """The command that a job needs, with words for the user."""

    command: tuple[str, ...]
    said: str


class JobOffer(NamedTuple):
    """Whether an engine would take a job, what it said, and the `command` that asks it.

    A refusal names the `keys` of the site's words on jobs that it is about, where they are known. `passing` refusals
    end without a change: the engine did not answer, or its limit on jobs in the queue is reached. `nodes` is where a
    job that is taken would start, as far as the engine says it.
    """

    taken: bool
    said: str
    command: str
    keys: tuple[str, ...] = ()
    passing: bool = False
    nodes: str = ""


class JobEnd(NamedTuple):
    """A job that failed, by a paragraph of Snakemake's log: the engine's `refusal`, or its number, state and log.

    A log that was named but is not there means that the job never reached a node.
    """

    refusal: str | None = None
    number: str = ""
    state: str = ""
    log: Path | None = None


class Engine(Protocol):
    """An engine, for one site. Its commands raise AccelsweepError where it does not answer."""

    @property
    def site(self) -> Site:
        """The site whose jobs it takes."""

    @property
    def name(self) -> str:
        """Its name, for users."""

    @property
    def executor(self) -> str:
        """The plugin of Snakemake that submits to it."""

    @property
    def profile(self) -> str:
        """The profile of Snakemake that is shipped for it."""

    @property
    def programs(self) -> tuple[str, ...]:
        """The commands that a sweep needs."""

    @property
    def starts_ranks(self) -> bool:
        """Whether it starts a run's ranks on several nodes."""

    def resources(self, needs: Resources) -> dict[str, Value]:
        """Return the resources of Snakemake's rule for a block with these `needs`: names depend on `nodes` alone."""

    def in_words(self, needs: Resources) -> str:
        """Return one job's size for a reader."""

    def command(self, needs: Resources) -> str:
        """Return the command that submits such a job, with its options quoted for a shell."""

    def before_block(self, needs: Resources) -> str:
        """Return the shell commands that prepare a node for a block, each followed by ` && `."""

    def options(self, sweep: str) -> list[str]:
        """Return options of Snakemake for this sweep, which a command of ours adds."""

    def version(self) -> str:
        """Return the engine's name and version, as it says itself."""

    def offer(self, needs: Resources) -> JobOffer:
        """Return whether the engine would take such a job. Nothing is submitted."""

    def default_memory_mb(self, needs: Resources) -> int | None:
        """Return the MB per node of a job for which the site states none; None for no bound, or one not known."""

    def submit(self, needs: Resources, command: str, log: Path) -> str:
        """Submit a job that does one shell `command`, whose words go to `log`; return its number."""

    def state(self, number: str) -> str | None:
        """Return the state of a job that waits or runs, with the reason, in words; None once it has ended."""

    def jobs(self, home: Path, blocks: Collection[str]) -> list[Job]:
        """Return the jobs of these blocks that wait or run, submitted from the folder `home`."""

    def own_jobs(self, log: str, home: Path, blocks: Collection[str]) -> list[Job] | None:
        """Return the jobs of the Snakemake that writes `log`, ended ones too where they are known.

        None where it has submitted none, or not begun to.
        """

    def waits(self, job: Job) -> bool:
        """Return whether a job waits in the queue."""

    def remedy(self, job: Job, tried: int) -> Remedy | None:
        """Return what a job needs to run again, which Snakemake would not do, after `tried` remedies."""

    def cancel(self, numbers: Sequence[str]) -> tuple[str, ...]:
        """Return the command that ends these jobs."""

    def keys_for(self, words: str) -> tuple[str, ...]:
        """Return the keys of the site's words on jobs that a refusal, or the reason of a job that waits, is about."""

    def full(self, refusal: str) -> str | None:
        """Return the limit on jobs in the queue for which it refused one that it takes when another has ended."""

    def away(self, refusal: str) -> bool:
        """Return whether it did not refuse a job but could not be asked."""

    def in_queue(self) -> int:
        """Return the number of the user's jobs that wait or run, whatever submitted them."""

    def hopeless(self, reason: str) -> bool:
        """Return whether no waiting ends this reason. It may be asked what else the user runs."""

    def advice(self, reason: str) -> str | None:
        """Return what the user can do about this reason, in a sentence; None where a job waits for its turn."""

    def ended(self, paragraph: str, home: Path) -> JobEnd | None:
        """Return how a job ended, by a paragraph of Snakemake's log on a failed job, submitted from `home`."""

    def own_words(self, lines: Sequence[str]) -> list[str]:
        """Return what the engine itself says in these lines of a job's log."""


# Commands of an engine, and words for a machine that has none.

_PATIENCE_SECONDS = 60.0


def missing_programs(engine: Engine) -> list[str]:
    """Return the commands of this engine that a sweep needs and that this machine lacks."""
    return [name for name in engine.programs if shutil.which(name) is None]


def refuse_without(engine: Engine, asked: str) -> None:
    """Raise InputError where a command that a sweep needs is missing; `asked` is who submits to this engine."""
    if missing := missing_programs(engine):
        raise InputError(
            f"{asked} submits to {engine.name}, and this machine has no {missing[0]}: "
            "run this on a login node of the cluster, or choose site=local without --profile"
        )


def ask(
    *command: str,
    patience_seconds: float = _PATIENCE_SECONDS,
    environment: Mapping[str, str] | None = None,
    base: Mapping[str, str] | None = None,
) -> str:
    """Return what an engine's command prints; `environment` are further variables, `base` stands in place of ours.

    It heeds none of the variables by which a user changes what Slurm's commands do or print.
    Raises AccelsweepError where it fails, is missing, or does not answer.
    """
    answer = _answer(
        command, patience_seconds, {**for_commands(os.environ if base is None else base), **(environment or {})}
    )
    if answer.returncode != 0:
        raise AccelsweepError(f"{command[0]} failed: {answer.stderr.strip() or answer.stdout.strip()}")
    return answer.stdout


def answered(*command: str) -> tuple[bool, str]:
    """Return whether an engine's command said yes, and all that it said.

    Raises AccelsweepError where it is missing, or does not answer.
    """
    answer = _answer(command, _PATIENCE_SECONDS, for_commands(os.environ))
    return answer.returncode == 0, f"{answer.stdout}\n{answer.stderr}"


def _answer(
    command: Sequence[str], patience_seconds: float, variables: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=patience_seconds, env=variables
        )
    except FileNotFoundError:
        raise AccelsweepError(f"there is no {command[0]} here: run this on a login node of the cluster") from None
    except subprocess.TimeoutExpired:
        raise AccelsweepError(f"{command[0]} did not answer within {patience_seconds:.0f} s") from None


# The preparation of a node for a block, in shell commands that every engine's jobs begin with.

INTERFACE_VARIABLE = "ACCELSWEEP_INTERFACE"
"""Names the network interface between nodes, for runs of several."""

SCRATCH_VARIABLE = "ACCELSWEEP_SCRATCH"
"""Names the scratch folder of one job, which ends with it: one whose name holds the job's number."""


def prepared(settings: JobSettings, job_id: str) -> list[str]:
    """Return the commands for modules, network and scratch folder; the variable `job_id` holds the job's number."""
    commands = [f"module load {shlex.quote(module)}" for module in settings.modules]
    if settings.interface:
        commands.append(f"export {INTERFACE_VARIABLE}={shlex.quote(settings.interface)}")
    if settings.scratch:
        folder = _with_variables(settings.scratch)
        commands += [f"mkdir -p {folder}", f"export TMPDIR={folder}"]
        if re.search(rf"\$({job_id}(?![A-Za-z0-9_])|\{{{job_id}\}})", settings.scratch):
            own = f'"${SCRATCH_VARIABLE}"'
            commands.insert(0, f': "${{{job_id}:?}}"')  # without a number the name would be that of another folder
            commands += [f"export {SCRATCH_VARIABLE}={folder}", f"trap 'rm -rf -- {own}' EXIT"]
    return commands


def _with_variables(text: str) -> str:
    """Return `text` as one shell word in which only `$NAME` and `${NAME}` are expanded, on the node."""
    return '"' + _SPECIAL.sub(r"\\\g<0>", text) + '"'


_SPECIAL = re.compile(r'[\\"`]|\$(?![A-Za-z_]|\{[A-Za-z_][A-Za-z0-9_]*\})')
"""Characters with a meaning between double quotes, variables apart."""


def python(settings: JobSettings, own: str, nodes: int = 1) -> str:
    """Return the shell words that start Python for a block: our `own` interpreter, or the one inside the container.

    A block of several `nodes` leaves a process of ours outside the container, because srun is there.
    """
    if settings.container is None:
        return shlex.quote(own)
    inside = f"{settings.container} {shlex.quote(settings.container_python)}"
    return inside if nodes == 1 else f"{shlex.quote(own)} -P -m accelsweep.executor.srun {inside}"
