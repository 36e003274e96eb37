"""Packages that accelsweep can do without, each an extra of its own."""

from __future__ import annotations

import importlib.util


def loadgen_missing() -> str | None:
    """Return the command that installs MLPerf's load generator; None where it is installed."""
    return None if importlib.util.find_spec("mlperf_loadgen") else "pip install accelsweep[serving]"
