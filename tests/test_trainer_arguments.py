"""The arguments of Lightning's Trainer, as the plan knows them."""

from __future__ import annotations

import inspect

import lightning.pytorch as pl
import pytest
import yaml

from accelsweep.errors import InputError
from accelsweep.installation import shipped_root
from accelsweep.trainer_arguments import (
    DEFAULTS,
    RESERVED_ARGUMENTS,
    ineffective_arguments,
    requested_length,
    strategy_names,
    trainer_arguments,
)

UNSAID = {"deterministic": False}
"""Arguments for which the Trainer's None means this value."""


def test_the_defaults_are_those_of_the_installed_trainer() -> None:
    parameters = inspect.signature(pl.Trainer.__init__).parameters
    found = {name: parameters[name].default for name in DEFAULTS}
    assert {name: UNSAID.get(name) if value is None else value for name, value in found.items()} == DEFAULTS
    assert DEFAULTS.keys().isdisjoint(RESERVED_ARGUMENTS)


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
def test_the_length_for_schedules_is_read_from_the_trainers_arguments(
    stated: dict[str, int | None], found: tuple[int | None, int | None]
) -> None:
    assert requested_length(stated) == found


@pytest.mark.parametrize("value", [0, -2, 1.5, True, "3"])
def test_an_invalid_length_is_refused(value: object) -> None:
    with pytest.raises(InputError, match="must be an integer of at least 1"):
        requested_length({"max_epochs": value})


def test_the_defaults_are_never_refused_as_ineffective() -> None:
    assert ineffective_arguments(DEFAULTS, "loop=raw") is None
    assert ineffective_arguments({**DEFAULTS, "accumulate_grad_batches": 2}, "loop=raw") is not None


@pytest.mark.real
def test_the_arguments_read_from_source_are_those_of_the_trainer():
    import inspect

    from lightning.pytorch import Trainer

    arguments = set(inspect.signature(Trainer.__init__).parameters) - {"self"}
    assert trainer_arguments() == arguments
    assert set(RESERVED_ARGUMENTS) <= arguments


def test_the_strategies_read_from_source_are_those_that_lightning_registers():
    from lightning.pytorch.strategies import StrategyRegistry

    deprecated, ours = {"single_tpu"}, {"independent_ranks"}  # another test may have registered ours
    assert set(StrategyRegistry.available_strategies()) - deprecated - ours <= strategy_names()
