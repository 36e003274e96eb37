"""A rank's account of its run so far. Whatever interrupts the run, this much is recorded."""

from __future__ import annotations

import sys
import traceback
from typing import TYPE_CHECKING, Any

from accelsweep.core.recorded.breakdown import Breakdown
from accelsweep.core.recorded.outcome import Outcome
from accelsweep.core.recorded.profiles import StepProfile
from accelsweep.core.recorded.record import Doubt, Effective, Metric
from accelsweep.core.recorded.surroundings import Surroundings
from accelsweep.core.recorded.traits import Traits
from accelsweep.measure.surroundings import doubts
from accelsweep.rank.errors import OUTCOME_OF, classify, place_of, reason_of, traceback_of
from accelsweep.rank.spec import ErrorKind, RankResult

if TYPE_CHECKING:
    from collections.abc import Collection

    from accelsweep.rank.measuring import Measurement


class Account:
    """The parts of a rank's result, each filled in as soon as it is known."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self.metrics: dict[str, Metric] = {}
        self.environment: dict[str, dict[str, Any]] = {}
        self.effective: Effective | None = None
        self.doubts: list[Doubt] = []
        self.breakdown: Breakdown | None = None
        self.traits: Traits | str | None = None
        self.profile: StepProfile | None = None
        self._error: BaseException | None = None
        self._target: str | None = None
        self._survived: Collection[ErrorKind] = ()

    def window_closed(self, measured: Measurement) -> None:
        """Keep the measurements of the window. `environment` holds the state before and after it."""
        self.effective = measured.effective
        self.metrics |= measured.metrics
        self.environment |= measured.states
        seen = Surroundings(self.environment)
        changes = doubts.between(*seen.around_the_window)
        clocks = doubts.governor(seen.before.governor)
        self.doubts += [*measured.doubts, *changes, *([clocks] if clocks else [])]

    def rate_survives(self, failures: Collection[ErrorKind]) -> None:
        """Let what was measured so far stand, whichever of these `failures` follows."""
        self._survived = failures

    def failed(self, error: BaseException, target: str | None = None) -> None:
        """Keep the error and show it; `target` is the column of the classes, where the data has columns."""
        self._error, self._target = error, target
        traceback.print_exception(error, file=sys.stderr)

    def result(self, rank: int) -> RankResult:
        """Return all of it as the rank's document."""
        error = self._error
        kind = "none" if error is None else classify(error)
        return RankResult(
            rank=rank,
            outcome=Outcome.measured if error is None else OUTCOME_OF[kind],
            reason=None if error is None else reason_of(error, self._target),
            error_kind=kind,
            traceback=None if error is None else traceback_of(error),
            rate_stands=kind in self._survived,
            place=None if error is None else place_of(error),
            effective=self.effective,
            metrics=self.metrics,
            environment=self.environment,
            doubts=tuple(self.doubts),
            breakdown=self.breakdown,
            traits=self.traits,
            profile=self.profile,
        )
