"""The user's own `_target_` in place of a config group's: none of the group's keys may leak into the user's class.

`model._target_=mypkg.MyModule` on top of the default `model: small_cnn` would hand `MyModule` the small CNN's `width`
and `depth`. So where a `_target_` is stated and no file of its group was chosen, the choice becomes `own`, which holds
no argument of a class. A group that was chosen (`model=mlp model._target_=mypkg.LikeMLP`) keeps its keys, because the
user chose it for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from hydra.core.override_parser.types import Override, OverrideType
from omegaconf import DictConfig, OmegaConf

from accelsweep.core.cells.arguments import OUR_PACKAGE

if TYPE_CHECKING:
    from accelsweep.core.cells.config import CellConfig
    from accelsweep.plan.grid.compose import Composer

GROUPS = ("model", "data", "optimizer")
"""The nodes whose keys are arguments of a class; a key added elsewhere is checked where it is read."""

_BELOW = tuple(f"{group}." for group in GROUPS)
OWN = "own"
"""The file `conf/GROUP/own.yaml`: a `_target_` that the user must give, and none of its arguments."""


def with_own_targets(composer: Composer, overrides: Sequence[str]) -> tuple[str, ...]:
    """Return `overrides` with `GROUP=own` where a `_target_` of the user's replaces the default choice of GROUP.

    It comes first, so that a choice of the user's own wins over it, the default one's too. Keys below a `_target_` that
    is given in `overrides` need no `+`, because the config does not list that class's keys.
    """
    given = {line: composer.parse(line) for line in overrides}
    choices = [line for line, override in given.items() if composer.is_group_choice(override)]
    if not any(override.key_or_group.startswith(_BELOW) for override in given.values()):
        choices = list(overrides)  # none can be refused for a class's missing key: this is the composition of the plan
    targets = [override.key_or_group for override in given.values() if _is_target(override)]
    master = composer.master(choices)
    own = [f"{group}={OWN}" for group in GROUPS if _replaced(composer, master, targets, group)]
    if own:
        master = composer.master((*own, *choices))
    opened = tuple(key.removesuffix("_target_") for key in targets)
    return (*own, *(f"++{line}" if _is_new(override, master, opened) else line for line, override in given.items()))


def _is_target(override: Override) -> bool:
    parents, _, last = override.key_or_group.rpartition(".")
    return parents.split(".")[0] in GROUPS and last == "_target_" and not override.is_delete()


def _replaced(composer: Composer, master: DictConfig, targets: Sequence[str], group: str) -> bool:
    """Return whether a `_target_` other than that of the group's file was stated, while the file is the default one."""
    choice = master.hydra.runtime.choices.get(group)
    key = f"{group}._target_"
    stated = key in targets or key in (master.hydra.sweeper.get("params") or {})
    if choice is None or not (stated or OmegaConf.select(master, key) != _target_of(composer, group, choice)):
        return False
    return bool(composer.compose(()).hydra.runtime.choices.get(group) == choice)


def _target_of(composer: Composer, group: str, choice: str) -> Any:
    found = composer.loader.repository.load_config(f"{group}/{choice}")
    return None if found is None else OmegaConf.select(found.config, "_target_")


def _is_new(override: Override, config: DictConfig, opened: tuple[str, ...]) -> bool:
    """Return whether a plain override names a key below an `opened` node that `config` does not have."""
    parent, _, last = override.key_or_group.rpartition(".")
    if override.type is not OverrideType.CHANGE or not override.key_or_group.startswith(opened):
        return False
    node = OmegaConf.select(config, parent)
    return not (isinstance(node, DictConfig) and last in node)


def optimizer_notes(composer: Composer, overrides: Sequence[str], configs: Iterable[CellConfig]) -> list[str]:
    """Return the notes for a user who states an optimiser for a module that may bring its own.

    `configs` are those of the grid's points.
    """
    stated = any(composer.parse(line).key_or_group.split(".")[0] == "optimizer" for line in overrides)
    own = next((target for one in configs if (target := one.model_target) and not target.startswith(OUR_PACKAGE)), None)
    if not stated or own is None:
        return []
    return [
        f"`optimizer` applies only if {own} leaves configure_optimizers to accelsweep; each record's "
        "effective.optimizer says which one trained"
    ]
