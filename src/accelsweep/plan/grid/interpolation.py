"""Interpolations in composed configs: the keys they may name, the calls they must not make, and their plain data."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from omegaconf import DictConfig, ListConfig, Node, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from omegaconf.grammar.gen.OmegaConfGrammarParser import OmegaConfGrammarParser
from omegaconf.grammar_parser import parse

from accelsweep.base.errors import InputError
from accelsweep.core.cells.cell import PLAN_KEYS
from accelsweep.plan.grid.explain import dotted_keys, suggest

_REFERENCE = re.compile(r"\$\{\s*\.*([\w-]+(?:\.[\w-]+)*)\s*\}")
_MAY_ASK_THE_ENVIRONMENT = ("site.slurm.", "site.grid_engine.", "report.")


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
            text += suggest(missing[1], list(dotted_keys(OmegaConf.to_container(config, resolve=False))))
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


def referred_words(interpolations: Iterable[str]) -> frozenset[str] | None:
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

    Only the submission of jobs (`site.slurm`, `site.grid_engine`) and the report may read the environment, with
    `${oc.env:NAME}`.
    """
    for key, text in interpolations.items():
        for resolver in _resolvers(parse(text)):
            if not (resolver == "oc.env" and key.startswith(_MAY_ASK_THE_ENVIRONMENT)):
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


def refuse_missing(tree: Any, prefix: str = "") -> None:
    """Raise InputError, naming the key, for a value that is still `???` in plain data."""
    if tree == "???":
        raise InputError(f"'{prefix[:-1]}' has no value yet (it is ??? in the config); set it with {prefix[:-1]}=VALUE")
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in items:
        refuse_missing(value, f"{prefix}{key}.")
