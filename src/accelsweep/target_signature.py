"""Checks the config of a `_target_` against the arguments that the target accepts.

Planning reads the arguments from a class's source without importing it; a run inspects the class itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from accelsweep.errors import InputError, nearest

OUR_PACKAGE = "accelsweep."


class Arguments(NamedTuple):
    """A target's arguments: all names in order, the required ones, and whether it accepts any other name."""

    target: str
    names: tuple[str, ...]
    required: tuple[str, ...]
    accepts_any: bool


def refuse_arguments(given: Mapping[str, Any], key: str, takes: Arguments, within: str | None = None) -> None:
    """Raise InputError if `given` contains a key that the target does not accept, or lacks a required argument.

    `key` is the config key of `given` itself. `within` is the target that receives this object; None for the outermost.
    """
    names = [str(name) for name in given if not str(name).startswith("_")]
    unknown = [name for name in names if name not in takes.names]
    if unknown and not takes.accepts_any:
        listed = f"it accepts {', '.join(takes.names)}" if takes.names else "it accepts none"
        raise InputError(
            f"{key}.{unknown[0]}: {takes.target} has no such argument{nearest(unknown[0], takes.names)}; {listed}"
        )
    missing = [name for name in takes.required if name not in names]
    if not missing or given.get("_partial_") or "_args_" in given:
        return
    remedy = f"set +{key}.{missing[0]}=VALUE"
    if within is not None:
        remedy = f"if {within} passes it itself, add {key}._partial_=true (`_partial_: true` in a file); else {remedy}"
    raise InputError(f"{key}: {takes.target} requires {missing[0]}: {remedy}")
