"""Guard against side effects of reading untrusted files: running code, starting processes, writing files, hanging.

It is an audit hook (PEP 578). Audit hooks cannot be removed, so it is active only while a `Watch` is set.
"""

from __future__ import annotations

import re
import resource
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType
from typing import Any

SECONDS = 30
"""Processor time that reading one sweep may take."""

MEBIBYTES = 1500
"""Memory that reading one sweep may take."""

_PROCESSES = re.compile(r"subprocess\.Popen|os\.(system|exec|fork|forkpty|posix_spawn|spawn|startfile|kill)|pty\.spawn")
_ELSEWHERE = re.compile(r"socket\.(connect|bind)|pickle\.find_class|ctypes\.dlopen|urllib\.Request")
_WRITES = re.compile(r"[wax+]")

DRIVER = "libnvidia-ml.so.1"
"""The library that a plan asks for this machine's GPUs, unless torch is built for the CPU alone."""


class Forbidden(BaseException):
    """Something that reading must never do was about to be done."""


@dataclass
class Watch:
    """The folder that may be written to, and what else was tried."""

    folder: Path
    broken: list[str] = field(default_factory=list)


_watch: Watch | None = None
_TRUSTED = tuple({str(Path(each).resolve()) for each in (*sys.path[1:], sys.prefix, sys.base_prefix)})


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if _watch is None:
        return
    if (what := _wrong(event, arguments, _watch)) is not None:
        _watch.broken.append(what)
        raise Forbidden(what)


def _wrong(event: str, arguments: tuple[Any, ...], watch: Watch) -> str | None:
    if event == "ctypes.dlopen" and arguments == (DRIVER,):
        return None
    if _PROCESSES.fullmatch(event) or _ELSEWHERE.fullmatch(event):
        return f"{event} {str(arguments)[:200]}"
    if event == "exec" and isinstance(arguments[0], CodeType):
        name = arguments[0].co_filename
        return f"code of {name} is run" if Path(name).is_absolute() and not name.startswith(_TRUSTED) else None
    if event == "open" and isinstance(arguments[0], str) and _WRITES.search(str(arguments[1] or "")):
        path = Path(arguments[0])
        inside = path.is_relative_to(watch.folder) or not path.is_absolute() or path == Path("/dev/null")
        return None if inside else f"{path} is opened to be written"
    return None


@contextmanager
def watched(folder: Path) -> Iterator[Watch]:
    """Watch what is done inside: only `folder` may be written to, within `SECONDS` of processor time.

    Raises Forbidden, TimeoutError or MemoryError, whichever the block itself did not catch.
    """
    global _watch  # noqa: PLW0603 - a hook has no other way to learn whether it is to look
    if _watch is None and not getattr(sys, "accelsweep_guarded", False):
        sys.addaudithook(_hook)
        sys.accelsweep_guarded = True  # type: ignore[attr-defined]
    before = signal.signal(signal.SIGPROF, _too_long)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    held = _most_held()
    watch = _watch = Watch(folder)
    try:
        yield watch
    finally:
        _watch = None
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
    if watch.broken:
        raise Forbidden("; ".join(watch.broken))
    if (more := _most_held() - held) > MEBIBYTES:
        raise MemoryError(f"{more:.0f} MiB more")


def _most_held() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _too_long(*_: object) -> None:
    raise TimeoutError(f"more than {SECONDS} s of processor time")
