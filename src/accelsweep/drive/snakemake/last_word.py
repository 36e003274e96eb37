"""Snakemake's reason for its end, in one sentence: its log has the rest, tracebacks and commands."""

from __future__ import annotations

import itertools
import re
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path

from accelsweep.state.tail import last_lines

_OURS = "error: "
_STOPPED = "Terminating processes on user request"
_HEADING = re.compile(r"(?:\w+\.)*\w+(?:Error|Exception)(?: in file .*)?:")
_WHOLE = re.compile(r"(?:\w+\.)*\w+(?:Error|Exception|Exit): \S.*")
_MESSAGE = re.compile(r"\s+message: (?!None$)(.+?)(?:\. For further error details.*)?")
"""The executor's words about a job that the cluster ended."""

_SAYS_NOTHING = re.compile(r"Command '.*|At least one job did not complete successfully.*|.*CalledProcessError.*")
"""Of a command that failed somebody else says why: a halt, or a line of ours."""


def why_snakemake_ended(log: Path, code: int) -> str:
    """Return why Snakemake ended with this exit code, a negative one for a signal, by its log."""
    if code < 0:
        return f"it was ended by {_name(-code)}"
    lines = last_lines(log)
    ours = [line.removeprefix(_OURS) for line in lines if line.startswith(_OURS)]
    if ours:
        return ours[-1]
    if any(line.startswith(_STOPPED) for line in lines):
        return "it was told to stop"
    return [f"it ended with exit code {code}", *_errors(lines)][-1]


def _errors(lines: Sequence[str]) -> Iterator[str]:
    """Yield the sentences of errors: on the line of the error's name, or on the next."""
    for line, following in itertools.pairwise([*lines, ""]):
        if message := _MESSAGE.fullmatch(line):
            yield message[1]
        said = following if _HEADING.fullmatch(line.strip()) else line if _WHOLE.fullmatch(line.strip()) else ""
        if said.strip() and not _SAYS_NOTHING.fullmatch(said.strip()):
            yield said.strip()


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
