"""Turns signals into exceptions and errors into exit codes, and builds parsers for `python -m accelsweep.MODULE`."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable
from types import FrameType

from accelsweep.errors import EXIT_INCOMPLETE, EXIT_OK, AccelsweepError, describe_os_error
from accelsweep.redaction import masked
from accelsweep.significant_digits import escaped

_EVICTION_SIGNALS = (signal.SIGUSR1, signal.SIGTERM)


def interrupt_on_termination() -> None:
    """Raise KeyboardInterrupt on SIGTERM and SIGHUP, unless they are ignored, as under `nohup`. Main thread only."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, signal.default_int_handler)


class JobCancelled(KeyboardInterrupt):
    """The driver's job was cancelled. Handled like Ctrl-C, but the cluster kills the driver within seconds."""


class DriverEvicted(BaseException):
    """The driver is about to lose its cluster job. It leaves the sweep's jobs running and releases its locks.

    If `resubmit` is set, the job's time is up and the driver resubmits itself; otherwise the job was preempted or lost
    its node, and the cluster decides whether to requeue it.
    """

    def __init__(self, *, resubmit: bool) -> None:
        super().__init__()
        self.resubmit = resubmit


def raise_on_eviction(cancelled: Callable[[], bool]) -> None:
    """Raise DriverEvicted, once, on SIGUSR1 (the job's time is nearly up) and SIGTERM. Main thread only.

    SIGTERM raises JobCancelled if the job was `cancelled`, which cannot be inferred from the signal itself.
    """

    def evict(number: int, frame: FrameType | None) -> None:
        del frame
        ignore_eviction()
        if number == signal.SIGTERM and cancelled():
            raise JobCancelled
        raise DriverEvicted(resubmit=number == signal.SIGUSR1)

    for number in _EVICTION_SIGNALS:
        signal.signal(number, evict)


def ignore_eviction() -> None:
    """Ignore the signals handled by `raise_on_eviction` from now on."""
    for number in _EVICTION_SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def parser_for(module: str, description: str | None) -> argparse.ArgumentParser:
    """Return an argument parser for `python -m accelsweep.MODULE`. It exits with code 2 on invalid arguments."""
    return argparse.ArgumentParser(prog=f"python -m accelsweep.{module}", description=description)


def exit_code_of(work: Callable[[], int | None], report: Callable[[str], None] | None = None) -> int:
    """Call `work` and return its exit code, or 0 if it returns None.

    A user-facing error, or an error from the operating system, becomes one line and an exit code. The line is passed to
    `report`; by default it is written to stderr.
    """
    try:
        return work() or EXIT_OK
    except (AccelsweepError, OSError) as error:
        message, code = user_message(error)
        line = f"error: {message}"
        if report is None:
            sys.stderr.write(f"{escaped(line)}\n")
        else:
            report(line)
        return code


def user_message(error: AccelsweepError | OSError) -> tuple[str, int]:
    """Return an error's message, with secrets masked, and its exit code."""
    if isinstance(error, AccelsweepError):
        return masked(str(error)), error.exit_code
    return masked(describe_os_error(error)), EXIT_INCOMPLETE
