"""Snakemake's command line, in a process that has imported it and what our Snakefile imports (see forked.py)."""

from snakemake.cli import main

import accelsweep.drive.snakemake.workflow
import accelsweep.plan.make  # noqa: F401

__all__ = ["main"]
