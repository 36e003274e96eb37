"""A run's log (its ranks' output, read from a pipe, limited in size, with secrets masked), and the log's last lines."""

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

from accelsweep.files import tail_lines
from accelsweep.redaction import masked

_CHUNK_BYTES = 65536

_CHUNKS_PER_READ = 16
"""At most a pipe's capacity (1 MiB) per read, so that a run that never stops printing cannot block the executor."""

STACKS_HEADING = "accelsweep: stacks of"
"""The prefix of the line that we print above each process's stack trace.

The run's own output ends before the first such line.
"""

MAX_STACKS_BYTES = 1_000_000
"""How far from the end of the log to search for the first stack trace; large enough for many ranks."""

_LIGHTNING_BANNER = (
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
"""Prefixes of lines that Lightning prints in every run."""

_ADVICE = re.compile(
    r"\S*/(site|dist)-packages/lightning/\S+\.py:\d+: |\S+\.py:\d+: (Future|(Pending)?Deprecation)Warning: "
)
"""Warnings aimed at developers (about srun, pytree and the like), which are never the cause of a failure."""

_WARNING_SOURCE_LINE = re.compile(r" {2}\S")

_FATAL = "Fatal Python error:"


class RunLog:
    """The log at `path`, fed through a pipe.

    The log keeps equal amounts of the start and the end of the output, `limit_bytes` in total. Lines are written whole
    (those longer than a chunk of 64 KiB are cut), with secrets in URLs masked. Ranks write to `write_end`; the executor
    calls `pump` when `read_end` is readable.
    """

    def __init__(self, path: Path, limit_bytes: int) -> None:
        self.path = path
        self._half = max(1, limit_bytes // 2)
        self._head_bytes = 0
        self._partial_line = b""
        self._tail: deque[bytes] = deque()
        self._tail_bytes = 0
        self._dropped_bytes = 0
        self.bytes_received = 0

    def __enter__(self) -> Self:
        """Open the file and the pipe."""
        self._file = self.path.open("wb", buffering=0)
        self.read_end, self.write_end = os.pipe()
        os.set_blocking(self.read_end, False)
        self.eof = False
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close_write_end()
        try:
            self.pump()
            self._store(self._partial_line)
            if self._dropped_bytes:
                self._file.write(f"\n[... {self._dropped_bytes} bytes left out: limits.log_bytes ...]\n".encode())
            self._file.write(b"".join(self._tail))
        finally:
            self._file.close()
            os.close(self.read_end)

    def close_write_end(self) -> None:
        """Close the executor's copy of the write end, once all ranks have their own."""
        if self.write_end >= 0:
            os.close(self.write_end)
            self.write_end = -1

    def descriptors(self) -> list[int]:
        """Return the descriptors to poll: the read end, until all writers have closed their ends."""
        return [] if self.eof else [self.read_end]

    def pump(self) -> None:
        """Read the pipe's current contents without blocking."""
        with contextlib.suppress(BlockingIOError):
            for _ in range(_CHUNKS_PER_READ):
                if self.eof:
                    return
                chunk = os.read(self.read_end, _CHUNK_BYTES)
                self.eof = not chunk
                self._append(chunk)

    def write(self, text: str) -> None:
        """Append `text`, a message of our own, to the log."""
        self._append(text.encode())

    def _append(self, chunk: bytes) -> None:
        self.bytes_received += len(chunk)
        lines, newline, self._partial_line = (self._partial_line + chunk).rpartition(b"\n")
        if len(self._partial_line) > _CHUNK_BYTES:
            lines, newline, self._partial_line = lines + newline + self._partial_line, b"", b""
        self._store(lines + newline)

    def _store(self, output: bytes) -> None:
        output = masked(output.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")
        room = self._half - self._head_bytes
        if room > 0:
            self._file.write(output[:room])
            self._head_bytes += len(output[:room])
            output = output[room:]
        if output:
            self._tail.append(output)
            self._tail_bytes += len(output)
        while (excess := self._tail_bytes - self._half) > 0:
            oldest = self._tail.popleft()
            if oldest[excess:]:
                self._tail.appendleft(oldest[excess:])
            dropped = min(excess, len(oldest))
            self._tail_bytes -= dropped
            self._dropped_bytes += dropped


def log_tail(path: Path) -> str:
    """Return the last five informative lines of a run's log, joined by ` | `; empty if there are none."""
    output = takewhile(lambda line: not line.startswith(STACKS_HEADING), tail_lines(path, max_bytes=MAX_STACKS_BYTES))
    lines = [line.strip() for line in _informative(list(output)) if line.strip(" \t^~")]  # no carets of tracebacks
    fatal = next((number for number, line in enumerate(lines) if line.startswith(_FATAL)), None)
    if fatal is not None:
        lines = lines[: fatal + 4]  # faulthandler prints the innermost call first, then every caller down to ours
    return " | ".join(lines[-5:])[-800:]


def _informative(lines: Sequence[str]) -> Iterator[str]:
    after_advice = False
    for line in lines:
        if after_advice and _WARNING_SOURCE_LINE.match(line):
            after_advice = False
            continue
        after_advice = _ADVICE.match(line.strip()) is not None
        if not after_advice and not line.strip().startswith(_LIGHTNING_BANNER):
            yield line
