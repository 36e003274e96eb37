"""A site's limits as resources of Snakemake: what each job takes of them, and the most that all jobs may take at once.

`max_gpus` and `max_jobs` of the site bound a whole sweep. Those that differ at a kind of node bound its jobs, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from accelsweep.core.planned.plans import Resources
from accelsweep.core.sites.jobs import JobSettings
from accelsweep.core.sites.site import Site
from accelsweep.plan.blocks.resources import held_gpus

GPUS_HELD = "gpus_held"
"""The resource of a job that `max_gpus` of the site bounds."""


class _OfKind(NamedTuple):
    """A kind of node that has limits of its own, and the names of its resources."""

    kind: str
    jobs: JobSettings
    gpus_held: str
    jobs_at_once: str


def limits(site: Site) -> dict[str, int | None]:
    """Return the most that all jobs together may take of each resource; None is no bound."""
    found = {GPUS_HELD: site.jobs.max_gpus, "_nodes": site.jobs.max_jobs}
    for one in _limited_kinds(site):
        found |= {one.gpus_held: one.jobs.max_gpus, one.jobs_at_once: one.jobs.max_jobs}
    return found


def taken(needs: Resources, site: Site) -> dict[str, int]:
    """Return what a job with these `needs` takes of each resource. The names are the same for all jobs of a site."""
    held = held_gpus(needs, site)
    found = {GPUS_HELD: _within(held, site.jobs)}
    for one in _limited_kinds(site):
        here = needs.node_kind == one.kind
        found |= {one.gpus_held: _within(held, one.jobs) if here else 0, one.jobs_at_once: int(here)}
    return found


def _limited_kinds(site: Site) -> Iterator[_OfKind]:
    for number, kind in enumerate(site.kinds):
        jobs = site.of_kind(kind.name).jobs
        if (jobs.max_gpus, jobs.max_jobs) != (site.jobs.max_gpus, site.jobs.max_jobs):
            yield _OfKind(kind.name, jobs, f"kind_{number}_{GPUS_HELD}", f"kind_{number}_jobs")


def _within(held: int, jobs: JobSettings) -> int:
    """Return how many of the `held` GPUs count: no more than the limit, or a job of a CPU cell might never run."""
    return held if jobs.max_gpus is None else min(held, jobs.max_gpus)
