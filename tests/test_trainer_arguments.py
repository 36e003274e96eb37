"""Lightning's Trainer as the plan knows it: its arguments have the values that they have anyway."""

from __future__ import annotations

import inspect

import lightning.pytorch as pl
import pytest
import yaml

from accelsweep.errors import InputError
from accelsweep.installation import shipped_root
from accelsweep.trainer_arguments import DECIDED_HERE, DEFAULTS, asked_length, without_effect

UNSAID = {"deterministic": False}
"""Arguments for which the Trainer's None means this value."""


def test_the_defaults_are_those_of_the_installed_trainer() -> None:
    parameters = inspect.signature(pl.Trainer.__init__).parameters
    found = {name: parameters[name].default for name in DEFAULTS}
    assert {name: UNSAID.get(name) if value is None else value for name, value in found.items()} == DEFAULTS
    assert DEFAULTS.keys().isdisjoint(DECIDED_HERE)


def test_the_shipped_config_states_the_defaults() -> None:
    stated = yaml.safe_load((shipped_root() / "conf" / "trainer" / "default.yaml").read_text())
    assert stated == {name: value for name, value in DEFAULTS.items() if name in stated}


@pytest.mark.parametrize(
    ("stated", "found"),
    [
        ({}, (None, None)),
        ({"max_epochs": -1, "max_steps": None}, (None, None)),
        ({"max_epochs": 90}, (90, None)),
        ({"max_epochs": 90, "max_steps": 7}, (90, 7)),
    ],
)
def test_schedules_have_the_length_of_the_trainers_arguments(
    stated: dict[str, int | None], found: tuple[int | None, int | None]
) -> None:
    assert asked_length(stated) == found


@pytest.mark.parametrize("value", [0, -2, 1.5, True, "3"])
def test_an_invalid_length_is_refused(value: object) -> None:
    with pytest.raises(InputError, match="must be a whole number above 0"):
        asked_length({"max_epochs": value})


def test_the_defaults_have_no_effect_anywhere() -> None:
    assert without_effect(DEFAULTS, "loop=raw") is None
    assert without_effect({**DEFAULTS, "accumulate_grad_batches": 2}, "loop=raw") is not None
