"""Configs that boosted trees cannot be grown with, as far as known without importing a library."""

from __future__ import annotations

from accelsweep.config.schema import CellConfig
from accelsweep.config.site import Site
from accelsweep.core.cells.trees import LIBRARIES, TreeLibrary
from accelsweep.installation import boosting_install_command, cuda_boosting_remedy


def cannot_boost(config: CellConfig, site: Site) -> str | None:
    """Return why trees cannot be grown so. Only where this machine measures is it asked for the library."""
    if config.task != "boosting":
        return None
    if config.precision != "32-true":
        return f"precision={config.precision}: in task=boosting the library chooses number formats; leave it out"
    library = LIBRARIES.get(config.model_target)
    if library is None:
        return None
    if config.accelerator not in library.accelerators:
        return f"accelerator={config.accelerator}: {library.name} has {' and '.join(library.accelerators)} here"
    if config.world_size > 1 and not library.shares:
        return f"{library.name} trains in one process here, not in {config.world_size}: use threads"
    return _absent(library, config) if site.probe else None


def _absent(library: TreeLibrary, config: CellConfig) -> str | None:
    if remedy := boosting_install_command(library.module):
        return f"task=boosting needs {library.name}: {remedy}"
    without = cuda_boosting_remedy(library.module) if config.accelerator == "cuda" else None
    return None if without is None else f"accelerator=cuda: {without}"
