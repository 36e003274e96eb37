"""Kinds of hardware: machines that are equal in all facts of a fingerprint."""

from __future__ import annotations

import pytest

from accelsweep.results import Fingerprint
from accelsweep.run_environment import HardwareKind, hardware_names


def fingerprint(**hardware: str) -> Fingerprint:
    return Fingerprint(hardware=hardware, software={}, builds={}, sources={})


def test_two_fingerprints_with_the_same_facts_are_of_one_kind_in_any_order():
    one = fingerprint(host="Xeon", device="H100", driver="570.1").hardware_kind
    same = fingerprint(driver="570.1", device="H100", host="Xeon").hardware_kind
    assert {one} == {same}
    assert (one.host, one.device, one.driver) == ("Xeon", "H100", "570.1")
    assert one.details == {"host": "Xeon", "device": "H100", "driver": "570.1"}


@pytest.mark.parametrize(
    ("facts", "name"),
    [
        ({"host": "Xeon", "device": "H100", "driver": "1"}, "H100 in Xeon"),
        ({"host": "Xeon"}, "Xeon"),
        ({"device": "H100"}, "H100"),
        ({}, "unknown hardware"),
    ],
)
def test_a_kind_is_named_by_device_and_host(facts, name):
    assert HardwareKind.of(facts).name == name
    assert bool(HardwareKind.of(facts)) == bool(facts)


def test_kinds_that_share_a_name_are_told_apart_by_their_driver():
    kinds = [HardwareKind.of({"host": "Xeon", "device": "H100", "driver": driver}) for driver in ("1", "2")]
    assert list(hardware_names(kinds).values()) == ["H100 in Xeon, driver 1", "H100 in Xeon, driver 2"]
