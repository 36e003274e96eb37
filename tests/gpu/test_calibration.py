"""Judging a record by the driver's counters, and step times by a host clock that may be read late."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from calibration import events_against_clock, limits_and_doubts
from checks import Findings
from place import Record


def record(*codes: str, bits: tuple[str, ...] = ()) -> Record:
    state = {"devices": [{"throttles": list(bits)}]}
    return Record(Path(), {"doubts": [{"code": code} for code in codes], "environment": {"closed": state}})


def judged(found: Record, **held: float | None) -> list[bool]:
    findings, reasons = Findings(), {word.replace("_", " "): seconds for word, seconds in held.items()}
    limits_and_doubts(findings, found, reasons, 10.0)
    return [one.holds for one in findings.expectations]


def test_a_board_at_its_power_limit_is_doubted_as_that_and_not_as_too_hot():
    assert judged(record("power_capped"), power_cap=8.0, heat=0.0) == [True, True]
    assert judged(record("throttled"), power_cap=8.0, heat=0.0) == [False, False]


def test_a_doubt_without_a_limit_is_refused_unless_the_driver_saw_another_reason():
    assert judged(record("throttled"), heat=0.0) == [False]
    assert judged(record("throttled", bits=("HwSlowdown",)), heat=0.0) == []
    assert judged(record(), heat=None) == []


class Steps(Record):
    """A record whose window had these steps and lasted so long by the clock."""

    def __init__(self, clock: float, *steps: float) -> None:
        super().__init__(Path(), {"metrics": {"window_seconds": {"value": clock}}})
        object.__setattr__(self, "steps", list(steps))

    def window_steps(self) -> list[float]:
        found: list[float] = self.__dict__["steps"]
        return found


@pytest.mark.parametrize(
    ("clock", "busy", "holds"),
    [(2.0, False, True), (2.08, False, False), (2.08, True, True), (2.2, True, False), (1.9, True, False)],
)
def test_a_busy_hosts_clock_may_show_more_than_the_steps_and_never_less(clock: float, busy: bool, holds: bool):
    findings = Findings()
    rows: dict[str, Any] = {"case": Steps(clock, 1.0, 1.0)}
    events_against_clock(findings, rows, 0.01, busy=busy)
    assert [one.holds for one in findings.expectations] == [holds]
