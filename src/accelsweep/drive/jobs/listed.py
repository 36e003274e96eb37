"""The jobs of a sweep that its engine lists, and their end."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence

from accelsweep.base.errors import AccelsweepError
from accelsweep.engines.ask import ask
from accelsweep.engines.engine import Engine, Job
from accelsweep.state.folders import SweepFolder


def block_names(folder: SweepFolder) -> set[str]:
    """Return the names of the sweep's blocks, by their files: also those of an earlier plan, or of a damaged one."""
    return {path.name.partition(".")[0] for path in folder.root.glob("blocks/b*.json*")}


def jobs_of(folder: SweepFolder, engine: Engine) -> list[Job]:
    """Return the sweep's jobs that wait or run. Raises AccelsweepError if the engine does not answer."""
    return engine.jobs(folder.home, block_names(folder))


def cancel_jobs(folder: SweepFolder, engine: Engine, say: Callable[[str], None], known: Sequence[str] = ()) -> None:
    """Cancel the sweep's jobs that wait or run. Where that fails, say why, and how to end them by hand.

    `known` are the numbers that the engine named last.
    """
    numbers = list(known)
    try:
        numbers = [job.number for job in jobs_of(folder, engine)]
        if numbers:
            ask(*engine.cancel(numbers))
    except AccelsweepError as error:
        by_hand = shlex.join(engine.cancel(numbers)) if numbers else f"accelsweep status {folder.name} lists them"
        say(f"jobs of {folder.name!r} may be left in {engine.name}'s queue ({error}). End them: {by_hand}")
