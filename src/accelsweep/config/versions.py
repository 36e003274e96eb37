"""Versions: the commits, working trees and environments that a sweep compares as values of an additional axis.

A version's identity is part of the config of each of its settings, so settings of two commits never share a name or a
record. The name typed by the user is only a label: `main` moves on, and old records must not follow it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from pydantic import Field

from accelsweep.json_documents import Document, Frozen
from accelsweep.run_config import VERSION, VersionKind


class Version(Frozen):
    """A version of the user's code or environment."""

    name: str = Field(description="the name as typed")
    kind: VersionKind = Field(description="what the digest identifies: `commit`, `files` or `environment`")
    digest: str = Field(description="the commit's hash, or the digest of the files or of the environment's packages")
    python: str | None = Field(None, description="the environment's interpreter; null for accelsweep's own")

    @property
    def identity(self) -> dict[str, Any]:
        """The part of a setting's config that identifies this version, in the format of `run_config.Identity`."""
        return {self.kind: self.digest}

    @property
    def id(self) -> str:
        """The version's folder name: 12 hexadecimal digits."""
        return self.digest[:12]

    @property
    def description(self) -> str:
        """The name, followed by the commit if the two differ: `HEAD (1a2b3c4d5e6f)`."""
        return self.name if self.digest.startswith(self.name) else f"{self.name} ({self.id})"


class Tree(Document):
    """The location of a version's sources, for the runs that import them.

    `checkout` is the user's repository, whose folders the tree replaces on the import path; empty if the tree replaces
    none. `place` is the working directory relative to the repository. `packages` lists the top-level names that each
    run must find under the tree. `software` contains the versions of an environment's packages; it is empty for other
    versions.
    """

    kind: ClassVar[str] = "version"

    version: Version
    checkout: str
    place: str
    packages: tuple[str, ...] = ()
    software: dict[str, str] = {}  # noqa: RUF012 - pydantic copies it


def without_version(keys: Mapping[str, Any]) -> dict[str, Any]:
    """Return a setting's axes or config with the version removed."""
    return {key: value for key, value in keys.items() if key != VERSION}


def command_words(versions: Sequence[Version], *, exactly: bool = False) -> list[str]:
    """Return the command that measures these versions, with arguments that specify them.

    If `exactly` is set, commits are named by hash, so later commits do not change the command's meaning.
    """
    if not versions:
        return ["run"]
    words = ["ab"]
    words += [each.id if exactly and each.kind == "commit" else each.name for each in versions if each.python is None]
    return words + [word for each in versions if each.python for word in ("--python", each.python)]
