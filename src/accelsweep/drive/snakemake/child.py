"""Snakemake as a child of the head: its command line, by the profile, the user's options and the plan."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from accelsweep.base.shipped import shipped_root
from accelsweep.drive.children.processes import Child
from accelsweep.drive.snakemake.profiles import find_profile
from accelsweep.engines.environment import undisturbed
from accelsweep.engines.known import engine_of
from accelsweep.state.folders import SweepFolder

if TYPE_CHECKING:
    from accelsweep.plan.make import Plan

_SHARED = ("persistence", "input-output", "software-deployment", "sources", "storage-local-copies")
"""The folders that Snakemake's jobs share. Its cache of remote sources is none: it would be made in HOME, empty."""


def options_for(plan: Plan, profile: str, jobs: int | None) -> list[str]:
    """Return Snakemake's options for a plan. `jobs` are its jobs at once; None means those that the site allows."""
    options = ["--profile", str(find_profile(profile))]
    site = plan.manifest.site
    engine = engine_of(site)
    jobs = jobs or (site.jobs.max_jobs if engine else None)
    options += ["--jobs", str(jobs)] if jobs else []
    options += engine.options(plan.manifest.sweep) if engine else []
    slots = max((cell.config.measure.concurrency for cell in plan.cells), default=1)
    if site.scheduler == "local" and slots > 1:
        options += ["--resources", f"timing={slots}"]
    return options


def start_snakemake(folder: SweepFolder, options: Sequence[str], temporary: Path | None = None) -> Child:
    """Start Snakemake with these options on the plan that is written; it ends when everything was tried.

    Its own temporary files go to the folder `temporary`; None means the place that the environment names.
    """
    command = [
        sys.executable,
        "-m",
        *(["snakemake"] if temporary is None else ["accelsweep.drive.snakemake", str(temporary)]),
        "--snakefile",
        str(shipped_root() / "Snakefile"),
        "--nolock",
        *("--workflow-profile", "none"),  # else profiles/default, in the user's folder, would be one
        "--shared-fs-usage",
        *_SHARED,
        *options,
    ]
    # With its folder, because Snakemake reads a bare 1e3 or 007 as a number.
    command += ["--config", f"sweep=sweeps/{folder.name}", "--", "told"]
    return Child.start(command, cwd=folder.home, log=folder.snakemake_log, environment=undisturbed(os.environ))
