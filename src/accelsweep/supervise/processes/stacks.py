"""The stacks of a run's processes that are stuck, written into its log before they are ended.

Ranks and their loader workers print their own Python stacks when they are asked by a signal. `py-spy`, where it is
installed, adds the frames of C code, and speaks for a process that Linux does not let run.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

import psutil

from accelsweep.machine import linux
from accelsweep.rank.process import STACKS_SIGNAL
from accelsweep.supervise.processes.logs import STACKS_OF, RunLog

_ANSWER_SECONDS = 1.0
_QUIET_SECONDS = 0.2
_ALL_SECONDS = 30.0
_SPY_SECONDS = 10.0


def write_stacks(ranks: Mapping[int, int], log: RunLog, wait: Callable[[float], None]) -> bool:
    """Write the stacks of `ranks` (process ids by rank) and of their children into `log`; return whether any was asked.

    Each is given its turn, so that no two mix. `wait` sleeps for at most so many seconds, or until the log has more.
    """
    return _in_turn(ranks, log.say, partial(_answer, log, wait))


def print_stacks(ranks: Mapping[int, int]) -> None:
    """Print the stacks of `ranks` (process ids by rank) and of their children where these print their own: on stderr.

    It serves the nodes that have no log. Nobody sees there when a process has said all, so each is given its second.
    """
    _in_turn(ranks, _print, partial(time.sleep, _ANSWER_SECONDS))


def _print(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()


def _in_turn(ranks: Mapping[int, int], say: Callable[[str], object], answered: Callable[[], None]) -> bool:
    until, asked = time.monotonic() + _ALL_SECONDS, False
    for name, process in _answering(ranks):
        if time.monotonic() > until:
            say("accelsweep: no time was left for the stacks of further processes\n")
            break
        say(f"\n{STACKS_OF} {name}, process {process.pid}, {_state(process)}\n")
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, STACKS_SIGNAL)
            asked = True
            answered()
        say(_seen_by_py_spy(process.pid))
    return asked


def _answering(ranks: Mapping[int, int]) -> Iterator[tuple[str, psutil.Process]]:
    """Return the processes that handle the signal; it would end any other one."""
    for rank, pid in ranks.items():
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(pid)
            if linux.handles(pid, STACKS_SIGNAL) is not False:
                yield f"rank {rank}", process
            for child in process.children(recursive=True):
                if linux.handles(child.pid, STACKS_SIGNAL):
                    yield f"a child of rank {rank}", child


def _answer(log: RunLog, wait: Callable[[float], None]) -> None:
    """Wait for the first word, and then until there are no more."""
    until = time.monotonic() + _ANSWER_SECONDS
    before = said = log.bytes_taken
    while time.monotonic() < until and (said == before or said != log.bytes_taken):
        said = log.bytes_taken
        quiet = time.monotonic() + _QUIET_SECONDS
        while time.monotonic() < quiet:
            wait(quiet - time.monotonic())
            log.pump()


def _state(process: psutil.Process) -> str:
    """Return what Linux says about a process: its state, and the system's function that it waits in."""
    with contextlib.suppress(psutil.Error, OSError):
        state = process.status()
        where = Path(f"/proc/{process.pid}/wchan").read_text().strip("0\n")
        return f"{state} in {where}" if where else state
    return "gone"


def _seen_by_py_spy(pid: int) -> str:
    program = shutil.which("py-spy")
    if program is None:
        return ""
    try:
        seen = subprocess.run(
            [program, "dump", "--pid", str(pid)], capture_output=True, text=True, timeout=_SPY_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"py-spy: {error}\n"
    return f"py-spy:\n{seen.stdout}{seen.stderr}"
