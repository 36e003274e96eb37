"""Polling with a generous timeout, which bounds hangs, not speed, so that tests pass on a busy machine."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE_SECONDS = 600.0


def until(condition: Callable[[], object], seconds: float = PATIENCE_SECONDS) -> None:
    """Wait until `condition()` is true; fail after `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "timed out"
        time.sleep(0.01)
