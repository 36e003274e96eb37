"""The jobs of a sweep that its engine lists, and their end."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence

from accelsweep.base.errors import AccelsweepError
from accelsweep.engines.ask import ask
from accelsweep.engines.engine import Engine, Job
from accelsweep.state.folders import SweepFolder


def jobs_of(folder: SweepFolder, engine: Engine) -> list[Job]:
    """Return the sweep's jobs that wait or run. Raises AccelsweepError if the engine does not answer."""
    return engine.jobs(folder.home, folder.block_names())


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
