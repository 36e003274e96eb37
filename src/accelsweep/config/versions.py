"""Versions: the commits, working trees and environments that a sweep compares as values of one more axis.

A version's identity is part of each of its settings' configs, so settings of two commits never share a name or a
record. Its name, which the user typed, is only a label: `main` moves on, and old records must not follow it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from accelsweep.json_documents import Document, Frozen
from accelsweep.run_config import VERSION, VersionKind


class Version(Frozen):
    """One version: the `name` that the user typed, and what it stands for.

    `kind` says what `digest` is: a commit's hash, the digest of a copy's files, or that of an environment's packages.
    `python` is the interpreter of an environment, None where runs use accelsweep's own.
    """

    name: str
    kind: VersionKind
    digest: str
    python: str | None = None

    @property
    def identity(self) -> dict[str, Any]:
        """The part of a setting's config that tells this version from others, as `Identity` reads it."""
        return {self.kind: self.digest}

    @property
    def id(self) -> str:
        """12 hexadecimal digits, by which the version's folder is called."""
        return self.digest[:12]

    @property
    def in_words(self) -> str:
        """The name, with the commit where the name is another one: `HEAD (1a2b3c4d5e6f)`."""
        return self.name if self.digest.startswith(self.name) else f"{self.name} ({self.id})"


class Tree(Document):
    """The place of a version's sources, for the runs that import them.

    `checkout` is the user's repository, whose folders the tree replaces on the path of imports; empty where no tree
    replaces any. `place` is the working directory's path below the repository. `packages` are the top-level names that
    each run must find below the tree. `software` are the versions of an environment's packages, empty for others.
    """

    kind: ClassVar[str] = "version"

    version: Version
    checkout: str
    place: str
    packages: tuple[str, ...] = ()
    software: dict[str, str] = {}  # noqa: RUF012 - pydantic copies it


def without_version(keys: Mapping[str, Any]) -> dict[str, Any]:
    """Return the axes, or the config, of a setting without its version."""
    return {key: value for key, value in keys.items() if key != VERSION}


def command_words(versions: Sequence[Version], *, exactly: bool = False) -> list[str]:
    """Return the command that measures these versions, and the words that name them.

    With `exactly` commits are named by their hashes, which no later commit moves.
    """
    if not versions:
        return ["run"]
    names = [one.id if exactly and one.kind == "commit" else one.name for one in versions if one.python is None]
    return ["ab", *names, *(word for one in versions if one.python for word in ("--python", one.python))]
