"""The owners of the processes on a device: a process is ours, if it belongs to the process group of this run."""

from __future__ import annotations

import os
from collections.abc import Iterable

import psutil


def foreign(processes: Iterable[int] | None) -> list[int] | None:
    """Return the processes of other groups; None where `processes` are unknown or are ids that do not exist here.

    Inside a container a driver shows the ids of the host, which do not exist there.
    """
    found = None if processes is None else list(processes)
    if found is None or any(not psutil.pid_exists(pid) for pid in found):
        return None
    return [pid for pid in found if _group_of(pid) != os.getpgid(0)]


def _group_of(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return None
