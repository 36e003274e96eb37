"""Interpolations in composed configs: the keys they may name, the calls they must not make, and their plain data."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from omegaconf import DictConfig, ListConfig, Node, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from omegaconf.grammar.gen.OmegaConfGrammarParser import OmegaConfGrammarParser
from omegaconf.grammar_parser import parse

from accelsweep import registry
from accelsweep.config.hydra_errors import dotted_keys, suggestion
from accelsweep.config.setting import PLAN_KEYS
from accelsweep.errors import InputError

_REFERENCE = re.compile(r"\$\{\s*\.*([\w-]+(?:\.[\w-]+)*)\s*\}")


def plain_data(config: DictConfig, key: str | None = None) -> Any:
    """Return `config`, or its top-level `key`, as resolved plain data; raise InputError if that cannot be had."""
    try:
        value = config if key is None else config[key]
        return OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value
    except OmegaConfBaseException as error:
        text = str(error).splitlines()[0]
        missing = re.search(r"'([\w-]+)[^']*' not found", text)
        if missing and missing[1] in PLAN_KEYS | {"hydra"}:
            text += ": a measurement may not depend on a key that only steers the sweep"
        elif missing:
            text += suggestion(missing[1], list(dotted_keys(OmegaConf.to_container(config, resolve=False))))
        raise InputError(f"'{error.full_key or key}' cannot be resolved: {text}") from None


def nodes(node: Any, prefix: str = "") -> Iterator[tuple[str, Node]]:
    """Yield dotted key and raw node of everything below `node`; the target of an interpolation is not entered."""
    if not isinstance(node, DictConfig | ListConfig) or not isinstance(node._content, dict | list):
        return
    keys = node.keys() if isinstance(node, DictConfig) else range(len(node))
    for key in keys:
        child: Any = node._get_node(key)  # type: ignore[arg-type]
        name = f"{prefix}{key!s}" if isinstance(node, DictConfig) and "." not in str(key) else f"{prefix}[{key!s}]"
        yield name, child
        yield from nodes(child, f"{name}.")


def referenced_names(interpolations: Iterable[str]) -> frozenset[str] | None:
    """Return every word that an interpolation names a key with, or None if one of them could name any key."""
    words: set[str] = set()
    for text in interpolations:
        references = _REFERENCE.findall(text)
        if len(references) != text.count("${"):
            return None
        words.update(part for reference in references for part in reference.split("."))
    return frozenset(words)


def refuse_resolvers(interpolations: Mapping[str, str]) -> None:
    """Raise InputError, naming the key, for a call such as `${now:%Y}`: it may give another value elsewhere or later.

    Only the submission of jobs (`site.SCHEDULER`) and the report may read the environment, with `${oc.env:NAME}`.
    """
    schedulers = ("slurm", *(scheduler.name for scheduler in registry.schedulers()))
    allowed = ("report.", *(f"site.{name}." for name in schedulers))
    for key, text in interpolations.items():
        for resolver in _resolvers(parse(text)):
            if not (resolver == "oc.env" and key.startswith(allowed)):
                raise InputError(
                    f"'{key}' is {text!r}: the resolver '{resolver}' may give another value elsewhere or later, so it "
                    "cannot be part of a plan. Write the value itself, or refer to another key with ${key}"
                )


def _resolvers(tree: Any) -> Iterator[str]:
    if isinstance(tree, OmegaConfGrammarParser.InterpolationResolverContext):
        context: Any = tree
        yield context.resolverName().getText()
    for child in getattr(tree, "children", None) or ():
        yield from _resolvers(child)


def refuse_missing_values(tree: Any, prefix: str = "") -> None:
    """Raise InputError, naming the key, for a value that is still `???` in plain data."""
    if tree == "???":
        raise InputError(f"'{prefix[:-1]}' has no value yet (it is ??? in the config); set it with {prefix[:-1]}=VALUE")
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in items:
        refuse_missing_values(value, f"{prefix}{key}.")


# The size of a config once its aliases and interpolations are replaced, told without replacing them.

MOST_VALUES = 1_000_000
"""A config that stands for more values or characters is refused."""

_ALIAS = re.compile(r"[\s,\[{]\*\w")

_PLAIN_REFERENCE = re.compile(r"\$\{\s*(\.*)([\w-]+(?:[.\[][\w\]-]+)*)\s*\}")


def refuse_exploding_aliases(folders: Sequence[Path]) -> None:
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


def refuse_exploding_interpolations(config: DictConfig) -> None:
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
            referred = [
                self._named(key, dots, name) for dots, name in _PLAIN_REFERENCE.findall(self._texts.get(key, ""))
            ]
            size = sum(self.of(name) for name in [*referred, *self._below.get(key, ())])
            self._known[key] = size + max(1, len(self._texts.get(key, "")))
        return self._known[key]

    def _named(self, key: str, dots: str, name: str) -> str:
        name = re.sub(r"\[(\w+)\]", r".[\1]", name)
        above = key.split(".")[: -len(dots)] if dots else []
        return ".".join([*above, name])
