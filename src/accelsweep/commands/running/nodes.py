"""The nodes of a fleet: chosen by name, measured, and judged."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from accelsweep.driver.console import say, warn
from accelsweep.driver.job_queue import refuse_before_submission
from accelsweep.driver.run_sweep import Request, carried_out, found_by
from accelsweep.errors import EXIT_REGRESSION, InputError
from accelsweep.records.findings import Findings
from accelsweep.schedulers.protocol import refuse_without
from accelsweep.schedulers.slurm import SlurmEngine

if TYPE_CHECKING:
    from accelsweep.config.site import Site
    from accelsweep.config.sweep_options import Fleet

FEWEST_NODES, FEWEST_ROUNDS = 2, 2


def measured_nodes(home: Path, request: Request) -> tuple[int, Findings | None]:
    """Measure the nodes of the request's fleet; return the exit code, 3 for a sick node, and what was found of them."""
    ended = carried_out(home, with_nodes(home, request))
    found = found_by(home, ended)
    if found is None or found[0].fleet is None:
        return ended.code, None
    return EXIT_REGRESSION if found[0].fleet.sick else ended.code, found[0]


def with_nodes(home: Path, request: Request) -> Request:
    """Return the request with the sweep's name and its nodes by name. Raises InputError where they cannot be compared.

    The sweep is planned without nodes first, because its jobs decide which nodes can take them. Nodes that have been
    chosen stay so.
    """
    from accelsweep.planning.checked_grid import usual_name
    from accelsweep.planning.plan import make_plan
    from accelsweep.schedulers.slurm import chosen_nodes, refuse_unknown_partition

    fleet = request.fleet
    assert fleet is not None, "`fleet` has one"
    if fleet.nodes:
        return request
    _refuse_few_rounds(fleet, request.overrides)
    name = request.name or usual_name(home, request.overrides, "fleet")
    manifest = make_plan(home, request.overrides, name=name).manifest
    site = manifest.site
    _refuse_without_nodes(site)
    refuse_without(SlurmEngine(site), f"the site '{site.name}'")
    if not manifest.blocks:
        raise InputError(f"no setting can run at site={site.name}, so no node can be compared; see `accelsweep plan`")
    needs = manifest.blocks[0].resources.model_copy(update={"node": None})
    slurm = site.of_kind(needs.node_kind).slurm
    refuse_unknown_partition(needs, slurm)
    refuse_before_submission(site, [needs], warn)
    chosen = chosen_nodes(fleet.asked, needs, slurm)
    for sentence in chosen.left_out:
        say(f"note: {sentence}")
    if len(chosen.names) < FEWEST_NODES:
        raise InputError(f"--nodes {fleet.asked} is one node, {chosen.names[0]}: a fleet compares two or more")
    return replace(request, name=name, fleet=fleet.model_copy(update={"nodes": chosen.names}))


def _refuse_without_nodes(site: Site) -> None:
    """Raise InputError where the site has no nodes that a job can ask for by name."""
    if site.scheduler == "local":
        raise InputError(
            f"a fleet is several machines, and site={site.name} is this one: name the site of a cluster "
            "(site=NAME; `accelsweep site NAME --from-slurm` drafts its file)"
        )
    if site.scheduler != "slurm":
        raise InputError(
            f"a fleet asks for nodes by name, which only Slurm is asked for so far, and site={site.name} has "
            f"scheduler={site.scheduler}: name a site with scheduler=slurm"
        )


def _refuse_few_rounds(fleet: Fleet, overrides: tuple[str, ...]) -> None:
    if fleet.each < FEWEST_ROUNDS:
        raise InputError(f"--each {fleet.each}: one round shows no noise; {FEWEST_ROUNDS} are the fewest")
    if stated := next((word for word in overrides if word.lstrip("+").partition("=")[0] == "repeats"), None):
        raise InputError(f"{stated} and --each {fleet.each} are two answers to one question: leave out {stated}")
