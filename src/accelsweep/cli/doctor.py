"""`accelsweep doctor`: this machine's devices and versions, and anything that would keep it from measuring well.

`doctor site=NAME` also tries a cluster: each size of job is offered to its engine, and with `--job` one goes to a node.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import math
import shlex
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field

from accelsweep.config.site import Site
from accelsweep.devices.file_system import Capability, free_inodes, missing_capabilities
from accelsweep.devices.kinds import monitored_devices
from accelsweep.devices.linux import allowed_cores
from accelsweep.driver.console import Tone, say, say_marked
from accelsweep.driver.job_queue import keys_in_words
from accelsweep.driver.json_output import Answer, AnswerPart
from accelsweep.errors import EXIT_INCOMPLETE, EXIT_OK, AccelsweepError, InputError
from accelsweep.files import LEASE_FOLDER_VARIABLE, exclusive_lock, lease_folder, tail_lines
from accelsweep.installation import shipped_root
from accelsweep.measure.busy_now import busy_now
from accelsweep.measure.machine_state import device_state, host_state
from accelsweep.measure.run_doubts import FOREIGN, POWER_CAPS
from accelsweep.measure.run_doubts import governor as governor_doubt
from accelsweep.planning.resources import START_UP_SECONDS, trial_jobs
from accelsweep.records.file_lock import now_on
from accelsweep.schedulers.protocol import Engine, Resources, ask, missing_programs, python
from accelsweep.schedulers.select import engine_of
from accelsweep.schedulers.slurm import LITTLE_MEMORY_MB
from accelsweep.significant_digits import format_duration, gib

# The answer of `accelsweep doctor`.


class CheckResult(AnswerPart):
    """One check."""

    ok: bool | None = Field(description="whether it holds; null for what keeps nobody from measuring")
    what: str = Field(description="what was looked at")
    found: str = Field(description="what was found")
    remedy: str | None = Field(None, description="what to do, where something should be done")


class DoctorAnswer(Answer):
    """`accelsweep doctor --json`: whether this machine can measure."""

    kind: ClassVar[str] = "doctor"

    able: bool = Field(description="whether every check holds; if not, the exit code is 1")
    checks: tuple[CheckResult, ...] = Field(description="the checks")


# The state of this machine for `accelsweep doctor`: load, memory, disk, clocks, others at work; and what to do.

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
    for gpu in monitored_devices():
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
    found = f"that of the disk is {format_duration(abs(apart))} {which} this machine's"
    yield CheckResult(ok=None, what="clock", found=found, remedy="let both follow a time server (NTP)")


def _disk(home: Path) -> Iterator[CheckResult]:
    """Tell what the disk of `home` lacks, and what follows from that; nothing of a disk that has all."""
    for ability in missing_capabilities(home):
        found, remedy = _WITHOUT[ability]
        yield CheckResult(ok=None, what=f"{ability} in {home}", found=f"none: {found}", remedy=remedy)


_WITHOUT: dict[Capability, tuple[str, str | None]] = {
    Capability.hard_links: (
        "files are renamed into place instead, and logs of blocks begin anew with each command",
        None,
    ),
    Capability.symbolic_links: (
        "a repository that has some cannot be copied to compare its versions",
        "put such a repository on another disk",
    ),
    Capability.locks: (
        "SQLite cannot write mlflow.db there; runs are measured all the same",
        "name another store, such as --tracking-uri sqlite:////tmp/mlflow.db, or a server",
    ),
    Capability.shared_maps: (
        "the steps of a run are not shown, and one that hangs is ended by limits.run_seconds alone",
        "lower limits.run_seconds where runs are short",
    ),
    Capability.modes: ("files have the permissions that the disk's mount gives all of them", None),
}


def _turns() -> CheckResult:
    """Check that runs can take turns on this machine, by locks in the node-local folder."""
    try:
        with exclusive_lock("doctor", Path("/")):
            return CheckResult(ok=True, what="runs take turns", found=f"by locks in {lease_folder()}")
    except (AccelsweepError, OSError) as error:
        remedy = f"set {LEASE_FOLDER_VARIABLE} to a folder of this machine's own disk that only you can write to"
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


# A site tried on its cluster: whether its engine would take its jobs, and what a short job finds on a node.

_LOOK_SECONDS = 2.0

_LATE_SECONDS = 60.0
"""A shared disk may take so long to show here a file from a node: it remembers for a while that the file was absent."""

_MOST_MINUTES = math.ceil(START_UP_SECONDS / 60)
"""The minutes that a plan grants a block for the same: modules, scratch, and torch from a slow disk."""

_SLOW = "keep them where the node reads them faster"


def examine_site(site: Site) -> Iterator[CheckResult]:
    """Check that the site's engine is here, and that it would take each size of job that the site may ask for.

    Nothing is submitted.
    """
    what, engine = f"site {site.name}", engine_of(site)
    if engine is None:
        yield CheckResult(ok=True, what=what, found="runs are measured on this machine")
        return
    if missing := missing_programs(engine):
        remedy = "run this on a login node of the cluster, or choose site=local"
        yield CheckResult(ok=False, what=what, found=f"no {' and no '.join(missing)} here", remedy=remedy)
        return
    try:
        yield CheckResult(ok=True, what=what, found=f"submits to {engine.version()}")
    except AccelsweepError as error:
        yield CheckResult(ok=False, what=what, found=" ".join(str(error).split()), remedy="ask the cluster's staff")
        return
    little: set[str] = set()
    for needs in _sizes(site, engine):
        yield _taken(needs, site, engine)
        if (found := _little_memory(needs, site, engine)) is not None and found.found not in little:
            little.add(found.found)
            yield found


def _sizes(site: Site, engine: Engine) -> list[Resources]:
    """Return the sizes of job that a plan for this site may have."""
    return [needs for needs in trial_jobs(site) if needs.nodes == 1 or engine.starts_ranks]


def _taken(needs: Resources, site: Site, engine: Engine) -> CheckResult:
    """Return whether the engine would take a job of this size, in its own words."""
    what = _named(needs, engine)
    try:
        offer = engine.offer(needs)
    except AccelsweepError as error:
        found = " ".join(str(error).split())
        return CheckResult(ok=False, what=what, found=found, remedy="try again later, or ask the cluster's staff")
    if offer.passing:
        later = "try again when one of your jobs has ended" if engine.queue_limit(offer.said) else "try again later"
        return CheckResult(ok=None, what=what, found=offer.said, remedy=later)
    remedy = (
        None if offer.taken else f"change {keys_in_words(site, needs, offer.keys)} until this is taken: {offer.command}"
    )
    return CheckResult(ok=offer.taken, what=what, found=offer.said, remedy=remedy)


def _little_memory(needs: Resources, site: Site, engine: Engine) -> CheckResult | None:
    """Return a note on a job that would have to do with too little memory, because the site states none."""
    if needs.mem_mb is not None:
        return None
    try:
        memory = engine.default_memory_mb(needs)
    except AccelsweepError:
        return None  # the offer of the job tells it
    if memory is None or memory >= LITTLE_MEMORY_MB:
        return None
    kind = f" of {needs.node_kind}" if needs.node_kind else ""
    found = f"its default is {memory} MB per node, and a block needs more than {LITTLE_MEMORY_MB} MB"
    remedy = f"state mem_mb{kind}, e.g. {site.jobs_key}.mem_mb=4000"
    return CheckResult(ok=None, what=f"memory of a job{kind}", found=found, remedy=remedy)


def _named(needs: Resources, engine: Engine) -> str:
    kind = f"{needs.node_kind}: " if needs.node_kind else ""
    return f"job of {kind}{engine.in_words(needs)}"


def try_jobs(site: Site, home: Path, wait_minutes: float) -> Iterator[CheckResult]:
    """Submit the smallest job to each kind of node, and tell what it finds there. One that waits longer is cancelled.

    Nothing for a site without an engine. Raises AccelsweepError where the engine does not answer.
    """
    if (engine := engine_of(site)) is None:
        return
    tried: set[tuple[str | None, bool]] = set()
    for needs in trial_jobs(site):
        of = (needs.node_kind, needs.gpus > 0)
        if needs.nodes == 1 and of not in tried:
            tried.add(of)
            yield from _tried(needs, site, engine, home, wait_minutes)


def _tried(needs: Resources, site: Site, engine: Engine, home: Path, wait_minutes: float) -> Iterator[CheckResult]:
    own = site.of_kind(needs.node_kind).jobs
    needs = needs.model_copy(update={"minutes": min(_MOST_MINUTES, own.max_minutes or _MOST_MINUTES)})
    log = home / f"accelsweep-doctor-{time.time_ns()}.log"
    what = f"a short {_named(needs, engine)}"
    script = f"{engine.before_block(needs)}{python(own, sys.executable)} -P -m accelsweep.measure.node_check"
    script += " --gpu" if needs.gpus and not own.fake_gpus else ""
    try:
        # as Snakemake starts a block: `module` is a function of bash
        job = engine.submit(needs, f"bash -c {shlex.quote(script)}", log)
        yield from _found(what, job, engine, site, log, wait_minutes)
    except AccelsweepError as error:
        yield CheckResult(ok=False, what=what, found=str(error), remedy="change the site file, and try again")
    finally:
        log.unlink(missing_ok=True)


def _found(what: str, job: str, engine: Engine, site: Site, log: Path, wait_minutes: float) -> Iterator[CheckResult]:
    try:
        waiting = _until_ended(job, engine, wait_minutes)
    finally:
        with contextlib.suppress(AccelsweepError):  # of a job that has ended
            ask(*engine.cancel([job]))
    if waiting:
        remedy = "try again when the cluster is less busy, or wait longer with --job MINUTES"
        yield CheckResult(ok=None, what=what, found=f"still {waiting} after {wait_minutes:g} minutes", remedy=remedy)
        return
    if (lines := _written(log)) is None:
        remedy = "work in a folder that login node and compute nodes share, under the same path"
        yield CheckResult(ok=False, what=what, found=f"job {job} wrote nothing into {log.parent}", remedy=remedy)
        return
    yield from _told(what, job, site, lines or ["it wrote nothing"])


def _written(log: Path) -> list[str] | None:
    """Return the lines of an ended job's log, once they are seen here; None where there is no log."""
    last = time.monotonic() + _LATE_SECONDS
    while not (lines := [line for line in tail_lines(log) if line.strip()]) and time.monotonic() < last:
        time.sleep(_LOOK_SECONDS)
    return lines if log.exists() else None


def _told(what: str, job: str, site: Site, lines: Sequence[str]) -> Iterator[CheckResult]:
    """Return what the job's last line tells of its node; the log's last words where the job came no further."""
    try:
        checks = [CheckResult(**check) for check in json.loads(lines[-1])["checks"]]
    except (ValueError, TypeError, KeyError):
        remedy = f"look at {site.jobs_key}.modules, scratch and container: they come before Python"
        if any("time limit" in line.lower() for line in lines):
            remedy = (
                f"{_MOST_MINUTES} minutes were too short to start Python and torch, and a block has no more: {_SLOW}"
            )
        yield CheckResult(ok=False, what=what, found=f"job {job} ended early: {lines[-1]}", remedy=remedy)
        return
    yield CheckResult(ok=True, what=what, found=f"job {job} ran")
    yield from checks


def _until_ended(job: str, engine: Engine, wait_minutes: float) -> str | None:
    """Wait for the job's end; return its state and the engine's reason where it takes too long."""
    last = time.monotonic() + wait_minutes * 60
    while state := engine.state(job):
        if time.monotonic() > last:
            return state
        time.sleep(_LOOK_SECONDS)
    return None


_PACKAGES = ("torch", "lightning", "hydra-core", "snakemake", "mlflow", "pandas")

_MARKS = {True: ("ok  ", Tone.good), False: ("FAIL", Tone.bad), None: ("    ", Tone.plain)}


def examine(
    home: Path, overrides: Sequence[str] = (), *, job_minutes: float | None = None, as_json: bool = False
) -> int:
    """Print every check; return 0 if all hold, else 1.

    `overrides` name a site, which is tried too. With `job_minutes` a short job is submitted to each of its kinds
    of node, and waited for that long. Raises InputError for a site that is wrong, AccelsweepError where its engine does
    not answer.
    """
    site = _site(home, overrides, job_minutes)
    if as_json:
        checks = tuple(_all(home, site, job_minutes))
        answer = DoctorAnswer(able=_able(checks), checks=checks)
        say(answer.text())
        return EXIT_OK if answer.able else EXIT_INCOMPLETE
    done = []
    for check in _all(home, site, job_minutes):  # told one by one: some take a moment
        done.append(check)
        mark, tone = ("note", Tone.doubtful) if check.ok is None and check.remedy else _MARKS[check.ok]
        say_marked(mark, tone, f" {check.what}: {check.found}" + (f" -> {check.remedy}" if check.remedy else ""))
    if failed := [check.what for check in done if check.ok is False]:
        say(f"{len(failed)} of {len(done)} checks failed, the first: {failed[0]}")
    return EXIT_INCOMPLETE if failed else EXIT_OK


def _site(home: Path, overrides: Sequence[str], job_minutes: float | None) -> Site | None:
    if other := [one for one in overrides if not one.lstrip("+~").startswith(("site=", "site."))]:
        raise InputError(f"{other[0]}: doctor looks at a site alone; give site=NAME, and keys below `site.`")
    if job_minutes is not None and not 0 < job_minutes < math.inf:
        raise InputError(f"--job {job_minutes:g}: give the minutes to wait for a job, more than 0")
    if not overrides:
        if job_minutes is not None:
            raise InputError("--job submits to a site's cluster: name the site, as site=NAME")
        return None
    from accelsweep.config.hydra import Composer
    from accelsweep.planning.checked_grid import site_of

    return site_of(Composer.of(home, overrides), overrides)


def _all(home: Path, site: Site | None, job_minutes: float | None) -> Iterator[CheckResult]:
    yield from _checks(home)
    if site is None:
        return

    able = True
    for check in examine_site(site):
        able = able and check.ok is not False
        yield check
    if job_minutes is not None and able:
        yield from try_jobs(site, home, job_minutes)


def _able(checks: Sequence[CheckResult]) -> bool:
    return all(check.ok is not False for check in checks)


def _checks(home: Path) -> Iterator[CheckResult]:
    version = sys.version.split()[0]
    yield _check(sys.version_info >= (3, 11), "Python", version, "use Python 3.11 or later")
    for package in _PACKAGES:
        yield _package(package)
    yield _shipped()
    yield from _devices()
    yield from machine_now(home)
    for program, use in (("git", "commits in records"), ("sbatch", "submitting to Slurm")):
        found = shutil.which(program) or f"not installed (only needed for {use})"
        yield CheckResult(ok=None, what=program, found=found)


def _check(holds: bool, what: str, found: str, remedy: str) -> CheckResult:
    return CheckResult(ok=holds, what=what, found=found, remedy=None if holds else remedy)


def _package(name: str) -> CheckResult:
    try:
        return CheckResult(ok=True, what=name, found=importlib.metadata.version(name))
    except importlib.metadata.PackageNotFoundError:
        return _check(False, name, "missing", "make setup, or pip install accelsweep again")


def _shipped() -> CheckResult:
    what = "conf/ and Snakefile"
    try:
        return CheckResult(ok=True, what=what, found=str(shipped_root()))
    except FileNotFoundError as error:
        return _check(False, what, str(error), "install accelsweep again")


def _devices() -> Iterator[CheckResult]:
    from accelsweep.devices.kinds import inventory

    try:
        devices = inventory()
    except AccelsweepError as error:
        yield _check(False, "devices", str(error), "see the message")
        return
    for device in devices:
        memory = f", {gib(device.memory_bytes)}" if device.memory_bytes else ""
        found = f"{device.count} x {device.accelerator}: {device.model}{memory}"
        yield CheckResult(ok=None, what="device", found=found)
