"""What a training script can report about itself where its steps, samples or quality cannot be seen from outside.

Without a sweep, nothing happens: `steps` returns its argument, and the other functions do nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, TypeVar

_T = TypeVar("_T")


class Observer(Protocol):
    """What receives the reports during a measurement."""

    def steps(self, batches: Iterable[_T]) -> Iterable[_T]:
        """Yield the batches; each request for the next one ends a step."""

    def samples(self, count: int) -> None:
        """Add samples to the current step."""

    def quality(self, value: float) -> None:
        """Take a value of the quality metric."""


is_measured = False
"""Whether this process is a run of a sweep. The worker sets it."""

observer: Observer | None = None
"""What receives the reports; None outside a measurement. The worker sets it."""


def steps(batches: Iterable[_T]) -> Iterable[_T]:
    """Return `batches`, whose items are the training steps: a step lasts until the next item is requested.

    Only needed by loops without an optimiser of torch. If the device computes asynchronously, wait for it in each step.
    """
    return batches if observer is None else observer.steps(batches)


def samples(count: int) -> None:
    """Report that the current step trains on `count` more samples on this rank."""
    if observer is not None:
        observer.samples(count)


def quality(value: float) -> None:
    """Report the quality of the trained model; the last value counts."""
    if observer is not None:
        observer.quality(float(value))
