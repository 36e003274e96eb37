"""The stacks of a run's processes that are stuck, written into its log before they are ended.

Ranks and their loader workers print their own Python stacks when they are asked by a signal. `py-spy`, where it is
installed, adds the frames of C code, and speaks for a process that Linux does not let run.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import takewhile
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

import psutil

from accelsweep.devices import linux
from accelsweep.json_documents import last_lines
from accelsweep.redaction import masked
from accelsweep.worker.errors import Frame, place_in, printed_frames
from accelsweep.worker.rank_setup import STACKS_SIGNAL

# A run's log: the output of its ranks, up to a bound, through a pipe, so that no run can fill the disk.

_CHUNK_BYTES = 65536

_CHUNKS_AT_ONCE = 16
"""As much as a pipe may hold (1 MiB), so that a run which never stops printing cannot keep the supervisor here."""

_NOTHING_SAID = (
    "\N{ELECTRIC LIGHT BULB} Tip: ",
    "GPU available: ",
    "TPU available: ",
    "HPU available: ",
    "LOCAL_RANK: ",
    "Initializing distributed: ",
    "distributed_backend=",
    "All distributed processes registered.",
    "----------",
)
"""The beginnings of lines that Lightning prints at every start; the first advertises a service."""

_ADVICE = re.compile(
    r"\S*/(site|dist)-packages/lightning/\S+\.py:\d+: |\S+\.py:\d+: (Future|(Pending)?Deprecation)Warning: "
)
"""The beginnings of warnings that give advice to programmers (about srun, pytree and the like), and tell no cause."""

_SOURCE_LINE = re.compile(r" {2}\S")
"""The line of source that Python prints after a warning."""

_FATAL = "Fatal Python error:"

STACKS_OF = "accelsweep: stacks of"
"""The beginnings of our lines before the stacks of a process; the log's last words stand before the first."""


MOST_STACKS_BYTES = 1_000_000
"""Stacks of many ranks are long, and the last words stand before them."""


class RunLog:
    """The file `path` and the pipe that feeds it: the first half of `limit_bytes` as it comes, the last at the end.

    Whole lines are kept (a line longer than a chunk of 64 KiB is cut), with the secrets in their addresses masked.

    Ranks write to `write_end`; the supervisor calls `pump` when `read_end` can be read.
    """

    def __init__(self, path: Path, limit_bytes: int) -> None:
        self.path = path
        self._half = max(1, limit_bytes // 2)
        self._head_bytes = 0
        self._line = b""
        self._tail: deque[bytes] = deque()
        self._tail_bytes = 0
        self._dropped_bytes = 0
        self.bytes_taken = 0

    def __enter__(self) -> Self:
        """Open the file and the pipe."""
        self._file = self.path.open("wb", buffering=0)
        self.read_end, self.write_end = os.pipe()
        os.set_blocking(self.read_end, False)
        self.ended = False
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close_write_end()
        try:
            self.pump()
            self._keep(_safe(self._line))
            if self._dropped_bytes:
                self._file.write(f"\n[... {self._dropped_bytes} bytes left out: limits.log_bytes ...]\n".encode())
            self._file.write(b"".join(self._tail))
        finally:
            self._file.close()
            os.close(self.read_end)

    def close_write_end(self) -> None:
        """Close the supervisor's copy of the pipe's write end, once all ranks have theirs."""
        if self.write_end >= 0:
            os.close(self.write_end)
            self.write_end = -1

    def descriptors(self) -> list[int]:
        """Return the descriptors to wait for: the read end, until every writer has closed its end."""
        return [] if self.ended else [self.read_end]

    def pump(self) -> None:
        """Read the present content of the pipe, without waiting; later output is for the next call."""
        with contextlib.suppress(BlockingIOError):
            for _ in range(_CHUNKS_AT_ONCE):
                if self.ended:
                    return
                chunk = os.read(self.read_end, _CHUNK_BYTES)
                self.ended = not chunk
                self._take(chunk)

    def say(self, text: str) -> None:
        """Add `text` of our own."""
        self._take(text.encode())

    def _take(self, chunk: bytes) -> None:
        self.bytes_taken += len(chunk)
        lines, end, self._line = (self._line + chunk).rpartition(b"\n")
        if len(self._line) > _CHUNK_BYTES:
            lines, end, self._line = lines + end + self._line, b"", b""
        self._keep(_safe(lines + end))

    def _keep(self, chunk: bytes) -> None:
        room = self._half - self._head_bytes
        if room > 0:
            self._file.write(chunk[:room])
            self._head_bytes += len(chunk[:room])
            chunk = chunk[room:]
        if chunk:
            self._tail.append(chunk)
            self._tail_bytes += len(chunk)
        while self._tail_bytes > self._half:
            self._shorten()

    def _shorten(self) -> None:
        excess = self._tail_bytes - self._half
        first = self._tail.popleft()
        cut = min(excess, len(first))
        if first[cut:]:
            self._tail.appendleft(first[cut:])
        self._tail_bytes -= cut
        self._dropped_bytes += cut


def _safe(output: bytes) -> bytes:
    return masked(output.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")


def last_words(path: Path, count: int = 5, most_characters: int = 800) -> str:
    """Return the last telling lines of a run's log, joined by ` | `; empty if there are none."""
    lines = list(takewhile(lambda line: not line.startswith(STACKS_OF), last_lines(path, most_bytes=MOST_STACKS_BYTES)))
    lines = [line.strip() for line in _telling(lines) if line.strip(" \t^~")]  # without a traceback's carets
    fatal = next((number for number, line in enumerate(lines) if line.startswith(_FATAL)), None)
    if fatal is not None:
        lines = lines[: fatal + 4]  # faulthandler shows the innermost call first, and then every caller, ours included
    return " | ".join(lines[-count:])[-most_characters:]


def _telling(lines: Sequence[str]) -> Iterator[str]:
    """Yield the lines but those that Lightning prints in every run, and warnings that are advice."""
    advised = False
    for line in lines:
        if advised and _SOURCE_LINE.match(line):
            advised = False
            continue
        advised = _ADVICE.match(line.strip()) is not None
        if not advised and not line.strip().startswith(_NOTHING_SAID):
            yield line


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


# The processes of a run's ranks, as whoever watches them sees them, and those that they leave behind.


class Ranks(Protocol):
    """The processes of a run's ranks, on one node or several."""

    statuses: dict[int, int | None]
    """The exit code of each ended rank, negative for the signal that ended it, None if it was lost."""

    lost: dict[int, str]
    """The place of each lost rank, in words."""

    oom_kills: int
    """Kills for lack of memory on other nodes, which only the processes there could count."""

    @property
    def gone(self) -> bool:
        """Whether no process of the run is left to wait for."""

    def look(self) -> None:
        """Bring `statuses` up to date, without waiting."""

    def signal(self, number: signal.Signals) -> None:
        """Send SIGTERM or SIGKILL to all ranks that are left."""

    def write_stacks(self, log: RunLog, wait: Callable[[float], None]) -> bool:
        """Write the stacks of all ranks that are left into `log`; return whether there are any. `wait` sleeps."""


@dataclass
class LocalRanks:
    """The ranks whose processes are children of this one, the leader of their group first.

    `first` is the first one's rank.
    """

    processes: list[int]
    first: int = 0
    statuses: dict[int, int | None] = field(default_factory=dict)
    lost: dict[int, str] = field(default_factory=dict)
    oom_kills: int = 0

    @property
    def gone(self) -> bool:
        """Whether all have been reaped."""
        return len(self.statuses) == len(self.processes)

    def living(self) -> dict[int, int]:
        """Return the process ids of those that have not been reaped, by rank."""
        numbered = enumerate(self.processes, self.first)
        return {rank: pid for rank, pid in numbered if rank not in self.statuses}

    def look(self) -> None:
        """Reap those that have ended."""
        for rank, pid in self.living().items():
            process, status = os.waitpid(pid, os.WNOHANG)
            if process:
                self.statuses[rank] = os.waitstatus_to_exitcode(status)

    def signal(self, number: signal.Signals) -> None:
        """Signal the whole group. While one rank is not reaped yet, its number cannot belong to another process."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.processes[0], number)

    def write_stacks(self, log: RunLog, wait: Callable[[float], None]) -> bool:
        """Ask one after another."""
        return write_stacks(self.living(), log, wait)


def children() -> frozenset[int]:
    """Return the process ids of this process's children."""
    return frozenset(child.pid for child in psutil.Process().children())


def end_leftovers(strangers: frozenset[int]) -> None:
    """Kill and reap the processes that the ranks left behind (data loading workers, daemons), which we adopted."""
    while left := [child for child in psutil.Process().children(recursive=True) if _ours(child, strangers)]:
        for process in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        for pid in children() - strangers:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)


def _ours(process: psutil.Process, strangers: frozenset[int]) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return not ({process.pid, *(parent.pid for parent in process.parents())} & strangers)
    return False
