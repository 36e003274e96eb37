"""`accelsweep doctor`: this machine's devices and versions, and anything that would keep it from measuring well."""

from __future__ import annotations

import importlib.metadata
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from accelsweep.base.errors import EXIT_INCOMPLETE, EXIT_OK, AccelsweepError
from accelsweep.base.shipped import shipped_root
from accelsweep.drive.console import say

_PACKAGES = ("torch", "lightning", "hydra-core", "snakemake", "mlflow", "pandas")
_LEAST_FREE_BYTES = 2_000_000_000


@dataclass(frozen=True)
class Check:
    """One check. `ok` None means: for information."""

    ok: bool | None
    what: str
    found: str
    remedy: str = ""


def examine(home: Path) -> int:
    """Print every check; return 0 if all hold, else 1."""
    failed = 0
    for check in _checks(home):
        mark = {True: "ok  ", False: "FAIL", None: "    "}[check.ok]
        failed += check.ok is False
        say(f"{mark} {check.what}: {check.found}" + (f" -> {check.remedy}" if check.ok is False else ""))
    return EXIT_INCOMPLETE if failed else EXIT_OK


def _checks(home: Path) -> Iterator[Check]:
    version = sys.version.split()[0]
    yield Check(sys.version_info >= (3, 11), "Python", version, "use Python 3.11 or later")
    for package in _PACKAGES:
        yield _package(package)
    yield _shipped()
    free = shutil.disk_usage(home).free
    yield Check(free > _LEAST_FREE_BYTES, "free disk", f"{free / 1e9:.1f} GB in {home}", "free some, or work elsewhere")
    yield from _devices()
    yield from _others()
    yield from _programs()


def _package(name: str) -> Check:
    try:
        return Check(True, name, importlib.metadata.version(name))
    except importlib.metadata.PackageNotFoundError:
        return Check(False, name, "missing", "make setup, or pip install accelsweep again")


def _shipped() -> Check:
    try:
        return Check(True, "conf/ and Snakefile", str(shipped_root()))
    except FileNotFoundError as error:
        return Check(False, "conf/ and Snakefile", str(error), "install accelsweep again")


def _devices() -> Iterator[Check]:
    from accelsweep.machine.devices import inventory

    try:
        devices = inventory()
    except AccelsweepError as error:
        yield Check(False, "devices", str(error), "see the message")
        return
    for device in devices:
        memory = f", {device.memory_bytes / 2**30:.0f} GiB" if device.memory_bytes else ""
        yield Check(None, "device", f"{device.count} x {device.accelerator}: {device.model}{memory}")


def _others() -> Iterator[Check]:
    from accelsweep.measure.surroundings.busy_now import busy_now

    busy = busy_now()
    for sentence in busy:
        yield Check(None, "other work", f"{sentence}: stop them before you measure")
    if not busy:
        yield Check(True, "other work", "none seen")


def _programs() -> Iterator[Check]:
    for program, use in (("git", "commits in records"), ("sbatch", "submitting to Slurm")):
        yield Check(None, program, shutil.which(program) or f"not installed (only needed for {use})")
