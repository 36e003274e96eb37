"""The environment of a run with typed attributes, and kinds of hardware."""

from __future__ import annotations

from typing import Any

import pytest

from accelsweep.results import Fingerprint
from accelsweep.run_environment import Checkout, DeviceState, HardwareKind, MachineState, RunEnvironment, hardware_names

WRITTEN: dict[str, dict[str, Any]] = {
    "before": {"machine": "a1", "host": "n1", "variables": {"SLURM_JOB_ID": "7"}, "devices": [{"celsius": 40}]},
    "after": {"cpu_celsius": 61.0, "devices": [{"celsius": 45}]},
    "opened": {"devices": [{"name": "GPU", "celsius": 60, "throttles": ["heat"], "of_a_later_version": 1}]},
    "closed": {"devices": [{"name": "GPU", "celsius": 70, "held_back": {"heat": [1.0, 9.0]}}]},
}


def test_what_was_written_is_read_by_attribute() -> None:
    seen = RunEnvironment(WRITTEN)
    assert (seen.before.machine, seen.before.host, seen.before.variables) == ("a1", "n1", {"SLURM_JOB_ID": "7"})
    assert seen.after.cpu_celsius == 61.0
    assert seen.closed.devices == (DeviceState(name="GPU", celsius=70, held_back={"heat": [1.0, 9.0]}),)


def test_the_window_lies_between_its_own_moments_or_else_those_of_the_run() -> None:
    def celsius(environment: dict[str, dict[str, Any]]) -> list[float | None]:
        return [moment.devices[0].celsius for moment in RunEnvironment(environment).around_the_window]

    assert celsius(WRITTEN) == [60, 70]
    assert celsius({moment: WRITTEN[moment] for moment in ("before", "after")}) == [40, 45]


@pytest.mark.parametrize("environment", [{}, {"before": {}, "after": {}}, {"before": {"devices": None, "host": None}}])
def test_missing_and_null_values_are_unknown(environment: dict[str, dict[str, Any]]) -> None:
    seen = RunEnvironment(environment)
    assert (seen.before, seen.after, seen.closed) == (MachineState(), MachineState(), MachineState())
    assert MachineState.of({"devices": [{"throttles": None, "reason": "absent"}]}).devices == (DeviceState(),)


def test_replacing_the_machine_changes_nothing_else() -> None:
    assert RunEnvironment(WRITTEN).with_machine("b2") == {**WRITTEN, "before": {**WRITTEN["before"], "machine": "b2"}}
    assert RunEnvironment({}).with_machine("b2") == {"before": {"machine": "b2"}}


@pytest.mark.parametrize("git", [{}, {"commit": None, "dirty": None, "reason": "git is not installed"}])
def test_a_run_outside_a_repository_has_no_commit(git: dict[str, Any]) -> None:
    assert Checkout.of(git) == Checkout(commit=None, dirty=None)
    assert Checkout.of(git).short is None


def test_a_commit_is_abbreviated() -> None:
    seen = Checkout.of({"commit": "0123456789abcdef", "dirty": False, "reason": None})
    assert (seen.short, seen.dirty) == ("0123456789", False)


def fingerprint(**hardware: str) -> Fingerprint:
    return Fingerprint(hardware=hardware, software={}, builds={}, sources={})


def test_equal_fingerprints_are_of_one_kind_in_any_order():
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


def test_kinds_with_equal_names_are_distinguished_by_driver():
    kinds = [HardwareKind.of({"host": "Xeon", "device": "H100", "driver": driver}) for driver in ("1", "2")]
    assert list(hardware_names(kinds).values()) == ["H100 in Xeon, driver 1", "H100 in Xeon, driver 2"]
