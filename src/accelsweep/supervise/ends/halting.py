"""Whatever ends a supervisor before its runs are measured is kept beside its block, for `state.halts` to tell."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from accelsweep.base.errors import AccelsweepError
from accelsweep.base.secrets import masked
from accelsweep.state.folders import SweepFolder
from accelsweep.state.halts import Halt, Why
from accelsweep.supervise.ends.disk import refusal


@contextlib.contextmanager
def halting(folder: SweepFolder, block: str, say: Callable[[str], None]) -> Iterator[None]:
    """Leave a halt for any error that ends the with-block, and raise it.

    Raises AccelsweepError for an OSError by which the disk refused.
    """
    try:
        yield
    except AccelsweepError as error:
        leave_halt(folder, block, str(error), say)
        raise
    except OSError as error:
        message = refusal(error, folder.root)
        leave_halt(folder, block, message or _failed(folder, block, error), say)
        if message is None:
            raise
        raise AccelsweepError(message) from None
    except Exception as error:
        leave_halt(folder, block, _failed(folder, block, error), say)
        raise


def _failed(folder: SweepFolder, block: str, error: Exception) -> str:
    words = " ".join(f"{type(error).__name__}: {error}".split())
    return Why.failed.format(error=words, log=folder.log(block).relative_to(folder.home))


def leave_halt(folder: SweepFolder, block: str, why: str, say: Callable[[str], None]) -> None:
    """Keep `why` the supervisor of a block ends early; say so where even that cannot be written."""
    try:
        Halt(block=block, why=masked(why)).write(folder.halt(block))
    except OSError as error:
        say(f"this could not be kept for `status` and the report: {error}")
