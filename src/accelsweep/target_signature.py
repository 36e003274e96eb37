"""The arguments of a `_target_` against those that its config gives: one check for the plan and for the runs.

The plan reads them in the source of a class, without importing it. A run asks the class itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from accelsweep.errors import InputError, nearest

OUR_PACKAGE = "accelsweep."


class Arguments(NamedTuple):
    """What a target takes: all names in order, those without a default, and whether it takes any other name too."""

    target: str
    names: tuple[str, ...]
    needed: tuple[str, ...]
    any_name: bool


def refuse_arguments(given: Mapping[str, Any], place: str, takes: Arguments, within: str | None = None) -> None:
    """Raise InputError for a key of `given` that the target does not take, and for an argument that is missing.

    `place` is the key of `given` itself. `within` is the target that gets what is built here, None for the outermost.
    """
    names = [str(key) for key in given if not str(key).startswith("_")]
    unknown = [name for name in names if name not in takes.names]
    if unknown and not takes.any_name:
        listed = f"it takes {', '.join(takes.names)}" if takes.names else "it takes none"
        raise InputError(
            f"{place}.{unknown[0]}: {takes.target} has no such argument{nearest(unknown[0], takes.names)}; {listed}"
        )
    missing = [name for name in takes.needed if name not in names]
    if not missing or given.get("_partial_") or "_args_" in given:
        return
    give = f"give it, +{place}.{missing[0]}=VALUE"
    if within is not None:
        give = f"where {within} gives it itself, add {place}._partial_=true (`_partial_: true` in a file); else {give}"
    raise InputError(f"{place}: {takes.target} needs {missing[0]}: {give}")
