"""Stack traces of hung ranks: dumps them to the run's log, and derives from them what each rank was doing.

Ranks and their loader workers print their own Python stacks on a signal (`faulthandler`). `py-spy`, if installed, adds
native frames and covers processes that cannot handle a signal.
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
from pathlib import Path

import psutil

from accelsweep.devices import linux
from accelsweep.executor.run_log import MAX_STACKS_BYTES, STACKS_HEADING, RunLog
from accelsweep.files import tail_lines
from accelsweep.worker.error_classification import Frame, parse_stack, user_location_in
from accelsweep.worker.rank_setup import STACKS_SIGNAL

_FIRST_OUTPUT_SECONDS = 5.0  # enough for a busy machine; a process that cannot print uses up the full time

_QUIET_SECONDS = 0.2

_UNLOGGED_SECONDS = 1.0

_ALL_PROCESSES_SECONDS = 30.0

_PY_SPY_TIMEOUT_SECONDS = 10.0

_SECTION = re.compile(rf"{STACKS_HEADING} (?P<child>a child of )?rank (?P<rank>\d+),")

_THREAD = re.compile(r"(Current thread|Thread) 0x")

_COLLECTIVES = frozenset(
    {"barrier", "monitored_barrier", "broadcast_object_list", "all_gather_object", "init_process_group"}
)


def dump_stacks(ranks: Mapping[int, int], log: RunLog, wait: Callable[[float], None]) -> bool:
    """Write the stacks of `ranks` (process IDs by rank) and their children to `log`; return whether any was signalled.

    `wait` sleeps for at most the given number of seconds, or until the log is readable.
    """

    def wait_for_output() -> None:
        deadline = time.monotonic() + _FIRST_OUTPUT_SECONDS
        before = received = log.bytes_received
        while time.monotonic() < deadline and (received == before or received != log.bytes_received):
            received = log.bytes_received
            quiet_at = time.monotonic() + _QUIET_SECONDS
            while time.monotonic() < quiet_at:
                wait(quiet_at - time.monotonic())
                log.pump()

    return _dump(ranks, log.write, wait_for_output)


def print_stacks(ranks: Mapping[int, int]) -> None:
    """Print the stacks of `ranks` (process IDs by rank) and their children to stderr, where the ranks also print.

    Used on nodes without access to the run's log. The end of a process's output cannot be detected there, so each
    process is allowed a fixed time.
    """

    def write(text: str) -> None:
        sys.stderr.write(text)
        sys.stderr.flush()

    _dump(ranks, write, lambda: time.sleep(_UNLOGGED_SECONDS))


def _dump(ranks: Mapping[int, int], write: Callable[[str], object], wait_for_output: Callable[[], None]) -> bool:
    """Signal one process after another, so that their output does not interleave."""
    deadline, asked = time.monotonic() + _ALL_PROCESSES_SECONDS, False
    for name, process in _processes(ranks):
        if time.monotonic() > deadline:
            write("accelsweep: there was no time left for the stacks of the remaining processes\n")
            break
        write(f"\n{STACKS_HEADING} {name}, process {process.pid}, {_state(process)}\n")
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, STACKS_SIGNAL)
            asked = True
            wait_for_output()
        write(_py_spy_dump(process.pid))
    return asked


def _processes(ranks: Mapping[int, int]) -> Iterator[tuple[str, psutil.Process]]:
    """Yield the processes that handle the signal, with their names. The signal would kill any other process."""
    for rank, pid in ranks.items():
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(pid)
            if linux.handles_signal(pid, STACKS_SIGNAL) is not False:
                yield f"rank {rank}", process
            for child in process.children(recursive=True):
                if linux.handles_signal(child.pid, STACKS_SIGNAL):
                    yield f"a child of rank {rank}", child


def _state(process: psutil.Process) -> str:
    """Return the state of a process, and the kernel function in which it is waiting."""
    with contextlib.suppress(psutil.Error, OSError):
        state = process.status()
        where = Path(f"/proc/{process.pid}/wchan").read_text().strip("0\n")
        return f"{state} in {where}" if where else state
    return "gone"


def _py_spy_dump(pid: int) -> str:
    program = shutil.which("py-spy")
    if program is None:
        return ""
    command = [program, "dump", "--pid", str(pid)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PY_SPY_TIMEOUT_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"py-spy: {error}\n"
    return f"py-spy:\n{done.stdout}{done.stderr}"


def describe_hang(log: Path, steps: int) -> str:
    """Describe what each rank was doing when its stacks were dumped into `log`; empty if the stacks do not show it.

    `steps` is the number of window steps that had been finished by then.
    """
    ranks: dict[int, list[Frame]] = {}
    workers: dict[int, list[list[Frame]]] = {}
    sections: list[tuple[re.Match[str], list[str]]] = []
    for line in tail_lines(log, max_bytes=MAX_STACKS_BYTES):
        if (match := _SECTION.match(line)) is not None:
            sections.append((match, []))
        elif sections:
            sections[-1][1].append(line)
    for heading, lines in sections:
        frames = _main_thread(lines)
        if not heading["child"]:
            ranks[int(heading["rank"])] = frames
        elif any(frame.function == "_worker_loop" for frame in frames):
            workers.setdefault(int(heading["rank"]), []).append(frames)
    ranks_by_activity: dict[str, list[int]] = {}
    for rank, frames in ranks.items():
        if activity := _activity(frames, workers.get(rank, []), steps):
            ranks_by_activity.setdefault(activity, []).append(rank)
    if len(ranks) == 1:
        return "".join(f"it was {activity}" for activity in ranks_by_activity)
    return "; ".join(
        f"rank {group[0]} was {activity}" if len(group) == 1 else f"ranks {', '.join(map(str, group))} were {activity}"
        for activity, group in ranks_by_activity.items()
    )


def _main_thread(lines: Sequence[str]) -> list[Frame]:
    """Return the main thread's calls, outermost first, starting at `run_rank` or a worker's loop.

    If no thread contains either, return the calls of the last thread with a non-empty stack.
    """
    threads: list[list[str]] = [[]]
    for line in lines:
        if _THREAD.match(line):
            threads.append([])
        elif line.startswith("py-spy"):
            break
        threads[-1].append(line)
    stacks = [parse_stack(thread)[::-1] for thread in threads if thread]
    for stack in stacks:
        starts = [number for number, frame in enumerate(stack) if frame.function in ("run_rank", "_worker_loop")]
        if starts:
            return stack[starts[-1] :]
    return next((stack for stack in reversed(stacks) if stack), [])


def _activity(frames: Sequence[Frame], workers: Sequence[Sequence[Frame]], steps: int) -> str:
    """Describe what a rank with this stack was doing, phrased to follow "it was"; empty for an empty stack."""
    if not frames:
        return ""
    place, innermost = user_location_in(frames), frames[-1]
    fetching = [number for number, frame in enumerate(frames) if frame.function == "_try_get_data"]
    if fetching and user_location_in(frames[fetching[-1] :]) is None:
        files = {Path(frame.file).stem for frame in frames}
        validates = "evaluation_loop" in files or any(frame.function == "validate" for frame in frames)
        batch = f"{'next' if steps or validates else 'first'} {'validation' if validates else 'training'} batch"
        if not workers:
            return f"waiting for the {batch} of its workers"
        places = "; ".join(dict.fromkeys(user_location_in(stack) or _call(stack[-1]) for stack in workers))
        which = "1 worker, which was" if len(workers) == 1 else f"{len(workers)} workers, which were"
        return f"waiting for the {batch} of {which} in {places}"
    collective = next((frame.function for frame in frames if frame.function in _COLLECTIVES), None)
    if collective is not None or Path(innermost.file).stem == "distributed_c10d":
        return f"waiting for the other ranks in {collective or innermost.function}" + (f", in {place}" if place else "")
    if innermost.function == "_engine_run_backward":
        return "in the backward pass, where ranks wait for each other's gradients"
    return f"in {place or _call(innermost)}"


def _call(frame: Frame) -> str:
    return f"{frame.function} ({Path(frame.file).name}, line {frame.line})"
