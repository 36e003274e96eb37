"""Slurm behind the interface of all engines."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from accelsweep.core.planned.plans import Resources
from accelsweep.core.sites.site import Site
from accelsweep.core.sites.slurm import Slurm
from accelsweep.engines.ask import ask
from accelsweep.engines.engine import Job, JobEnd, JobOffer, Remedy, Value
from accelsweep.engines.slurm import ends, nodes, options, queue, refuse, trial


@dataclass(frozen=True)
class SlurmEngine:
    """Slurm at a `site`."""

    site: Site
    name: str = "Slurm"
    executor: str = "slurm"
    profile: str = "slurm"
    programs: tuple[str, ...] = ("sbatch", "squeue", "scancel", "scontrol")
    starts_ranks: bool = True

    def _of(self, needs: Resources) -> Slurm:
        return self.site.of_kind(needs.node_kind).slurm

    def resources(self, needs: Resources) -> dict[str, Value]:
        """Return the executor plugin's resources; those of several nodes are more."""
        wide = options.across_nodes(needs) if needs.nodes > 1 else {}
        return {**options.job_resources(needs, self._of(needs)), **wide}

    def in_words(self, needs: Resources) -> str:
        """Return one job's size for a reader."""
        return options.in_words(needs, self._of(needs))

    def command(self, needs: Resources) -> str:
        """Return sbatch with its options."""
        return f"sbatch {options.sbatch_options(needs, self._of(needs))}"

    def before_block(self, needs: Resources) -> str:
        """Return the shell commands that prepare a node."""
        return options.before_block(self._of(needs))

    def options(self, sweep: str) -> list[str]:
        """Return the option that names the jobs."""
        return ["--slurm-jobname-prefix", queue.job_name_prefix(sweep)]

    def version(self) -> str:
        """Return what sbatch says of itself."""
        return ask("sbatch", "--version").strip()

    def offer(self, needs: Resources) -> JobOffer:
        """Return what `sbatch --test-only` says."""
        return trial.offer(options.sbatch_options(needs, self._of(needs)))

    def default_memory_mb(self, needs: Resources) -> int | None:
        """Return the default of the job's partition, or else of the cluster."""
        return nodes.default_memory_mb(needs, self._of(needs), self.site.of_kind(needs.node_kind).count("cpu"))

    def submit(self, needs: Resources, command: str, log: Path) -> str:
        """Submit a job; return its number."""
        return trial.submit(options.sbatch_options(needs, self._of(needs)), command, log)

    def state(self, number: str) -> str | None:
        """Return `STATE (REASON)` of a job that has not ended."""
        return trial.state(number)

    def jobs(self, home: Path, blocks: Collection[str]) -> list[Job]:
        """Return the jobs of these blocks that wait or run."""
        return queue.listed(home, blocks)

    def own_jobs(self, log: str, home: Path, blocks: Collection[str]) -> list[Job] | None:
        """Return all jobs that have the name of the run in `log`."""
        del home, blocks
        return queue.of_snakemake(log)

    def waits(self, job: Job) -> bool:
        """Return whether a job is pending."""
        return job.state == "PENDING"

    def remedy(self, job: Job, tried: int) -> Remedy | None:
        """Return what a job needs to run again."""
        return queue.remedy(job, tried)

    def cancel(self, numbers: Sequence[str]) -> tuple[str, ...]:
        """Return the command that ends these jobs."""
        return ("scancel", *numbers)

    def keys_for(self, words: str) -> tuple[str, ...]:
        """Return the keys that Slurm's words are about."""
        return refuse.keys_for(words)

    def full(self, refusal: str) -> str | None:
        """Return the limit on submitted jobs that Slurm names."""
        return refuse.full(refusal)

    def away(self, refusal: str) -> bool:
        """Return whether the controller did not answer."""
        return refuse.no_answer(refusal)

    def in_queue(self) -> int:
        """Return the number of the user's jobs that wait or run, our own job apart where we are in one."""
        return len(queue.of_user())

    def hopeless(self, reason: str) -> bool:
        """Return whether no waiting ends this reason; a limit on what one user holds, where he holds nothing."""
        return queue.hopeless(reason) or (queue.hopeless_alone(reason) and not queue.of_user(queue.HOLDING))

    def advice(self, reason: str) -> str | None:
        """Return what the user can do about this reason."""
        if self.hopeless(reason):
            keys = " or ".join(f"site.slurm.{key}" for key in refuse.keys_for(reason)) or "the site file"
            return f"no waiting ends {reason}: change {keys}. If it stands at the next look, the block is left out"
        return queue.advice(reason)

    def ended(self, paragraph: str, home: Path) -> JobEnd | None:
        """Return how a job ended, by a paragraph of Snakemake's log."""
        del home
        return ends.ended(paragraph)

    def own_words(self, lines: Sequence[str]) -> list[str]:
        """Return what Slurm itself says in a job's log."""
        return ends.own_words(lines)
