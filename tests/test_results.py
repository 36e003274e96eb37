"""The rule that names a bottleneck, fingerprints that decide about reuse, and outcomes that are answers."""

from __future__ import annotations

import pytest

from accelsweep.results import (
    BEHIND,
    MAX_CURVE_POINTS,
    PARTS,
    SUBSTANTIAL,
    Fingerprint,
    LearningCurve,
    LearningPoint,
    Outcome,
    bottleneck,
)


def shares(**given):
    rest = (1.0 - sum(given.values())) / (len(PARTS) - len(given))
    return {part: given.get(part, rest) for part in PARTS}


@pytest.mark.parametrize(
    ("part", "verdict"),
    [
        ("data_wait", "input-bound"),
        ("host_to_device", "transfer-bound"),
        ("forward", "compute-bound"),
        ("backward", "compute-bound"),
        ("optimizer", "compute-bound"),
        ("communication", "communication-bound"),
        ("overhead", "overhead-bound"),
    ],
)
def test_the_largest_part_names_the_bottleneck_and_is_in_the_evidence(part, verdict):
    found, evidence = bottleneck(shares(**{part: 0.7}))
    assert found == verdict
    assert ("70 %" in evidence) or (verdict == "compute-bound" and "80 %" in evidence)
    assert "less than half" not in evidence


def test_forward_backward_and_optimizer_count_together():
    assert bottleneck(shares(forward=0.2, backward=0.2, optimizer=0.2, data_wait=0.2))[0] == "compute-bound"
    assert bottleneck(shares(forward=0.08, backward=0.08, optimizer=0.08, data_wait=0.6))[0] == "input-bound"


def test_compute_that_may_include_communication_says_so():
    """FSDP gathers parameters inside forward and backward: `compute-bound` alone would be too much."""
    verdict, evidence = bottleneck({"forward": 0.5, "backward": 0.3, "data_wait": 0.2})
    assert verdict == "compute-bound or communication-bound"
    assert "any exchange between ranks included, took 80 %" in evidence


def test_a_substantial_second_part_is_named_with_its_share():
    """58 % of computing is not the whole truth if 39 % are waiting for data."""
    verdict, evidence = bottleneck(shares(forward=0.3, backward=0.2, optimizer=0.08, data_wait=0.39))
    assert verdict == "compute-bound and input-bound"
    assert "58 %" in evidence
    assert "waiting for data with 39 %" in evidence
    assert bottleneck(shares(forward=0.7, data_wait=SUBSTANTIAL - 0.01))[0] == "compute-bound"
    assert bottleneck(shares(data_wait=0.6, forward=0.32))[0] == "input-bound and compute-bound"


def test_a_largest_part_without_a_majority_says_so():
    assert "less than half" in bottleneck(shares(data_wait=0.45, communication=0.4))[1]


def test_compute_on_a_device_that_waits_for_the_host_is_overhead():
    busy = shares(forward=0.9)
    assert bottleneck(busy, device_behind=BEHIND)[0] == "compute-bound"
    verdict, evidence = bottleneck(busy, device_behind=BEHIND - 0.01)
    assert verdict == "overhead-bound"
    assert "49 %" in evidence
    assert bottleneck(shares(data_wait=0.9), device_behind=0.0)[0] == "input-bound"


def test_communication_that_cannot_be_separated_is_no_candidate():
    without = {part: share for part, share in shares(forward=0.8).items() if part != "communication"}
    assert bottleneck(without)[0] == "compute-bound or communication-bound"


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


def test_only_answers_settle_a_run():
    settled = {outcome for outcome in Outcome if outcome.settled}
    assert settled == {Outcome.measured, Outcome.out_of_memory, Outcome.diverged, Outcome.unsupported, Outcome.decided}


def test_a_long_curve_is_averaged_over_consecutive_steps_and_keeps_its_end():
    steps = 3 * MAX_CURVE_POINTS - 1
    curve = LearningCurve.of_steps([4] * steps, [float(step) for step in range(steps)], [], [0.5] * steps)
    assert len(curve.losses) == MAX_CURVE_POINTS
    assert curve.losses[0] == LearningPoint(12, 1.0, 1.5)
    assert curve.losses[-1] == LearningPoint(4 * steps, steps - 1.5, 0.5 * steps)


def test_values_that_are_missing_or_not_finite_leave_no_point():
    validations = [LearningPoint(8, float("nan")), LearningPoint(16, 0.5)]
    curve = LearningCurve.of_steps([8, 8, 8], [None, float("inf"), 0.25], validations)
    assert curve == LearningCurve((LearningPoint(24, 0.25),), (LearningPoint(16, 0.5),))
