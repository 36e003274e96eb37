"""The one look-up of a dotted key in nested mappings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

NO_SUCH_KEY: Final = object()
"""The answer of `looked_up` where there is no such key: None is a value."""


def looked_up(tree: Any, key: str) -> Any:
    """Return the value at the dotted `key` of a nested mapping, or NO_SUCH_KEY."""
    for part in key.split("."):
        if not isinstance(tree, Mapping) or part not in tree:
            return NO_SUCH_KEY
        tree = tree[part]
    return tree
