"""Checks interpolations in composed configs: finds referenced keys, rejects resolvers, and limits the expanded size."""

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

MAX_VALUES = 1_000_000
"""A config is rejected if its aliases or interpolations expand to more values or characters than this."""

_REFERENCE = re.compile(r"\$\{\s*\.*([\w-]+(?:\.[\w-]+)*)\s*\}")

_INDEXED_REFERENCE = re.compile(r"\$\{\s*(\.*)([\w-]+(?:[.\[][\w\]-]+)*)\s*\}")

_ALIAS = re.compile(r"[\s,\[{]\*\w")


def plain_data(config: DictConfig, key: str | None = None) -> Any:
    """Resolve `config`, or its top-level `key`, to plain data; raise InputError if it cannot be resolved."""
    try:
        value = config if key is None else config[key]
        return OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value
    except OmegaConfBaseException as error:
        text = str(error).splitlines()[0]
        missing = re.search(r"'([\w-]+)[^']*' not found", text)
        if missing and missing[1] in PLAN_KEYS | {"hydra"}:
            text += ": a measurement must not depend on a key that applies to the whole sweep"
        elif missing:
            text += suggestion(missing[1], list(dotted_keys(OmegaConf.to_container(config, resolve=False))))
        raise InputError(f"'{error.full_key or key}' cannot be resolved: {text}") from None


def nodes(node: Any, prefix: str = "") -> Iterator[tuple[str, Node]]:
    """Yield the dotted key and raw node of everything under `node`, without following interpolations."""
    if not isinstance(node, DictConfig | ListConfig) or not isinstance(node._content, dict | list):
        return
    keys = node.keys() if isinstance(node, DictConfig) else range(len(node))
    for key in keys:
        child: Any = node._get_node(key)  # type: ignore[arg-type]
        name = f"{prefix}{key!s}" if isinstance(node, DictConfig) and "." not in str(key) else f"{prefix}[{key!s}]"
        yield name, child
        yield from nodes(child, f"{name}.")


def referenced_names(interpolations: Iterable[str]) -> frozenset[str] | None:
    """Return every part of the keys that interpolations refer to; None if an interpolation could refer to any key."""
    names: set[str] = set()
    for text in interpolations:
        references = _REFERENCE.findall(text)
        if len(references) != text.count("${"):
            return None
        names.update(part for key in references for part in key.split("."))
    return frozenset(names)


def refuse_resolvers(interpolations: Mapping[str, str]) -> None:
    """Raise InputError, naming the key, for a resolver such as `${now:%Y}`, which depends on where or when it runs.

    Only job options (`site.SCHEDULER`) and the report may read the environment, with `${oc.env:NAME}`.
    """
    schedulers = ("slurm", *(scheduler.name for scheduler in registry.schedulers()))
    allowed = ("report.", *(f"site.{name}." for name in schedulers))
    for key, text in interpolations.items():
        for resolver in _resolvers(parse(text)):
            if not (resolver == "oc.env" and key.startswith(allowed)):
                raise InputError(
                    f"'{key}' is {text!r}: the resolver '{resolver}' may return another value elsewhere or later, so "
                    "it cannot be part of a plan. Write the value itself, or refer to another key with ${key}"
                )


def _resolvers(tree: Any) -> Iterator[str]:
    if isinstance(tree, OmegaConfGrammarParser.InterpolationResolverContext):
        context: Any = tree
        yield context.resolverName().getText()
    for child in getattr(tree, "children", None) or ():
        yield from _resolvers(child)


def refuse_missing_values(tree: Any, prefix: str = "") -> None:
    """Raise InputError, naming the key, if plain data still contains the value `???`."""
    if tree == "???":
        raise InputError(f"'{prefix[:-1]}' has no value yet (it is ??? in the config); set it with {prefix[:-1]}=VALUE")
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in items:
        refuse_missing_values(value, f"{prefix}{key}.")


def refuse_exploding_aliases(folders: Sequence[Path]) -> None:
    """Raise InputError for a YAML file under `folders` whose aliases expand to more than `MAX_VALUES` values."""
    for path in (path for folder in folders for path in sorted(folder.rglob("*.yaml")) if path.is_file()):
        text = path.read_text("utf-8", "replace")
        if _ALIAS.search(text) is None:
            continue
        try:
            size = _expanded_size(yaml.compose(text, Loader=yaml.SafeLoader), {})
        except yaml.YAMLError:
            continue  # Hydra reports the error with its position
        if size > MAX_VALUES:
            raise InputError(f"{path}: its YAML aliases expand to more than {MAX_VALUES} values: use fewer")


def _expanded_size(node: yaml.Node | None, known: dict[int, int]) -> int:
    if not isinstance(node, yaml.CollectionNode):
        return 1
    if id(node) not in known:
        known[id(node)] = 1  # in case a node contains an alias for itself
        parts = [part for item in node.value for part in (item if isinstance(item, tuple) else (item,))]
        known[id(node)] = 1 + sum(_expanded_size(part, known) for part in parts)
    return known[id(node)]


def refuse_exploding_interpolations(config: DictConfig) -> None:
    """Raise InputError, naming the key, if interpolations expand to more than `MAX_VALUES` values or characters."""
    sizes = _ExpandedSizes(config)
    for key in sorted(sizes.interpolated, key=lambda key: key.startswith("hydra.")):  # `hydra.` repeats overrides
        if sizes.of(key) > MAX_VALUES:
            raise InputError(f"'{key}' expands to more than {MAX_VALUES} values: its interpolations multiply")


class _ExpandedSizes:
    """The size of each config key once all interpolations are expanded; an unresolvable reference counts as 1."""

    def __init__(self, config: DictConfig) -> None:
        self.interpolated: list[str] = []
        self._texts: dict[str, str] = {}
        self._children: dict[str, list[str]] = defaultdict(list)
        self._known: dict[str, int] = {}
        for key, node in nodes(config):
            self._children[key.rpartition(".")[0]].append(key)
            value = node._value() if not node._is_none() else ""
            self._texts[key] = value if isinstance(value, str) else ""
            if node._is_interpolation():
                self.interpolated.append(key)

    def of(self, key: str) -> int:
        if key not in self._known:
            self._known[key] = 1  # in case a key refers to itself, which OmegaConf rejects
            text = self._texts.get(key, "")
            references = [_absolute(key, dots, name) for dots, name in _INDEXED_REFERENCE.findall(text)]
            size = sum(self.of(name) for name in [*references, *self._children.get(key, ())])
            self._known[key] = size + max(1, len(text))
        return self._known[key]


def _absolute(key: str, dots: str, name: str) -> str:
    """Return the dotted key that `name` refers to within `key`; with leading `dots`, the reference is relative."""
    parents = key.split(".")[: -len(dots)] if dots else []
    return ".".join([*parents, re.sub(r"\[(\w+)\]", r".[\1]", name)])
