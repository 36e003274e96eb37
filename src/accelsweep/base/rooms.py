"""The rooms of the code in their order, and the digest of the code that a room runs.

Import-linter holds the imports to the same order, so a room runs nothing but itself and what lies below it.
"""

from __future__ import annotations

from functools import cache
from itertools import takewhile
from pathlib import Path

from accelsweep.base.documents import canonical_json, sha256_file, sha256_text

_PACKAGE = Path(__file__).resolve().parents[1]

FLOORS = (
    ("base",),
    ("core",),
    ("repeats",),
    ("engines",),
    ("machine",),
    ("project",),
    ("state",),
    ("plan",),
    ("simulated",),
    ("measure",),
    ("workloads",),
    ("rank",),
    ("supervise",),
    ("analyse", "publish"),
    ("report",),
    ("drive",),
    ("answers",),
    ("commands",),
    ("notebook",),
    ("cli",),
    ("__main__",),
)
"""The rooms from the lowest floor up; those on one floor do not import each other."""


def at_or_below(room: str) -> tuple[str, ...]:
    """Return the rooms on the floors below that of `room`, lowest first, and the room itself."""
    below = takewhile(lambda floor: room not in floor, FLOORS)
    return (*(each for floor in below for each in floor), room)


def code_of(room: str, package: Path = _PACKAGE) -> str:
    """Return a digest of the source that `room` can run: its own, and that of every room below it."""
    return sha256_text(canonical_json([_source(package / each) for each in at_or_below(room)]))[:16]


@cache
def _source(folder: Path) -> list[tuple[str, str]]:
    files = sorted(path for path in folder.rglob("*.*") if path.suffix != ".pyc")
    return [(str(path.relative_to(folder.parent)), sha256_file(path)) for path in files]
