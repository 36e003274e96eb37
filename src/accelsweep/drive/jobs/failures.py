"""Jobs that an engine refuses, or that ended before their block did: why, in the engine's own words or the shell's.

Before anything is submitted the engine is asked whether it would take each size of job: an account, a QOS or a
partition that is wrong is told in a second, with the key that mends it.

Snakemake's log has a paragraph for each failed job. It names the block, and the engine reads the rest of it. A job
whose modules, scratch folder or container fail says why in the block's own log.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from accelsweep.base.errors import AccelsweepError, DamagedFile, InputError
from accelsweep.base.secrets import masked
from accelsweep.core.planned.names import BLOCK_NAME
from accelsweep.core.planned.plans import Resources
from accelsweep.core.sites.site import Site
from accelsweep.engines.engine import Engine, JobEnd
from accelsweep.engines.known import engine_of
from accelsweep.state.folders import SweepFolder
from accelsweep.state.halts import Halt, Why
from accelsweep.state.tail import end_of, last_lines

_PARAGRAPH = re.compile(r"^Error in rule block\w*:\n(.*?)^(?:Trying to restart|Exiting because|\[\w{3} )", re.M | re.S)
_BLOCK = re.compile(rf"^    output: \S*/({BLOCK_NAME})\.done\.json", re.MULTILINE)
_MOST_BYTES = 20_000_000


@dataclass(frozen=True)
class Failure:
    """The end of a block's job: why, and whether these are the engine's words, which count more than a supervisor's.

    A job that the engine `refused` is refused again until something is changed.
    """

    block: str
    why: str
    of_engine: bool = True
    refused: bool = False


def refuse_before_submission(site: Site, blocks: Iterable[Resources], warn: Callable[[str], None]) -> None:
    """Ask the site's engine whether it would take the jobs of these blocks; raise InputError where it refuses any.

    A refusal that ends by itself, because the engine is away or full, is a warning: the jobs wait for that.
    """
    if (engine := engine_of(site)) is None:
        return
    for needs in dict.fromkeys(needs.model_copy(update={"node": None}) for needs in blocks):
        refuse_untaken(site, needs, engine, warn)


def refuse_untaken(site: Site, needs: Resources, engine: Engine, warn: Callable[[str], None]) -> None:
    """Raise InputError where the engine would not take such a job; `warn` of a refusal that ends by itself."""
    try:
        offer = engine.offer(needs)
        held_up = offer.passing and (not engine.full(offer.said) or engine.in_queue() > 0)
    except AccelsweepError as error:
        warn(f"whether {engine.name} takes the jobs was not asked: {error}")
        return
    if offer.taken:
        return
    if held_up:
        warn(f"{engine.name} takes no job now ({offer.said}); the jobs are submitted when it does")
        return
    kind = f"{needs.node_kind}: " if needs.node_kind else ""
    raise InputError(
        f"{engine.name} refuses a job of {kind}{engine.in_words(needs)} ({offer.said}): change "
        f"{keys_in_words(site, needs, offer.keys)}. To try it by hand: {offer.command}"
    )


def keys_in_words(site: Site, needs: Resources, keys: Sequence[str]) -> str:
    """Return the keys that a refusal is about with their values, as a user writes them; else the site file."""
    jobs = site.of_kind(needs.node_kind).jobs
    named = [("cpu_partition" if key == "partition" and not needs.gpus and jobs.cpu_apart else key) for key in keys]
    stated = [f"{site.jobs_key}.{key}={value}" for key in named if (value := getattr(jobs, key)) is not None]
    found = " or ".join(stated or [f"{site.jobs_key}.{key}" for key in named]) or "what the site file asks for"
    return found if needs.node_kind is None or not named else f"{found} (of the kind {needs.node_kind}, or of the site)"


def note_failed_jobs(folder: SweepFolder, engine: Engine, log: Path) -> None:
    """Leave a halt beside each block without an end whose job failed, by Snakemake's `log`.

    A halt that a supervisor left stands, unless the engine itself says why the job ended.
    """
    for failure in failures(folder, engine, log):
        if folder.done(failure.block).exists() or not folder.block(failure.block).exists():
            continue
        if failure.of_engine or not folder.halt(failure.block).exists():
            again: Literal["now", "changed"] = "changed" if failure.refused else "now"
            Halt(block=failure.block, why=failure.why, again=again).write(folder.halt(failure.block))


def failures(folder: SweepFolder, engine: Engine, log: Path) -> list[Failure]:
    """Return the last failure of each block that Snakemake's `log` tells of; none where it cannot be read.

    Of a log that is very long, only the end is read.
    """
    try:
        text = end_of(log, _MOST_BYTES).decode("utf-8", "replace")
    except (OSError, DamagedFile):
        return []
    return list({failure.block: failure for failure in _failures(folder, engine, text)}.values())


def _failures(folder: SweepFolder, engine: Engine, text: str) -> Iterator[Failure]:
    for found in _PARAGRAPH.finditer(text):
        block, end = _BLOCK.search(found[1]), engine.ended(found[1], folder.home)
        if block is None or end is None:
            continue
        if end.refusal is not None:
            why = Why.refused.format(engine=engine.name, words=_in_one_line(end.refusal))
            yield Failure(block[1], why, refused=not (engine.full(end.refusal) or engine.away(end.refusal)))
        else:
            yield _of_a_job(folder, engine, block[1], end)


def _of_a_job(folder: SweepFolder, engine: Engine, block: str, end: JobEnd) -> Failure:
    """Return why a job ended, and the log that has the words.

    The engine's own words count most, then those of the block, then whatever else the job printed. A job ran on a node
    only where its log is there, and the block's log is about it only then.
    """
    printed = [line for line in last_lines(end.log) if line.strip()] if end.log and end.log.exists() else []
    said = engine.own_words(printed)
    own = [line for line in last_lines(folder.log(block)) if line.strip()] if end.log and end.log.exists() else []
    sources = [(said, end.log), (own, folder.log(block)), (printed, end.log)]
    words, log = next(((lines[-1], log) for lines, log in sources if lines), ("it left no word", folder.snakemake_log))
    log = log or folder.snakemake_log
    where = log.relative_to(folder.home) if log.is_relative_to(folder.home) else log
    why = Why.job_ended.format(number=end.number, state=end.state, words=words.strip(), log=where)
    return Failure(block, why, of_engine=bool(said))


def _in_one_line(text: str) -> str:
    lines = [line.strip().rstrip(".'") for line in text.splitlines() if line.strip()]
    return masked("; ".join(dict.fromkeys(lines)).replace(":; ", ": ")) or "it gave no reason"
