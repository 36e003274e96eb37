"""Handles user `_target_`s that replace a config group's own: the group's keys must not leak into the user's class."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from hydra.core.override_parser.types import Override, OverrideType
from omegaconf import DictConfig, OmegaConf

from accelsweep.config.hydra import Composer
from accelsweep.run_config import SettingConfig
from accelsweep.target_signature import OUR_PACKAGE

TARGET_GROUPS = ("model", "data", "optimizer")
"""Config groups whose keys are passed to a class as arguments; keys added elsewhere are checked where they are read."""

OWN_CHOICE = "own"
"""The file `conf/GROUP/own.yaml`, which contains no arguments, only a `_target_` that the user must set."""


def with_user_targets(composer: Composer, overrides: Sequence[str]) -> tuple[str, ...]:
    """Add `GROUP=own` to `overrides` if a user `_target_` replaces GROUP's default choice.

    The added override comes first, so any explicit choice, even of the default, takes precedence. Keys under a
    `_target_` in `overrides` need no `+`, because the config does not list that class's keys.
    """
    parsed = {line: composer.parse(line) for line in overrides}
    choices = [line for line, override in parsed.items() if composer.is_group_choice(override)]
    if not any(
        override.key_or_group.startswith(tuple(f"{group}." for group in TARGET_GROUPS)) for override in parsed.values()
    ):
        choices = list(overrides)  # no override sets a key of a class, so all can be composed, as for the plan
    targets = [override.key_or_group for override in parsed.values() if _sets_target(override)]
    master = composer.master(choices)
    own = [f"{group}={OWN_CHOICE}" for group in TARGET_GROUPS if _is_replaced(composer, master, targets, group)]
    if own:
        master = composer.master((*own, *choices))
    prefixes = tuple(key.removesuffix("_target_") for key in targets)
    return (
        *own,
        *(f"++{line}" if _is_new_key(override, master, prefixes) else line for line, override in parsed.items()),
    )


def _sets_target(override: Override) -> bool:
    parents, _, last = override.key_or_group.rpartition(".")
    return parents.split(".")[0] in TARGET_GROUPS and last == "_target_" and not override.is_delete()


def _is_replaced(composer: Composer, master: DictConfig, targets: Sequence[str], group: str) -> bool:
    """Return whether the user sets a `_target_` that differs from the one in the group's default choice."""
    choice = master.hydra.runtime.choices.get(group)
    if choice is None:
        return False
    key = f"{group}._target_"
    if key not in targets and key not in (master.hydra.sweeper.get("params") or {}):
        file = composer.loader.repository.load_config(f"{group}/{choice}")
        if OmegaConf.select(master, key) == (None if file is None else OmegaConf.select(file.config, "_target_")):
            return False
    return bool(composer.compose(()).hydra.runtime.choices.get(group) == choice)


def _is_new_key(override: Override, config: DictConfig, prefixes: tuple[str, ...]) -> bool:
    """Return whether a plain override under one of the `prefixes` sets a key that does not exist in `config`."""
    parent, _, last = override.key_or_group.rpartition(".")
    if override.type is not OverrideType.CHANGE or not override.key_or_group.startswith(prefixes):
        return False
    node = OmegaConf.select(config, parent)
    return not (isinstance(node, DictConfig) and last in node)


def optimizer_notes(composer: Composer, overrides: Sequence[str], configs: Iterable[SettingConfig]) -> list[str]:
    """Return a note if the user sets an optimizer for a module in the grid's `configs` that may provide its own."""
    stated = any(composer.parse(line).key_or_group.split(".")[0] == "optimizer" for line in overrides)
    targets = (config.model_target for config in configs)
    module = next((target for target in targets if target and not target.startswith(OUR_PACKAGE)), None)
    if not stated or module is None:
        return []
    return [
        f"`optimizer` applies only if {module} leaves configure_optimizers to accelsweep; each record's "
        "effective.optimizer says which one was used"
    ]


def composed_yaml(home: Path, overrides: Sequence[str]) -> str:
    """Return the composed config of one job as YAML, with interpolations unresolved. Raises InputError."""
    composer = Composer.of(home, overrides)
    config = composer.compose(with_user_targets(composer, overrides))
    keys: list[Any] = [key for key in config if key != "hydra"]
    return OmegaConf.to_yaml(OmegaConf.masked_copy(config, keys))
