"""A run of a version: its modules come from that version's tree, or the run is refused.

The tree's folders come first on the path of imports, before what pip installed. The user's repository is taken off it,
so that nothing of the present state is imported where the version lacks a module. An editable installation may still
bring its own finder. So each loaded module's file is looked at, before and after the timed steps.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from accelsweep.base.errors import AccelsweepError
from accelsweep.core.cells.versions import TREES_VARIABLE
from accelsweep.plan.code.import_path import in_installed


@dataclass(frozen=True)
class OwnTree:
    """The tree of a run's version: its `folders` are on the path, and `packages` must come from below `tree`."""

    name: str
    tree: Path
    checkout: Path
    folders: tuple[str, ...]
    packages: Collection[str]

    @classmethod
    def of_this_run(cls) -> OwnTree | None:
        """Return the tree that the environment names, or None for a run without versions."""
        told = os.environ.get(TREES_VARIABLE)
        if told is None:
            return None
        found = json.loads(told)
        tree, checkout = Path(found["tree"]), Path(found["checkout"])
        return cls(found["name"], tree, checkout, tuple(found["folders"]), found["packages"])

    def put_first(self) -> None:
        """Put the tree on the path of imports, and take the repository off it."""
        kept = [entry for entry in sys.path if entry not in self.folders and not self._is_elsewhere(Path(entry))]
        sys.path[:] = [*self.folders, *kept]

    def refuse_other_modules(self) -> None:
        """Raise AccelsweepError, with both paths, for a loaded module that is not the version's."""
        for name, module in list(sys.modules.items()):
            file = getattr(module, "__file__", None)
            if not isinstance(file, str) or not Path(file).is_absolute():  # torch gives some of its modules a bare name
                continue
            ours = name.partition(".")[0] in self.packages
            if not ours and self.checkout.name not in file:  # of thousands of modules few have a path to take apart
                continue
            place = Path(file).absolute()
            if self._is_elsewhere(place) or (ours and self.tree not in place.parents):
                raise AccelsweepError(
                    f"the module {name} came from {place}, but version {self.name} lies in {self.tree}. "
                    "Uninstall the package from this environment, or install it in a way that puts a folder on the path"
                )

    def _is_elsewhere(self, place: Path) -> bool:
        """Return whether a path lies in the repository, but neither in the tree nor among installed packages."""
        place = place.absolute()
        if place == self.tree or self.tree in place.parents:
            return False
        if place != self.checkout and self.checkout not in place.parents:
            return False
        return not in_installed(place.relative_to(self.checkout))
