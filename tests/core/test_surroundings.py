"""The surroundings of a run are read by attribute. What a record does not tell has the value for "not known"."""

from __future__ import annotations

from typing import Any

import pytest

from accelsweep.run_environment import Checkout, DeviceState, MachineState, RunEnvironment

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


def test_the_window_is_between_its_own_moments_or_else_between_those_of_the_run() -> None:
    def celsius(environment: dict[str, dict[str, Any]]) -> list[float | None]:
        return [moment.devices[0].celsius for moment in RunEnvironment(environment).around_the_window]

    assert celsius(WRITTEN) == [60, 70]
    assert celsius({moment: WRITTEN[moment] for moment in ("before", "after")}) == [40, 45]


@pytest.mark.parametrize("environment", [{}, {"before": {}, "after": {}}, {"before": {"devices": None, "host": None}}])
def test_what_is_missing_or_null_is_not_known(environment: dict[str, dict[str, Any]]) -> None:
    seen = RunEnvironment(environment)
    assert (seen.before, seen.after, seen.closed) == (MachineState(), MachineState(), MachineState())
    assert MachineState.of({"devices": [{"throttles": None, "reason": "absent"}]}).devices == (DeviceState(),)


def test_another_machine_leaves_all_else_as_it_was_written() -> None:
    assert RunEnvironment(WRITTEN).with_machine("b2") == {**WRITTEN, "before": {**WRITTEN["before"], "machine": "b2"}}
    assert RunEnvironment({}).with_machine("b2") == {"before": {"machine": "b2"}}


@pytest.mark.parametrize("git", [{}, {"commit": None, "dirty": None, "reason": "git is not installed"}])
def test_a_run_outside_a_repository_has_no_commit(git: dict[str, Any]) -> None:
    assert Checkout.of(git) == Checkout(commit=None, dirty=None)
    assert Checkout.of(git).short is None


def test_the_commit_of_a_run_is_shown_by_its_first_digits() -> None:
    seen = Checkout.of({"commit": "0123456789abcdef", "dirty": False, "reason": None})
    assert (seen.short, seen.dirty) == ("0123456789", False)
