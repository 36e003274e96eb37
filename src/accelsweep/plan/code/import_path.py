"""The origin of a run's modules: the working directory, or the tree of a version in the place of a checkout.

A tree stands in for the user's repository. A folder of the repository is on the path of imports by an editable
installation, or because it is the working directory. Each such folder is replaced by the same folder of the tree.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from accelsweep.core.cells.versions import Tree
from accelsweep.state.folders import SweepFolder

_INSTALLED = frozenset({"site-packages", "dist-packages"})


def in_installed(path: Path) -> bool:
    """Return whether a path lies among those that pip installed."""
    return not _INSTALLED.isdisjoint(path.parts)


@dataclass(frozen=True)
class ImportPath:
    """The user's `folders`, which come first, and the folders of the interpreter's own path that follow.

    `tree` is what a version's modules must lie in; None where the working directory is read.
    """

    folders: tuple[Path, ...]
    rest: tuple[str, ...]
    tree: Path | None = None

    @classmethod
    def of_home(cls, home: Path) -> ImportPath:
        """Return the path of a run in the working directory `home`."""
        return cls((home,), tuple(entry for entry in sys.path if entry))

    @classmethod
    def of_tree(cls, tree: Path, checkout: Path, place: str, path: Iterable[str] | None = None) -> ImportPath:
        """Return the path of a run of the version in `tree`, which replaces the repository `checkout`.

        `place` is the working directory below both. `path` is the interpreter's path, by default this one's.
        """
        entries = [Path(entry or os.curdir).absolute() for entry in (sys.path if path is None else path)]
        replaced = [entry for entry in entries if _is_replaced(entry, checkout, tree)]
        own = [tree / entry.relative_to(checkout) for entry in replaced]
        usual = [tree / place, tree / place / "src", *own]
        rest = tuple(str(entry) for entry in entries if entry not in replaced)
        return cls(tuple(folder for folder in dict.fromkeys(usual) if folder.is_dir()), rest, tree)

    @property
    def entries(self) -> list[str]:
        """All entries in order."""
        return [*map(str, self.folders), *self.rest]

    def is_users(self, place: Path) -> bool:
        """Return whether a module's file or folder lies in one of the user's folders, and pip did not put it there."""
        return any(folder in place.parents for folder in self.folders) and not in_installed(self._below(place))

    def _below(self, place: Path) -> Path:
        return next((place.relative_to(folder) for folder in self.folders if folder in place.parents), place)


def _is_replaced(entry: Path, checkout: Path, tree: Path) -> bool:
    inside = entry == checkout or checkout in entry.parents
    return inside and not in_installed(entry.relative_to(checkout)) and not (entry == tree or tree in entry.parents)


def path_of_version(folder: SweepFolder, known: Tree) -> ImportPath:
    """Return the path of the runs of a version whose tree lies in the sweep's folder."""
    if not known.checkout:
        return ImportPath.of_home(folder.home)
    return ImportPath.of_tree(folder.version(known.version.id), Path(known.checkout), known.place)
