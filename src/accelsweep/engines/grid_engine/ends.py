"""Grid Engine's refusals and ends of jobs: qacct's account of them, and our line about it in a job's log.

A killed job leaves no word. So `status.py`, which asks for its end, writes qacct's account of it into the job's log.
The next supervisor and the head read it there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from accelsweep.engines.grid_engine.options import LOGS
from accelsweep.schedulers.protocol import JobEnd

_REFUSED = re.compile(
    r"message: Error submitting jobscript \(exit code \d+\):\n(.*?)For further error details", re.DOTALL
)
_CHATTER = re.compile(r"^Unable to run job: (?:error: )?|^Exiting\.\n", re.MULTILINE)
_FULL = re.compile(r"job rejected: ((?:only \d+ jobs are allowed|currently \d+ jobs?)[^\n]*)")
_AWAY = re.compile(r"unable to (?:contact|send message to) qmaster|got send error|can't connect to service", re.I)
_NUMBER = re.compile(r"^    external_jobid: (\d+)", re.MULTILINE)
_MARK = "Grid Engine: "
_MEMORY = "more memory than its limit"
_BY_A_SIGNAL = 128
_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def ended(paragraph: str, home: Path) -> JobEnd | None:
    """Return how a job ended, by a paragraph of Snakemake's log; None where it is about no job."""
    if refused := _REFUSED.search(paragraph):
        return JobEnd(refusal=_CHATTER.sub("", refused[1]))
    number = _NUMBER.search(paragraph)
    return JobEnd(number=number[1], state="failed", log=log_of(number[1], home)) if number else None


def full(refusal: str) -> str | None:
    """Return qsub's words on a job too many in the queue, of its user or of all; None for another refusal."""
    found = _FULL.search(refusal)
    return found[1] if found else None


def away(refusal: str) -> bool:
    """Return whether qsub could not reach the queue's master."""
    return _AWAY.search(refusal) is not None


def log_of(number: str, home: Path) -> Path:
    """Return the path of a job's log."""
    return home / LOGS / f"{number}.log"


def own_words(lines: Sequence[str]) -> list[str]:
    """Return what Grid Engine says of a job's end in these lines of its log."""
    return [line.removeprefix(_MARK) for line in lines if line.startswith(_MARK)]


def tells_of_memory(line: str) -> bool:
    """Return whether this line tells that a job was ended for lack of memory."""
    return line.startswith(_MARK) and _MEMORY in line


def read_account(told: str) -> dict[str, str]:
    """Return the fields of the last job in qacct's answer. Numbers of jobs begin anew after ten million."""
    last = told.rpartition("=====")[2]
    pairs = (line.split(None, 1) for line in last.splitlines() if line.strip("= "))
    return {pair[0]: " ".join(pair[1].split()) if len(pair) > 1 else "" for pair in pairs}


def succeeded(account: Mapping[str, str]) -> bool:
    """Return whether a job ended well."""
    return account.get("failed", "").split()[:1] == ["0"] and account.get("exit_status", "").split()[:1] == ["0"]


def last_word(account: Mapping[str, str]) -> str | None:
    """Return our line about a job that Grid Engine ended: the cause where its limits tell it, else qacct's words.

    None for a job that ended by itself, whose own log tells more.
    """
    if account.get("failed", "").split()[:1] == ["0"] and _number(account.get("exit_status")) < _BY_A_SIGNAL:
        return None
    asked = dict(re.findall(r"(\w+)=([0-9.]+[KMGT]?)", account.get("category", "")))
    spent = f"failed {account.get('failed')}, exit_status {account.get('exit_status')}"
    if _number(account.get("ru_wallclock")) >= _number(asked.get("h_rt"), default=float("inf")):
        return f"{_MARK}it came to its time limit, {asked['h_rt']} s ({spent})"
    slots = _number(account.get("slots"), default=1)
    for name in ("h_vmem", "h_rss", "s_vmem"):
        if name in asked and _number(account.get("maxvmem")) >= slots * _number(asked[name]):
            return f"{_MARK}it took {_MEMORY}, {asked[name]} per slot ({spent}, maxvmem {account.get('maxvmem')})"
    return f"{_MARK}{spent}"


def _number(text: str | None, default: float = 0.0) -> float:
    """Return the number in `12`, `12.5s`, `250M` or `2.100GB`, in seconds or bytes."""
    found = re.match(r"([0-9.]+) *([KMGT]?)", text or "")
    return float(found[1]) * _UNITS[found[2]] if found else default
