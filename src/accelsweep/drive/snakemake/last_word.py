"""Snakemake's reason for its end, in one sentence: its log has the rest, tracebacks and commands."""

from __future__ import annotations

import itertools
import re
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path

from accelsweep.state.tail import last_lines

_OURS = "error: "
_STOPPED = ("Terminating processes on user request", "Will exit after finishing currently running jobs")
"""Snakemake's words after SIGINT and after SIGTERM."""

_HEADING = re.compile(r"(?:\w+\.)*\w+(?:Error|Exception)(?: in (?:file|rule) .*)?:")
_WHOLE = re.compile(r"(?:(?:\w+\.)*\w+(?:Error|Exception|Exit)|(?:\w+\.)+error): \S.*")
_MESSAGE = re.compile(r"\s+message: (?!None$)(.+?)(?:\. For further error details.*)?")
"""The executor's words about a job that the cluster ended."""

_SAYS_NOTHING = re.compile(r"Command '.*|At least one job did not complete successfully.*|.*CalledProcessError.*")
"""Of a command that failed its own log says why, or its end: see `_failed_commands`."""

_LISTED = re.compile(r"\s*(?:affected|missing) files:\s*|.*[Mm]issing files? after .*", re.IGNORECASE)
"""The line before the names of the files that an error of Snakemake is about."""

_STEP = re.compile(r"^Error in rule (?P<rule>\w+):\n(?P<rest>(?:[ \t].*\n)*)", re.MULTILINE)
_LOG = re.compile(r"^ +log: ([^\n(]+?)(?: \(check log file.*)?$", re.MULTILINE)
_COMMAND = re.compile(
    r"^Command '(?P<command>[^\n]*)' (?:died with <Signals\.(?P<name>\w+)|returned non-zero exit status (?P<code>\d+))",
    re.MULTILINE,
)
_MODULE = re.compile(r"-m (accelsweep\.[\w.]+)( --prepare)?")
_TIME = re.compile(r"^\d\d:\d\d:\d\d ")
_STEPS = {
    "accelsweep.supervise --prepare": "preparing the data",
    "accelsweep.supervise": "a block",
    "accelsweep.analyse": "the analysis",
    "accelsweep.report": "the report",
    "accelsweep.publish": "the copy to MLflow",
    "accelsweep.drive.finish": "the report of what there is",
}
"""What the commands of the workflow do, for users."""


def why_snakemake_ended(log: Path, code: int) -> str:
    """Return why Snakemake ended with this exit code, a negative one for a signal, by its log.

    Where Snakemake says only that a command failed, the log of that command is asked, which lies beside `log`.
    """
    if code < 0:
        return f"it was ended by {_name(-code)}"
    lines = last_lines(log)
    ours = [line.removeprefix(_OURS) for line in lines if line.startswith(_OURS)]
    if ours:
        return ours[-1]
    if any(line.startswith(_STOPPED) for line in lines):
        return "it was told to stop"
    said = [*_failed_commands("\n".join(lines), log.parent), *_errors(lines)]
    if said:
        return said[-1]
    left = [line.strip() for line in lines if line.strip()]
    if not left:
        return f"its log was emptied, or Python could not start it (exit code {code})"
    return f"it gave no reason (exit code {code}) after: {left[-1]}"


def _errors(lines: Sequence[str]) -> Iterator[str]:
    """Yield the sentences of errors: on the line of the error's name, or on the next, with the files it is about."""
    for number, (line, following) in enumerate(itertools.pairwise([*lines, ""])):
        if message := _MESSAGE.fullmatch(line):
            yield message[1]
        said = following if _HEADING.fullmatch(line.strip()) else line if _WHOLE.fullmatch(line.strip()) else ""
        if said.strip() and not _SAYS_NOTHING.fullmatch(said.strip()):
            yield said.strip() + _files(lines[number + 1 : number + 8])


def _files(lines: Sequence[str]) -> str:
    """Return the first file that one of these lines announces."""
    for line, following in itertools.pairwise(lines):
        if _LISTED.fullmatch(line) and following.strip():
            return f" {following.strip()}"
    return ""


def _failed_commands(text: str, logs: Path) -> Iterator[str]:
    """Yield why commands of the workflow failed: the signals that ended them, or the last lines of their logs."""
    steps = {found["rule"]: found["rest"] for found in _STEP.finditer(text)}
    for found in _COMMAND.finditer(text):
        module = _MODULE.search(found["command"])
        step = _STEPS.get(f"{module[1]}{module[2] or ''}", module[1]) if module else "a command of the workflow"
        code = int(found["code"] or 0)
        if found["name"] or code > 128:
            yield f"{step} was ended by {found['name'] or _name(code - 128)}"
            continue
        own = [match[1] for rest in steps.values() if (match := _LOG.search(rest)) and match[1] in found["command"]]
        words = [_TIME.sub("", line.strip()) for line in last_lines(logs / Path(own[-1]).name)] if own else []
        told = next((line for line in reversed(words) if line), "")
        yield f"{step} failed: {told.removeprefix(_OURS) or f'it ended with exit code {code}, and its log is empty'}"


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
