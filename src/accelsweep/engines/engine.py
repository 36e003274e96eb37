"""The interface of an engine: how its jobs are asked for, listed, set going again, cancelled, and how they ended."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

from accelsweep.core.planned.plans import Resources
from accelsweep.core.sites.site import Site

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
