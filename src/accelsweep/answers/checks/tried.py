"""A site tried on its cluster: whether its engine would take its jobs, and what a short job finds on a node."""

from __future__ import annotations

import contextlib
import json
import math
import shlex
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from accelsweep.answers.forms.checked import CheckResult
from accelsweep.base.errors import AccelsweepError
from accelsweep.core.planned.plans import Resources
from accelsweep.core.sites.site import Site
from accelsweep.drive.jobs.failures import keys_in_words
from accelsweep.engines.ask import ask, missing_programs
from accelsweep.engines.engine import Engine
from accelsweep.engines.known import engine_of
from accelsweep.engines.node import python
from accelsweep.engines.slurm.nodes import LITTLE_MEMORY_MB
from accelsweep.plan.blocks.resources import START_UP_SECONDS, sizes
from accelsweep.state.tail import last_lines

_LOOK_SECONDS = 2.0
_LATE_SECONDS = 60.0
"""A shared disk may take so long to show here a file from a node: it remembers for a while that the file was absent."""

_MOST_MINUTES = math.ceil(START_UP_SECONDS / 60)
"""The minutes that a plan grants a block for the same: modules, scratch, and torch from a slow disk."""

_SLOW = "keep them where the node reads them faster"


def examine(site: Site) -> Iterator[CheckResult]:
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
    return [needs for needs in sizes(site) if needs.nodes == 1 or engine.starts_ranks]


def _taken(needs: Resources, site: Site, engine: Engine) -> CheckResult:
    """Return whether the engine would take a job of this size, in its own words."""
    what = _named(needs, engine)
    try:
        offer = engine.offer(needs)
    except AccelsweepError as error:
        found = " ".join(str(error).split())
        return CheckResult(ok=False, what=what, found=found, remedy="try again later, or ask the cluster's staff")
    if offer.passing:
        later = "try again when one of your jobs has ended" if engine.full(offer.said) else "try again later"
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
    for needs in sizes(site):
        of = (needs.node_kind, needs.gpus > 0)
        if needs.nodes == 1 and of not in tried:
            tried.add(of)
            yield from _tried(needs, site, engine, home, wait_minutes)


def _tried(needs: Resources, site: Site, engine: Engine, home: Path, wait_minutes: float) -> Iterator[CheckResult]:
    own = site.of_kind(needs.node_kind).jobs
    needs = needs.model_copy(update={"minutes": min(_MOST_MINUTES, own.max_minutes or _MOST_MINUTES)})
    log = home / f"accelsweep-doctor-{time.time_ns()}.log"
    what = f"a short {_named(needs, engine)}"
    script = f"{engine.before_block(needs)}{python(own, sys.executable)} -P -m accelsweep.measure.surroundings.on_node"
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
    while not (lines := [line for line in last_lines(log) if line.strip()]) and time.monotonic() < last:
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
