"""Lightning's Trainer as the plan knows it: its arguments have the values that they have anyway."""

from __future__ import annotations

import inspect

import lightning.pytorch as pl
import pytest
import yaml

from accelsweep.base.shipped import shipped_root
from accelsweep.core.cells.trainer import DECIDED_HERE, DEFAULTS, accumulated, without_effect

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
    ("stated", "found"), [({}, 1), ({"accumulate_grad_batches": None}, 1), ({"accumulate_grad_batches": 4}, 4)]
)
def test_one_batch_makes_a_step_unless_more_are_accumulated(stated: dict[str, int | None], found: int) -> None:
    assert accumulated(stated) == found


def test_the_defaults_have_an_effect_nowhere() -> None:
    assert without_effect(DEFAULTS, "loop=raw") is None
    assert without_effect({**DEFAULTS, "accumulate_grad_batches": 2}, "loop=raw") is not None
