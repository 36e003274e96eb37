"""A record cannot say less than it must: no number without a unit, no gap and no failure without a reason."""

import pytest

from accelsweep.metrics import Metric
from accelsweep.results import Fingerprint, Outcome


def test_a_metric_without_a_value_needs_a_reason():
    with pytest.raises(ValueError, match="either a value or the reason"):
        Metric(value=None, unit="J")


def test_a_metric_with_a_value_has_no_reason_to_lack_one():
    with pytest.raises(ValueError, match="either a value or the reason"):
        Metric(value=1.0, unit="J", reason="unavailable")


def fingerprint(**changes: dict[str, str]) -> Fingerprint:
    parts = {"hardware": {"cpu": "x"}, "software": {"torch": "2.13.0"}, "builds": {"torch": "+cpu"}, "sources": {}}
    return Fingerprint(**(parts | changes))


def test_fingerprints_match_whatever_the_build_tag():
    assert fingerprint().matches(fingerprint(builds={"torch": "+cu130"}))


@pytest.mark.parametrize(
    "change", [{"hardware": {"cpu": "y"}}, {"software": {"torch": "2.12.1"}}, {"sources": {"mypkg": "0123"}}]
)
def test_fingerprints_differ_by_device_version_or_source(change):
    assert not fingerprint().matches(fingerprint(**change))


def test_only_outcomes_that_are_answers_settle_a_run():
    settled = {outcome for outcome in Outcome if outcome.settled}
    assert settled == {Outcome.measured, Outcome.out_of_memory, Outcome.diverged, Outcome.unsupported}
