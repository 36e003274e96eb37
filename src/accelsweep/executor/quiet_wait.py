"""Waits before a run until nobody else uses the machine, so that fewer windows are disturbed.

Looking costs a quarter of a second, so it is done only if something suggests that others are busy: the last readings
of the run before, or its doubts. Whether to wait never depends on a rate.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import takewhile

from accelsweep.devices.linux import allowed_cores
from accelsweep.ipc import Interrupted, Pause
from accelsweep.measure.busy_now import busy_now
from accelsweep.measure.run_doubts import busy_cpu
from accelsweep.run_config import SettingConfig

ASSUME_QUIET_VARIABLE = "ACCELSWEEP_ASSUME_QUIET"
"""If this variable is set, no run waits and none is repeated for a disturbance.

It is for machines that are never quiet, such as shared CI runners; our own tests are run in parallel.
"""

_LOOK_SECONDS = 0.25

_PAUSE_SECONDS = 0.25

MAX_VAIN_WAITS = 3
"""After this many waits in a row that ended at their limit, a block stops waiting: the machine is never quiet."""

_LAST_SECONDS = 1.0

_ALL_CORES = float("inf")


def cores_needed(config: SettingConfig, threads: int | None) -> float:
    """Return how many of the available cores a run may keep busy: all of them on a CPU, unless its threads are set."""
    cores = len(allowed_cores())
    per_rank = threads or (cores if config.accelerator == "cpu" else 1)
    return float(min(cores, config.devices * per_rank))


def others_at_end(rows: Sequence[Mapping[str, float]]) -> float | None:
    """Return how many cores others kept busy in the last second of a run, given its samples; None if unknown.

    The ranks' loader workers count as others.
    """
    sampled = [row for row in rows if "host_cpu_cores" in row and "rank0_cpu_cores" in row]
    if not sampled:
        return None
    last = list(takewhile(lambda row: sampled[-1]["seconds"] - row["seconds"] < _LAST_SECONDS, reversed(sampled)))
    ours = (value for row in last for name, value in row.items() if name.startswith("rank") and "cpu_cores" in name)
    return (sum(row["host_cpu_cores"] for row in last) - sum(ours)) / len(last)


class QuietWait:
    """Waits for others to stop using the machine; one object serves all runs of a block, in order."""

    def __init__(self, limit_seconds: float, pause: Pause) -> None:
        """Each wait takes at most `limit_seconds`; `pause` sleeps and returns whether a stop signal arrived."""
        self._limit_seconds, self._pause = limit_seconds, pause
        self._suspected = True
        self._vain_waits = 0

    def observe(self, rows: Sequence[Mapping[str, float]], disturbance: str | None) -> None:
        """Learn from a run that has just ended: what was sampled, and what disturbed its window."""
        others = others_at_end(rows)
        self._suspected = disturbance is not None or (others is not None and busy_cpu(others, _ALL_CORES) is not None)

    def wait(self, needed_cores: float, devices: Collection[str], report: Callable[[str], None]) -> float:
        """Wait for a run that needs this many cores and these devices; return the seconds waited.

        `report` is called with what others are doing whenever that changes. Raises Interrupted.
        """
        if not self._suspected or self._limit_seconds <= 0 or self._vain_waits >= MAX_VAIN_WAITS:
            return 0.0
        start, last = time.monotonic(), ""
        while busy := busy_now(_LOOK_SECONDS, needed_cores, devices):
            if (seconds := time.monotonic() - start) >= self._limit_seconds:
                self._vain_waits += 1
                return seconds
            if busy[0] != last:
                report(last := busy[0])
            if self._pause(_PAUSE_SECONDS):
                raise Interrupted
        self._vain_waits = 0
        return time.monotonic() - start if last else 0.0
