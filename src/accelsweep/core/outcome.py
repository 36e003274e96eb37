"""How a run can end, and which endings settle it."""

from __future__ import annotations

from enum import StrEnum


class Outcome(StrEnum):
    """The ending of a run. `not_run` is derived by collect and never written by a run."""

    measured = "measured"
    out_of_memory = "out_of_memory"
    diverged = "diverged"
    unsupported = "unsupported"
    timed_out = "timed_out"
    crashed = "crashed"
    not_run = "not_run"

    @property
    def settled(self) -> bool:
        """Whether the ending is an answer, so that the same command does not try the run again."""
        return self in _SETTLED


_SETTLED = {Outcome.measured, Outcome.out_of_memory, Outcome.diverged, Outcome.unsupported}
