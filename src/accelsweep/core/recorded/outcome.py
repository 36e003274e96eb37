"""The outcomes of a run, and which of them settle it."""

from __future__ import annotations

from enum import StrEnum


class Outcome(StrEnum):
    """The ending of a run. `not_run` is derived by collect and never written by a run."""

    measured = "measured"
    """The run has its numbers."""
    out_of_memory = "out_of_memory"
    """The device or the machine had too little memory for it."""
    diverged = "diverged"
    """The loss became infinite or no number."""
    unsupported = "unsupported"
    """It cannot be done with this config, on this device or with this model."""
    timed_out = "timed_out"
    """It reached `limits.run_seconds`, or had no step for `limits.silence_seconds`."""
    crashed = "crashed"
    """It ended with an error, or without a message."""
    not_run = "not_run"
    """It is planned and not begun yet."""

    @property
    def settled(self) -> bool:
        """Whether the ending is an answer, so that the same command does not try the run again."""
        return self in _SETTLED


_SETTLED = {Outcome.measured, Outcome.out_of_memory, Outcome.diverged, Outcome.unsupported}
