"""The state of this machine for `accelsweep doctor`: load, memory, disk, clocks, others at work; and what to do."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from accelsweep.answers.forms.checked import CheckResult
from accelsweep.base.digits import gib
from accelsweep.base.durations import duration
from accelsweep.base.errors import AccelsweepError
from accelsweep.machine.cpu import allowed_cores
from accelsweep.machine.devices import watched
from accelsweep.machine.disk import Ability, free_inodes, lacking
from accelsweep.machine.locks import FOLDER_VARIABLE, alone_with, lease_folder
from accelsweep.measure.surroundings.busy_now import busy_now
from accelsweep.measure.surroundings.device_state import device_state
from accelsweep.measure.surroundings.doubts import FOREIGN, POWER_CAPS
from accelsweep.measure.surroundings.doubts import governor as governor_doubt
from accelsweep.measure.surroundings.environment import host_state
from accelsweep.state.living import now_on

LEAST_FREE_BYTES = 2_000_000_000
"""Disk: a sweep with its records and report needs a part of this. Memory: a run with its libraries does."""
LEAST_FREE_INODES = 2_000
"""A sweep of some tens of runs makes fewer files."""
MOST_LOAD = 2 * FOREIGN
"""The share of the cores that the load average of an idle machine stays below: twice what disturbs a run."""
MOST_SECONDS_APART = 60.0
"""Clocks that differ by less trouble nobody."""
USED_DEVICE_BYTES = 2**30
"""Memory of a GPU that drivers and displays may hold."""


def machine_now(home: Path) -> Iterator[CheckResult]:
    """Look at the machine and at the folder `home`; yield what was found, with a remedy where one is due.

    A file is made in `home` for a moment, to see its disk's clock.
    """
    state = host_state()
    yield from _folder(home)
    yield _turns()
    yield _memory(state)
    yield _load(state["load_average_1min"], len(allowed_cores()))
    yield _governor(state["governor"], state["cpu_mhz"])
    busy = busy_now()
    for sentence in busy:
        yield CheckResult(ok=None, what="other work", found=sentence, remedy="stop it before you measure")
    if not busy:
        yield CheckResult(ok=True, what="other work", found="none seen")
    for gpu in watched():
        yield from _gpu(device_state(gpu.identity, gpu.accelerator), gpu.model)


def _folder(home: Path) -> Iterator[CheckResult]:
    free = shutil.disk_usage(home).free
    remedy = None if free > LEAST_FREE_BYTES else "free some, or work elsewhere"
    yield CheckResult(ok=remedy is None, what="free disk", found=f"{free / 1e9:.1f} GB in {home}", remedy=remedy)
    if (files := free_inodes(home)) is not None:
        remedy = None if files > LEAST_FREE_INODES else "remove files there, or work elsewhere"
        yield CheckResult(ok=remedy is None, what="free inodes", found=f"{files} files in {home}", remedy=remedy)
    theirs = now_on(home)
    if theirs is None:
        remedy = "make it writable, or work elsewhere"
        yield CheckResult(ok=False, what="folder", found=f"{home} cannot be written", remedy=remedy)
        return
    yield from _disk(home)
    apart = theirs - time.time()
    if abs(apart) < MOST_SECONDS_APART:
        yield CheckResult(ok=True, what="clock", found="this machine and its disk agree")
        return
    which = "ahead of" if apart > 0 else "behind"
    found = f"that of the disk is {duration(abs(apart))} {which} this machine's"
    yield CheckResult(ok=None, what="clock", found=found, remedy="let both follow a time server (NTP)")


def _disk(home: Path) -> Iterator[CheckResult]:
    """Tell what the disk of `home` lacks, and what follows from that; nothing of a disk that has all."""
    for ability in lacking(home):
        found, remedy = _WITHOUT[ability]
        yield CheckResult(ok=None, what=f"{ability} in {home}", found=f"none: {found}", remedy=remedy)


_WITHOUT: dict[Ability, tuple[str, str | None]] = {
    Ability.hard_links: ("files are renamed into place instead, and logs of blocks begin anew with each command", None),
    Ability.symbolic_links: ("`ab` cannot copy a repository that has some", "put such a repository on another disk"),
    Ability.locks: (
        "SQLite cannot write mlflow.db there; runs are measured all the same",
        "name another store, such as --tracking-uri sqlite:////tmp/mlflow.db, or a server",
    ),
    Ability.shared_maps: (
        "the steps of a run are not shown, and one that hangs is ended by limits.run_seconds alone",
        "lower limits.run_seconds where runs are short",
    ),
    Ability.modes: ("files have the permissions that the disk's mount gives all of them", None),
}


def _turns() -> CheckResult:
    """Check that runs can take turns on this machine, by locks in the node-local folder."""
    try:
        with alone_with("doctor", Path("/")):
            return CheckResult(ok=True, what="runs take turns", found=f"by locks in {lease_folder()}")
    except (AccelsweepError, OSError) as error:
        remedy = f"set {FOLDER_VARIABLE} to a folder of this machine's own disk that only you can write to"
        return CheckResult(ok=False, what="runs take turns", found=str(error), remedy=remedy)


def _memory(state: dict[str, Any]) -> CheckResult:
    free, swapped = state["memory_available_bytes"], state["swap_used_bytes"]
    swap = f", {gib(swapped, 1)} swapped out" if swapped else ""
    remedy = None if free > LEAST_FREE_BYTES else "end what uses much memory, or lower batch_size"
    return CheckResult(ok=None if remedy else True, what="free memory", found=f"{gib(free, 1)}{swap}", remedy=remedy)


def _load(load: float, cores: int) -> CheckResult:
    found = f"{load:.1f} over the last minute, on {cores} cores"
    if load < max(1.0, MOST_LOAD * cores):
        return CheckResult(ok=True, what="load", found=found)
    return CheckResult(ok=None, what="load", found=found, remedy="wait until it has fallen below 1 before you measure")


def _governor(name: str | None, mhz: float | None) -> CheckResult:
    now = f", {mhz:.0f} MHz now" if mhz else ""
    if name is None:
        return CheckResult(ok=None, what="processor's clock", found=f"its governor is not shown here{now}")
    doubt = governor_doubt(name)
    found, remedy = f"governor {name}{now}", doubt.remedy if doubt else None
    return CheckResult(ok=None if doubt else True, what="processor's clock", found=found, remedy=remedy)


def _gpu(state: dict[str, Any], model: str) -> Iterator[CheckResult]:
    what = f"state of {state.get('name') or model}"
    if reason := state.get("reason"):
        yield CheckResult(ok=None, what=what, found=f"unknown: {reason}")
        return
    clock = f"{state['sm_mhz']} of {state['sm_mhz_max']} MHz, {state['celsius']} degrees Celsius"
    hot = [word for word in state["throttles"] or () if word not in POWER_CAPS]
    if hot:
        found, remedy = f"{clock}, slowed down: {', '.join(hot)}", "improve cooling, or look for a fault of the board"
        yield CheckResult(ok=None, what=what, found=found, remedy=remedy)
    else:
        yield CheckResult(ok=True, what=what, found=clock)
    used, total = state["memory_used_bytes"], state["memory_total_bytes"]
    if used is not None and used > USED_DEVICE_BYTES:
        found = f"{gib(used, 1)} of its {gib(total)} of memory are in use"
        yield CheckResult(ok=None, what=what, found=found, remedy="end what uses it (nvidia-smi shows that)")
