"""Checks, the ways in which they can end, and the loop that runs them while there are minutes left.

A check returns tables and a list of expectations. It ends in one of four ways, and never silently. `passed` needs no
words. `failed` comes with the expectation and the observation, `not applicable` with the reason that the device gives.
`not reached` means that the minutes were spent. A check that is not reached fails the acceptance unless it is marked
optional.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

Place = TypeVar("Place")


class CannotApply(Exception):
    """The check needs a feature that this device does not have; the message names it."""


@dataclass(frozen=True)
class Table:
    """Rows under a title. Cells are text, numbers, or None where there is nothing to show."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]


@dataclass(frozen=True)
class Expectation:
    """One sentence that must hold, whether it holds, and the observation."""

    sentence: str
    holds: bool
    seen: str


@dataclass
class Findings:
    """The results that a check collects while it works, so that an error in its middle loses none of them."""

    tables: list[Table] = field(default_factory=list)
    expectations: list[Expectation] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def table(self, title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        """Add a table."""
        self.tables.append(Table(title, tuple(columns), tuple(tuple(row) for row in rows)))

    def expect(self, sentence: str, holds: bool, seen: object) -> None:
        """Add something that must hold; `seen` stands in the report either way."""
        self.expectations.append(Expectation(sentence, bool(holds), str(seen)))

    def near(self, what: str, value: float, truth: float, tolerance: float) -> None:
        """Expect `value` within a relative `tolerance` of `truth`."""
        ratio = value / truth
        self.expect(f"{what} within {tolerance:.1%}", abs(ratio - 1) <= tolerance, f"ratio {ratio:.4f}")

    def note(self, text: str) -> None:
        """Add a sentence that is neither table nor expectation, such as a part that cannot apply and why."""
        self.notes.append(text)


@dataclass(frozen=True)
class Check(Generic[Place]):
    """A named check; `minutes` is its length on a GPU, and it begins only while so many are left."""

    group: str
    name: str
    minutes: float
    run: Callable[[Place, Findings], None]
    optional: bool = False


@dataclass(frozen=True)
class Result:
    """How a check ended."""

    group: str
    name: str
    status: str
    reason: str | None
    seconds: float
    optional: bool
    findings: Findings

    @property
    def accepted(self) -> bool:
        """Whether the acceptance may pass with this ending."""
        return self.status in ("passed", "not applicable") or (self.optional and self.status == "not reached")


def run_all(
    checks: Iterable[Check[Place]],
    place: Place,
    seconds: float,
    written: Callable[[list[Result]], None],
    clock: Callable[[], float] = time.monotonic,
) -> list[Result]:
    """Run the checks in their order; `written` is called after each, so that a machine that goes away loses little."""
    begin, results = clock(), list[Result]()
    for check in checks:
        left = seconds - (clock() - begin)
        if left < 60 * check.minutes:
            why = f"it takes {check.minutes:g} minutes and {max(left, 0) / 60:.1f} were left"
            results.append(Result(check.group, check.name, "not reached", why, 0.0, check.optional, Findings()))
        else:
            results.append(_run(check, place, clock))
        written(results)
    return results


def _run(check: Check[Place], place: Place, clock: Callable[[], float]) -> Result:
    findings, begin = Findings(), clock()
    reason: str | None
    try:
        check.run(place, findings)
    except CannotApply as error:
        status, reason = "not applicable", str(error)
    except Exception:  # noqa: BLE001 - whatever a check meets, the next one still runs
        status, reason = "failed", traceback.format_exc(limit=-4)
    else:
        broken = [one for one in findings.expectations if not one.holds]
        empty = not findings.expectations
        status = "failed" if broken or empty else "passed"
        said = "it expected nothing" if empty else "; ".join(f"{one.sentence}: {one.seen}" for one in broken)
        reason = said if status == "failed" else None
    return Result(check.group, check.name, status, reason, clock() - begin, check.optional, findings)
