"""The advice's words for more and less of the compared metric: a rate is faster, a batch is larger."""

from __future__ import annotations

from typing import NamedTuple

from accelsweep.core.cells.tasks import SIZES


class Wording(NamedTuple):
    """Phrases about a metric: `gain` takes a ratio, `beyond` a percentage. `nothing` says that no setting has more."""

    noun: str
    more: str
    less: str
    gain: str
    unknown_gain: str
    nothing: str
    beyond: str


FASTER = Wording(
    noun="rate",
    more="faster",
    less="slower",
    gain="is {} faster",
    unknown_gain="is faster, by how much is not known",
    nothing="nothing is faster",
    beyond="is more than {} faster",
)
LARGER = Wording(
    noun="largest batch",
    more="larger",
    less="smaller",
    gain="holds a batch {} larger",
    unknown_gain="holds a larger batch, by how much is not known",
    nothing="nothing holds a larger batch",
    beyond="holds a batch more than {} larger",
)


def wording_for(metric: str) -> Wording:
    """Return the phrases for the metric that settings are compared by."""
    return LARGER if metric in SIZES else FASTER
