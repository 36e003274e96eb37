"""A run's log: the output of its ranks, up to a bound, through a pipe, so that no run can fill the disk."""

from __future__ import annotations

import contextlib
import os
import re
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import takewhile
from pathlib import Path
from types import TracebackType
from typing import Self

from accelsweep.base.secrets import masked
from accelsweep.state.tail import last_lines

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
