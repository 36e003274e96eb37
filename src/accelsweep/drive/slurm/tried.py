"""A site tried on its cluster: whether Slurm would take its jobs, and what a job of a minute finds on a node."""

from __future__ import annotations

import contextlib
import json
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from accelsweep.base.errors import AccelsweepError
from accelsweep.core.plans import Resources
from accelsweep.core.settings import Site, Slurm
from accelsweep.drive.answers.checked import CheckResult
from accelsweep.engines.ask import ask, missing_programs
from accelsweep.engines.known import engine_of
from accelsweep.engines.node import python
from accelsweep.engines.slurm.options import before_block, in_words, sbatch_options
from accelsweep.plan.blocks.resources import sizes

_STARTS = re.compile(r"to start at (\S+) using .* on nodes? (\S+)")
_PATIENCE_SECONDS = 60.0
_LOOK_SECONDS = 2.0
_MOST_MINUTES = 1


def examine(site: Site) -> Iterator[CheckResult]:
    """Check that the site's engine is here, and that Slurm would take each size of job that the site may ask for.

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
    if site.scheduler != "slurm":
        yield CheckResult(ok=True, what=what, found=f"submits to {engine.name}, which is here; its jobs are not tried")
        return
    try:
        yield CheckResult(ok=True, what=what, found=f"submits to {ask('sbatch', '--version').strip()}")
    except AccelsweepError as error:
        yield CheckResult(ok=False, what=what, found=" ".join(str(error).split()), remedy="ask the cluster's staff")
        return
    for needs in sizes(site):
        yield _taken(needs, site.of_kind(needs.node_kind).slurm)


def _taken(needs: Resources, slurm: Slurm) -> CheckResult:
    """Return whether Slurm would take a job of this size, in its own words."""
    options = sbatch_options(needs, slurm)
    command = ["sbatch", "--test-only", *shlex.split(options), "--wrap=true"]
    what = _named(needs, slurm)
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_PATIENCE_SECONDS)
    except subprocess.TimeoutExpired:
        found = f"sbatch did not answer within {_PATIENCE_SECONDS:.0f} s"
        return CheckResult(ok=False, what=what, found=found, remedy="try again later, or ask the cluster's staff")
    said = " ".join(done.stderr.split())
    if done.returncode == 0:
        starts = _STARTS.search(said)
        found = f"Slurm would take it, and start it at {starts[1]} on {starts[2]}" if starts else said
        return CheckResult(ok=True, what=what, found=found)
    remedy = f"change the site file until this is taken: sbatch --test-only {options} --wrap=true"
    return CheckResult(ok=False, what=what, found=said, remedy=remedy)


def _named(needs: Resources, slurm: Slurm) -> str:
    kind = f"{needs.node_kind}: " if needs.node_kind else ""
    return f"job of {kind}{in_words(needs, slurm)}"


def try_jobs(site: Site, home: Path, wait_minutes: float) -> Iterator[CheckResult]:
    """Submit the smallest job to each kind of node, and tell what it finds there. One that waits longer is cancelled.

    Raises AccelsweepError where Slurm does not answer.
    """
    tried: set[tuple[str | None, bool]] = set()
    for needs in sizes(site):
        of = (needs.node_kind, needs.gpus > 0)
        if needs.nodes == 1 and of not in tried:
            tried.add(of)
            yield from _tried(needs, site.of_kind(needs.node_kind), home, wait_minutes)


def _tried(needs: Resources, site: Site, home: Path, wait_minutes: float) -> Iterator[CheckResult]:
    needs = needs.model_copy(update={"minutes": _MOST_MINUTES})
    log = home / f"accelsweep-doctor-{time.time_ns()}.log"
    what = f"a minute's {_named(needs, site.slurm)}"
    script = (
        f"{before_block(site.slurm)}{python(site.slurm, sys.executable)} -m accelsweep.measure.surroundings.on_node"
    )
    script += " --gpu" if needs.gpus and not site.slurm.fake_gpus else ""
    options = shlex.split(sbatch_options(needs, site.slurm))
    try:
        said = ask(
            *("sbatch", "--parsable", *options, f"--output={log}", "--job-name=accelsweep-doctor"),
            f"--wrap=bash -c {shlex.quote(script)}",  # as Snakemake starts a block: `module` is a function of bash
        )
        yield from _found(what, said.strip().partition(";")[0], log, wait_minutes)
    except AccelsweepError as error:
        yield CheckResult(ok=False, what=what, found=str(error), remedy="change the site file, and try again")
    finally:
        log.unlink(missing_ok=True)


def _found(what: str, job: str, log: Path, wait_minutes: float) -> Iterator[CheckResult]:
    try:
        waiting = _until_ended(job, wait_minutes)
    finally:
        with contextlib.suppress(AccelsweepError):  # of a job that has ended
            ask("scancel", job)
    if waiting:
        remedy = "try again when the cluster is less busy, or wait longer with --job MINUTES"
        yield CheckResult(ok=None, what=what, found=f"still {waiting} after {wait_minutes:g} minutes", remedy=remedy)
        return
    try:
        text = log.read_text("utf-8", "replace")
    except FileNotFoundError:
        remedy = "work in a folder that login node and compute nodes share, under the same path"
        yield CheckResult(ok=False, what=what, found=f"job {job} wrote nothing into {log.parent}", remedy=remedy)
        return
    yield from _told(what, job, text)


def _told(what: str, job: str, text: str) -> Iterator[CheckResult]:
    """Return what the job's last line tells of its node; the log's last words where the job came no further."""
    lines = [line for line in text.splitlines() if line.strip()] or ["it wrote nothing"]
    try:
        checks = [CheckResult(**check) for check in json.loads(lines[-1])["checks"]]
    except (ValueError, TypeError, KeyError):
        remedy = "look at site.slurm.modules, scratch and container: they come before Python"
        yield CheckResult(ok=False, what=what, found=f"job {job} ended early: {lines[-1]}", remedy=remedy)
        return
    yield CheckResult(ok=True, what=what, found=f"job {job} ran")
    yield from checks


def _until_ended(job: str, wait_minutes: float) -> str | None:
    """Wait for the job's end; return its state and Slurm's reason where it takes too long."""
    last = time.monotonic() + wait_minutes * 60
    while line := _in_queue(job):
        if time.monotonic() > last:
            state, _, reason = line.partition("|")
            return f"{state} ({reason})"
        time.sleep(_LOOK_SECONDS)
    return None


def _in_queue(job: str) -> str | None:
    """Return `STATE|REASON` of a job that has not ended; None once it has."""
    listed = ask("squeue", "--noheader", "--states=all", f"--jobs={job}", "--format=%T|%r").strip()
    running = listed.startswith(("PENDING", "CONFIGURING", "RUNNING", "COMPLETING", "SUSPENDED", "REQUEUE"))
    return listed if running else None
