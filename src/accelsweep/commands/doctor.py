"""`accelsweep doctor`: this machine's devices and versions, and anything that would keep it from measuring well.

`doctor site=NAME` also tries a cluster: each size of job is offered to its engine, and with `--job` one goes to a node.
"""

from __future__ import annotations

import importlib.metadata
import math
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from accelsweep.answers.checks.machine_now import machine_now
from accelsweep.answers.forms.checked import CheckResult, DoctorAnswer
from accelsweep.base.digits import gib
from accelsweep.base.errors import EXIT_INCOMPLETE, EXIT_OK, AccelsweepError, InputError
from accelsweep.base.shipped import shipped_root
from accelsweep.core.sites.site import Site
from accelsweep.drive.terminal.console import say, say_marked
from accelsweep.drive.terminal.tones import Tone

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
    from accelsweep.plan.cells import site_of
    from accelsweep.plan.grid.compose import Composer

    return site_of(Composer.of(home, overrides), overrides)


def _all(home: Path, site: Site | None, job_minutes: float | None) -> Iterator[CheckResult]:
    yield from _checks(home)
    if site is None:
        return
    from accelsweep.answers.checks.tried import examine as examine_site
    from accelsweep.answers.checks.tried import try_jobs

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
    from accelsweep.machine.devices import inventory

    try:
        devices = inventory()
    except AccelsweepError as error:
        yield _check(False, "devices", str(error), "see the message")
        return
    for device in devices:
        memory = f", {gib(device.memory_bytes)}" if device.memory_bytes else ""
        found = f"{device.count} x {device.accelerator}: {device.model}{memory}"
        yield CheckResult(ok=None, what="device", found=found)
