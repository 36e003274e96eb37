"""The size of a config once its aliases and interpolations are replaced, told without replacing them.

Ten lines that each name the line before ten times stand for ten thousand million values. Such a file would fill the
memory before anybody could say what is wrong with it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import yaml
from omegaconf import DictConfig

from accelsweep.base.errors import InputError
from accelsweep.plan.grid.interpolation import nodes

MOST_VALUES = 1_000_000
"""A config that stands for more values or characters is refused."""

_ALIAS = re.compile(r"[\s,\[{]\*\w")
_REFERENCE = re.compile(r"\$\{\s*(\.*)([\w-]+(?:[.\[][\w\]-]+)*)\s*\}")


def refuse_endless_aliases(folders: Sequence[Path]) -> None:
    """Raise InputError for a YAML file below `folders` whose aliases stand for more than `MOST_VALUES` values."""
    for path in (path for folder in folders for path in sorted(folder.rglob("*.yaml")) if path.is_file()):
        text = path.read_text("utf-8", "replace")
        if _ALIAS.search(text) is None:
            continue
        try:
            size = _size_of(yaml.compose(text, Loader=yaml.SafeLoader), {})
        except yaml.YAMLError:
            continue  # Hydra says where
        if size > MOST_VALUES:
            raise InputError(f"{path}: its YAML aliases stand for more than {MOST_VALUES} values: write fewer")


def _size_of(node: yaml.Node | None, known: dict[int, int]) -> int:
    if not isinstance(node, yaml.CollectionNode):
        return 1
    if id(node) not in known:
        known[id(node)] = 1
        parts = [part for item in node.value for part in (item if isinstance(item, tuple) else (item,))]
        known[id(node)] = 1 + sum(_size_of(part, known) for part in parts)
    return known[id(node)]


def refuse_endless_interpolations(config: DictConfig) -> None:
    """Raise InputError, naming the key, where interpolations stand for more than `MOST_VALUES` values or characters."""
    sizes = _Sizes(config)
    for key in sorted(sizes.interpolated, key=lambda key: key.startswith("hydra.")):  # which repeats what was typed
        if sizes.of(key) > MOST_VALUES:
            raise InputError(f"'{key}' stands for more than {MOST_VALUES} values: its interpolations multiply")


class _Sizes:
    """The size of each key of a config with all interpolations in place; a reference that cannot be told counts 1."""

    def __init__(self, config: DictConfig) -> None:
        self._texts: dict[str, str] = {}
        self.interpolated: list[str] = []
        self._below: dict[str, list[str]] = defaultdict(list)
        for key, node in nodes(config):
            self._below[key.rpartition(".")[0]].append(key)
            value = node._value() if not node._is_none() else ""
            self._texts[key] = value if isinstance(value, str) else ""
            if node._is_interpolation():
                self.interpolated.append(key)
        self._known: dict[str, int] = {}

    def of(self, key: str) -> int:
        if key not in self._known:
            self._known[key] = 1  # also for whoever refers to itself, which OmegaConf refuses
            referred = [self._named(key, dots, name) for dots, name in _REFERENCE.findall(self._texts.get(key, ""))]
            size = sum(self.of(name) for name in [*referred, *self._below.get(key, ())])
            self._known[key] = size + max(1, len(self._texts.get(key, "")))
        return self._known[key]

    def _named(self, key: str, dots: str, name: str) -> str:
        name = re.sub(r"\[(\w+)\]", r".[\1]", name)
        above = key.split(".")[: -len(dots)] if dots else []
        return ".".join([*above, name])
