"""Snakemake's command line, in a process that has imported it and what our Snakefile imports (see forked.py)."""

from snakemake.cli import main

import accelsweep.driver.snakefile_functions
import accelsweep.planning.plan  # noqa: F401

__all__ = ["main"]
