"""`accelsweep ab`: versions of the user's sources as one more axis, measured in the same blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from accelsweep.commands.run import Request, carried_out


def words_apart(words: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of versions and the overrides among the words of a command line.

    An override holds `=` or begins with `~`; no name of a commit begins so.
    """
    overrides = tuple(word for word in words if "=" in word or word.startswith("~"))
    return tuple(word for word in words if word not in overrides), overrides


def compare_versions(home: Path, request: Request) -> int:
    """Measure the versions that `request` names, and write the report; return the exit code."""
    from accelsweep.plan.versioned import usual_name

    name = request.name or usual_name(home, request.overrides)
    return carried_out(home, replace(request, name=name)).code
