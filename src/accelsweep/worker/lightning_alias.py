"""Lets the worker use `pytorch_lightning`, for scripts whose Trainer comes from that package.

Both packages contain the same modules. The worker imports them from `lightning.pytorch` and `lightning.fabric`; after
`use_pytorch_lightning`, these names refer to `pytorch_lightning` and `lightning_fabric`.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

PACKAGE_VARIABLE = "ACCELSWEEP_LIGHTNING_PACKAGE"
"""The environment variable that names the package whose Trainer the user's script uses."""

_ALIASES = {"lightning.pytorch": "pytorch_lightning", "lightning.fabric": "lightning_fabric"}


class _AliasFinder(MetaPathFinder, Loader):
    """Finds `lightning.pytorch.x` as the module `pytorch_lightning.x`."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        del path, target
        return (
            ModuleSpec(fullname, self, is_package=True) if _actual_name(fullname) or fullname == "lightning" else None
        )

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        actual = _actual_name(spec.name)
        return None if actual is None else importlib.import_module(actual)

    def exec_module(self, module: ModuleType) -> None:
        if module.__name__ == "lightning":
            module.__path__ = []


def _actual_name(name: str) -> str | None:
    for alias, actual in _ALIASES.items():
        if name == alias or name.startswith(f"{alias}."):
            return actual + name.removeprefix(alias)
    return None


def use_pytorch_lightning() -> None:
    """Make `lightning.pytorch` and `lightning.fabric` aliases of `pytorch_lightning` and `lightning_fabric`.

    Must be called before `lightning` is imported.
    """
    if not any(isinstance(finder, _AliasFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _AliasFinder())
