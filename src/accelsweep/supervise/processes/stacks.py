"""The stacks of a run's processes that are stuck, written into its log before they are ended.

Ranks and their loader workers print their own Python stacks when they are asked by a signal. `py-spy`, where it is
installed, adds the frames of C code, and speaks for a process that Linux does not let run.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import psutil

from accelsweep.machine import linux
from accelsweep.rank.errors import Frame, place_in, printed_frames
from accelsweep.rank.process import STACKS_SIGNAL
from accelsweep.state.tail import last_lines
from accelsweep.supervise.processes.logs import MOST_STACKS_BYTES, STACKS_OF, RunLog

_ANSWER_SECONDS = 1.0
_FIRST_WORD_SECONDS = 5.0  # on a busy machine; who cannot print at all costs as much
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
    until = time.monotonic() + _FIRST_WORD_SECONDS
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


_SECTION = re.compile(rf"{STACKS_OF} (?P<child>a child of )?rank (?P<rank>\d+),")
_THREAD = re.compile(r"(Current thread|Thread) 0x")
_EXCHANGES = frozenset(
    {"barrier", "monitored_barrier", "broadcast_object_list", "all_gather_object", "init_process_group"}
)


def where_it_stood(log: Path, steps: int) -> str:
    """Return what each rank was doing when its stacks were written into the log; empty where they tell nothing.

    `steps` are those of the window that were done by then.
    """
    ranks: dict[int, list[Frame]] = {}
    workers: dict[int, list[list[Frame]]] = {}
    for found, lines in _sections(last_lines(log, most_bytes=MOST_STACKS_BYTES)):
        frames = _main_thread(lines)
        if not found["child"]:
            ranks[int(found["rank"])] = frames
        elif any(frame.function == "_worker_loop" for frame in frames):
            workers.setdefault(int(found["rank"]), []).append(frames)
    doing: dict[str, list[int]] = {}
    for rank, frames in ranks.items():
        if words := _doing(frames, workers.get(rank, []), steps):
            doing.setdefault(words, []).append(rank)
    if len(ranks) == 1:
        return "".join(f"it was {words}" for words in doing)
    return "; ".join(f"{_named(group)} {words}" for words, group in doing.items())


def _named(ranks: Sequence[int]) -> str:
    return f"rank {ranks[0]} was" if len(ranks) == 1 else f"ranks {', '.join(map(str, ranks))} were"


def _sections(lines: Sequence[str]) -> Iterator[tuple[re.Match[str], list[str]]]:
    """Yield the lines below each heading of `_in_turn`."""
    heading, section = None, list[str]()
    for line in lines:
        if (found := _SECTION.match(line)) is None:
            section.append(line)
            continue
        if heading is not None:
            yield heading, section
        heading, section = found, []
    if heading is not None:
        yield heading, section


def _main_thread(lines: Sequence[str]) -> list[Frame]:
    """Return the calls of the thread that works, the outermost first: from `run_rank` on, a worker's, or the last."""
    threads: list[list[str]] = [[]]
    for line in lines:
        if _THREAD.match(line):
            threads.append([])
        elif line.startswith("py-spy"):
            break
        threads[-1].append(line)
    stacks = [printed_frames(thread)[::-1] for thread in threads if thread]
    for stack in stacks:
        began = [number for number, frame in enumerate(stack) if frame.function in ("run_rank", "_worker_loop")]
        if began:
            return stack[began[-1] :]
    return next((stack for stack in reversed(stacks) if stack), [])


def _doing(frames: Sequence[Frame], workers: Sequence[Sequence[Frame]], steps: int) -> str:
    """Return what a rank with this stack does, in words after `it was`; empty where the stack is."""
    if not frames:
        return ""
    place, last = place_in(frames), frames[-1]
    fetching = [number for number, frame in enumerate(frames) if frame.function == "_try_get_data"]
    if fetching and place_in(frames[fetching[-1] :]) is None:
        files = {Path(frame.file).stem for frame in frames}
        validates = "evaluation_loop" in files or any(frame.function == "validate" for frame in frames)
        kind = "validation" if validates else "training"
        first = "next" if steps or validates else "first"
        places = dict.fromkeys(place_in(one) or _call(one[-1]) for one in workers)
        stood = f", {'which stood' if len(workers) == 1 else 'standing'} in {'; '.join(places)}" if workers else ""
        count = f"{len(workers)} worker{'' if len(workers) == 1 else 's'}" if workers else "its workers"
        return f"waiting for the {first} {kind} batch of {count}{stood}"
    exchange = next((frame.function for frame in frames if frame.function in _EXCHANGES), None)
    if exchange is not None or Path(last.file).stem == "distributed_c10d":
        return f"waiting for the other ranks in {exchange or last.function}" + (f", in {place}" if place else "")
    if last.function == "_engine_run_backward":
        return "in the backward pass, where ranks wait for each other's gradients"
    return f"in {place or _call(last)}"


def _call(frame: Frame) -> str:
    return f"{frame.function} ({Path(frame.file).name}, line {frame.line})"
