"""The versions of a sweep as its supervisors find them: the tree of each, and how a run is made to import from it."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from accelsweep.base.documents import canonical_json
from accelsweep.base.errors import AccelsweepError, DamagedFile
from accelsweep.core.cells.config import CellConfig
from accelsweep.core.cells.versions import TREES_VARIABLE, Tree
from accelsweep.plan.code.import_path import ImportPath, path_of_version
from accelsweep.state.folders import SweepFolder


@dataclass(frozen=True)
class VersionAtHand:
    """A version whose tree is there. `folder` is the tree, or the working directory of a version without one."""

    known: Tree
    folder: Path
    path: ImportPath

    @property
    def needs_own_interpreter(self) -> bool:
        """Whether runs cannot be forked from this process: another Python, or a package that is loaded here already."""
        loaded = any(package in sys.modules for package in self.known.packages)
        return loaded or self.known.version.python is not None

    @cached_property
    def environment(self) -> dict[str, str]:
        """The variables by which a run of this version imports from its tree, forked or not (`rank.own_tree`)."""
        if self.path.tree is None:
            return {}
        told = {
            "name": self.known.version.in_words,
            "tree": str(self.path.tree),
            "checkout": self.known.checkout,
            "folders": [str(folder) for folder in self.path.folders],
            "packages": list(self.known.packages),
        }
        inherited = os.environ.get("PYTHONPATH")
        paths = [*told["folders"], *([inherited] if inherited else [])]
        return {TREES_VARIABLE: canonical_json(told), "PYTHONPATH": os.pathsep.join(paths), "PYTHONSAFEPATH": "1"}


class Versions:
    """The versions in a sweep's folder, each looked up once."""

    def __init__(self, folder: SweepFolder) -> None:
        self._folder = folder
        self._known: dict[str, VersionAtHand] = {}

    def of(self, config: CellConfig) -> VersionAtHand | None:
        """Return the version that a config holds; None for a config without one, or where its tree is not there."""
        name = config.version_id
        if name is None:
            return None
        if name not in self._known and (found := _at_hand(self._folder, name)) is not None:
            self._known[name] = found
        return self._known.get(name)

    def needed(self, config: CellConfig) -> VersionAtHand | None:
        """Return the same. Raises AccelsweepError where a version's tree is not there, with the remedy."""
        found, name = self.of(config), config.version_id
        if found is None and name is not None:
            raise AccelsweepError(
                f"the version's tree {self._folder.version(name)} is not there; the same `accelsweep ab` makes it again"
            )
        return found


def _at_hand(folder: SweepFolder, name: str) -> VersionAtHand | None:
    try:
        known = Tree.read(folder.version_file(name))
    except (FileNotFoundError, DamagedFile):
        return None
    if not known.checkout:
        return VersionAtHand(known, folder.home, ImportPath.of_home(folder.home))
    tree = folder.version(name)
    return VersionAtHand(known, tree, path_of_version(folder, known)) if tree.is_dir() else None
