"""Signals that ask a command to end: taken as Ctrl-C, or as the notice of a place that a head is about to lose."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable
from types import FrameType

from accelsweep.errors import EXIT_INCOMPLETE, EXIT_OK, AccelsweepError, words_of
from accelsweep.redaction import masked
from accelsweep.significant_digits import escaped

_ENDING = (signal.SIGTERM, signal.SIGHUP)

_LEAVING = (signal.SIGUSR1, signal.SIGTERM)


def end_as_by_ctrl_c() -> None:
    """Have SIGTERM and SIGHUP raise KeyboardInterrupt. An ignored signal, as by `nohup`, stays so. Main thread only."""
    for number in _ENDING:
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, signal.default_int_handler)


class JobCancelled(KeyboardInterrupt):
    """Somebody cancelled the job of a head: Ctrl-C, but the cluster kills the head in some seconds."""


class HeadLeaves(BaseException):
    """The place of a head is about to be taken from it. Its jobs stay, and what it holds is given back.

    `again` tells whether the head itself sees to another start, because its time is up. Else its job was preempted, or
    lost its node, and the cluster decides.
    """

    def __init__(self, *, again: bool) -> None:
        super().__init__()
        self.again = again


def leave_when_told(cancelled: Callable[[], bool]) -> None:
    """Have SIGUSR1, the end of a job's time, and SIGTERM raise HeadLeaves, once. Main thread only.

    SIGTERM raises JobCancelled where the job was `cancelled`: the signal itself does not tell.
    """

    def leave(number: int, frame: FrameType | None) -> None:
        del frame
        stay()
        if number == signal.SIGTERM and cancelled():
            raise JobCancelled
        raise HeadLeaves(again=number == signal.SIGUSR1)

    for number in _LEAVING:
        signal.signal(number, leave)


def stay() -> None:
    """Take no further notice of the signals that `leave_when_told` hears."""
    for number in _LEAVING:
        signal.signal(number, signal.SIG_IGN)


# The calls of `python -m accelsweep.MODULE`: one way to read their arguments, and one to report an error.


def parser_for(module: str, description: str | None) -> argparse.ArgumentParser:
    """Return the parser of `python -m accelsweep.MODULE`. It answers wrong arguments itself, with exit code 2."""
    return argparse.ArgumentParser(prog=f"python -m accelsweep.{module}", description=description)


def answer(work: Callable[[], int | None], tell: Callable[[str], None] | None = None) -> int:
    """Return the exit code of `work`, 0 where it gives none. An error meant for the user becomes one line and its code.

    So does an error of the operating system: a file that is not there, a disk that refuses.

    `tell` gets the line; by default it goes to the standard error output.
    """
    try:
        return work() or EXIT_OK
    except (AccelsweepError, OSError) as error:
        words, code = told(error)
        (tell or _tell)(f"error: {words}")
        return code


def told(error: AccelsweepError | OSError) -> tuple[str, int]:
    """Return what a user reads of an error, its secrets masked, and the exit code."""
    if isinstance(error, AccelsweepError):
        return masked(str(error)), error.exit_code
    return masked(words_of(error)), EXIT_INCOMPLETE


def _tell(line: str) -> None:
    sys.stderr.write(f"{escaped(line)}\n")
