"""Tests that wait. Their limits bound hangs, not speed, so that a busy machine fails nothing."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE_SECONDS = 600.0


def until(condition: Callable[[], object], seconds: float = PATIENCE_SECONDS) -> None:
    """Wait until `condition()` is true; fail after `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.01)
