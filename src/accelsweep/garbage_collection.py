"""Keeps Python's garbage collector for cycles from taking time while many objects are made that stay.

The collector looks at all objects again and again as their number grows, which takes a fifth of the time of collecting,
analysing and reporting thousands of runs, and a sixth of importing torch. It finds nothing: these objects form no
cycles, or last as long as the process.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


def collect_rarely() -> None:
    """Run the collector only once 250,000 new objects exist. For a program of our own, at its start.

    A command that finds nothing to measure ends before that.
    """
    gc.set_threshold(250_000)


@contextlib.contextmanager
def collector_paused() -> Iterator[None]:
    """Pause the collector within the block or the decorated function; objects without cycles are freed as ever."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
