"""Checks accept only what was shown to hold, and leave nothing out silently."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from pathlib import Path

import checks
import pytest
from checks import CannotApply, Check, Findings, Result, run_all


def ended(run: Callable[[None, Findings], None], *, minutes: float = 0.0, optional: bool = False) -> Result:
    check = Check("group", "name", minutes, run, optional)
    return run_all([check], None, seconds=60.0, written=lambda _results: None)[0]


def holds(_place: None, findings: Findings) -> None:
    findings.expect("one is one", True, 1)


def test_a_check_whose_expectations_hold_has_passed():
    assert (ended(holds).status, ended(holds).accepted) == ("passed", True)


def test_a_broken_expectation_fails_the_check_and_says_what_was_seen():
    def broken(_place: None, findings: Findings) -> None:
        findings.near("the rate", 1.03, 1.0, 0.01)

    result = ended(broken)
    assert (result.status, result.accepted) == ("failed", False)
    assert result.reason == "the rate within 1.0%: ratio 1.0300"


def test_a_check_that_expected_nothing_has_failed():
    assert ended(lambda _place, _findings: None).status == "failed"


def test_an_error_fails_the_check_and_keeps_what_was_found_before_it():
    def breaks(_place: None, findings: Findings) -> None:
        findings.table("before", ("column",), [(1,)])
        raise LookupError("no such number")

    result = ended(breaks)
    assert result.status == "failed"
    assert "no such number" in str(result.reason)
    assert [table.title for table in result.findings.tables] == ["before"]


def test_what_a_device_cannot_have_is_accepted_with_its_reason():
    def absent(_place: None, _findings: Findings) -> None:
        raise CannotApply("a cpu device has no NVML")

    result = ended(absent)
    assert (result.status, result.reason, result.accepted) == ("not applicable", "a cpu device has no NVML", True)


@pytest.mark.parametrize("optional", [False, True])
def test_a_check_for_which_the_time_is_spent_fails_the_acceptance_unless_it_is_optional(optional):
    result = ended(holds, minutes=2.0, optional=optional)
    assert (result.status, result.accepted) == ("not reached", optional)
    assert "2 minutes" in str(result.reason)


def test_all_that_must_be_reached_fits_into_the_minutes_of_one_command():
    script = Path(checks.__file__).with_name("__main__.py")
    acceptance = runpy.run_path(str(script), run_name="acceptance")
    assert sum(check.minutes for check in acceptance["CHECKS"] if not check.optional) <= acceptance["MINUTES"]


def test_results_are_written_after_every_check():
    seen: list[int] = []
    run_all([Check("a", "b", 0.0, holds)] * 3, None, seconds=60.0, written=lambda results: seen.append(len(results)))
    assert seen == [1, 2, 3]
