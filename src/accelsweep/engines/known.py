"""The engine that a site's `scheduler` names."""

from __future__ import annotations

from accelsweep.core.sites.site import Site
from accelsweep.engines.engine import Engine
from accelsweep.engines.grid_engine.engine import GridEngineEngine
from accelsweep.engines.slurm.engine import SlurmEngine


def engine_of(site: Site) -> Engine | None:
    """Return the engine that takes this site's blocks; None where they are measured on this machine."""
    if site.scheduler == "grid_engine":
        return GridEngineEngine(site)
    return SlurmEngine(site) if site.scheduler == "slurm" else None


def engine_behind(executor: str) -> Engine | None:
    """Return the engine that Snakemake's `executor` submits to, of no particular site; None for one of others."""
    engines: tuple[Engine, ...] = (
        SlurmEngine(Site(name="any", scheduler="slurm")),
        GridEngineEngine(Site(name="any", scheduler="grid_engine")),
    )
    return next((engine for engine in engines if engine.executor == executor), None)
