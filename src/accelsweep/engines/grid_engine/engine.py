"""Grid Engine behind the interface of all engines."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from accelsweep.config.site import GridEngine, Site
from accelsweep.engines.grid_engine import ends, options, queue, trial
from accelsweep.schedulers.protocol import Job, JobEnd, JobOffer, Remedy, Resources, Value, ask


@dataclass(frozen=True)
class GridEngineEngine:
    """Grid Engine at a `site`."""

    site: Site
    name: str = "Grid Engine"
    executor: str = "cluster-generic"
    profile: str = "grid_engine"
    programs: tuple[str, ...] = ("qsub", "qstat", "qdel", "qmod")
    starts_ranks: bool = False

    def _of(self, needs: Resources) -> tuple[GridEngine, Site]:
        site = self.site.of_kind(needs.node_kind)
        return site.grid_engine or GridEngine(), site

    def resources(self, needs: Resources) -> dict[str, Value]:
        """Return the options of qsub, which the profile hands on."""
        return {"grid_engine": options.qsub_options(needs, *self._of(needs))}

    def in_words(self, needs: Resources) -> str:
        """Return one job's size for a reader."""
        return options.in_words(needs, *self._of(needs))

    def command(self, needs: Resources) -> str:
        """Return qsub with its options."""
        return f"qsub {options.qsub_options(needs, *self._of(needs))}"

    def before_block(self, needs: Resources) -> str:
        """Return the shell commands that prepare a node."""
        return options.before_block(self._of(needs)[0])

    def options(self, sweep: str) -> list[str]:
        """Return nothing: the profile says it all."""
        del sweep
        return []

    def version(self) -> str:
        """Return what qstat says of itself."""
        return f"{self.name} ({ask('qstat', '-help').partition(chr(10))[0].strip()})"

    def offer(self, needs: Resources) -> JobOffer:
        """Return what `qsub -w v` says."""
        return trial.offer(options.qsub_options(needs, *self._of(needs)))

    def default_memory_mb(self, needs: Resources) -> int | None:
        """Return None: a queue's default is not known."""
        del needs
        return None

    def submit(self, needs: Resources, command: str, log: Path) -> str:
        """Submit a job; return its number."""
        return trial.submit(options.qsub_options(needs, *self._of(needs)), command, log)

    def state(self, number: str) -> str | None:
        """Return `STATE (REASON)` of a job that has not ended."""
        return trial.state(number)

    def jobs(self, home: Path, blocks: Collection[str]) -> list[Job]:
        """Return the jobs of these blocks that wait or run."""
        return queue.listed(home, blocks)

    def own_jobs(self, log: str, home: Path, blocks: Collection[str]) -> list[Job] | None:
        """Return the jobs of these blocks: an earlier head's have ended before Snakemake begins."""
        return queue.listed(home, blocks) if "with external jobid" in log else None

    def waits(self, job: Job) -> bool:
        """Return whether a job waits in the queue."""
        return queue.waits(job)

    def remedy(self, job: Job, tried: int) -> Remedy | None:
        """Return what a job needs to run again."""
        return queue.remedy(job, tried)

    def cancel(self, numbers: Sequence[str]) -> tuple[str, ...]:
        """Return the command that ends these jobs."""
        return ("qdel", *numbers)

    def keys_for(self, words: str) -> tuple[str, ...]:
        """Return none: qsub says what it looked for, not which option asked for it."""
        del words
        return ()

    def full(self, refusal: str) -> str | None:
        """Return qsub's words on `max_u_jobs` or `max_jobs`."""
        return ends.full(refusal)

    def away(self, refusal: str) -> bool:
        """Return whether qmaster did not answer."""
        return ends.away(refusal)

    def in_queue(self) -> int:
        """Return the number of the user's jobs that wait or run."""
        return queue.in_queue()

    def hopeless(self, reason: str) -> bool:
        """Return False: qsub refuses what could never run."""
        del reason
        return False

    def advice(self, reason: str) -> str | None:
        """Return None: the scheduler's own sentence tells it."""
        del reason
        return None

    def ended(self, paragraph: str, home: Path) -> JobEnd | None:
        """Return how a job ended, by a paragraph of Snakemake's log."""
        return ends.ended(paragraph, home)

    def own_words(self, lines: Sequence[str]) -> list[str]:
        """Return what Grid Engine says of a job's end in its log."""
        return ends.own_words(lines)
