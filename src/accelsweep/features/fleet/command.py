"""The nodes of a fleet: chosen by name, measured, and judged."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import typer
from pydantic import Field

from accelsweep.cli.options import AsJson, DryRun, Overrides
from accelsweep.cli.run_options import measures, run_elsewhere
from accelsweep.driver.console import say, warn
from accelsweep.driver.job_queue import check_jobs_accepted
from accelsweep.driver.json_output import Answer
from accelsweep.driver.plan_preview import plan_to_show, show_plan
from accelsweep.driver.request import Extension, Request
from accelsweep.driver.run_sweep import new_findings, run_sweep
from accelsweep.errors import EXIT_REGRESSION, InputError
from accelsweep.features.fleet.findings import FleetFinding
from accelsweep.features.fleet.planning import FLEET_TOLERANCE, Fleet
from accelsweep.records.findings import Findings
from accelsweep.records.layout import SweepFolder
from accelsweep.schedulers.protocol import refuse_without
from accelsweep.schedulers.slurm import SlurmEngine

if TYPE_CHECKING:
    from accelsweep.config.site import Site
    from accelsweep.planning.plan import Plan

FEWEST_NODES, FEWEST_ROUNDS = 2, 2


NodesAsked = Annotated[str, typer.Option(help="`all` of the partition, or a list such as gpu[1-3],gpu7")]

Each = Annotated[int, typer.Option(min=1, help="blocks of each node, one in a round")]

Tolerance = Annotated[
    float,
    typer.Option(min=0.001, max=1, help="a node is sick if it is slower than the others by more than this share"),
]


class FleetRequest(Extension):
    """The nodes that a request compares."""

    command: Literal["fleet"] = "fleet"
    fleet: Fleet

    @property
    def arguments(self) -> list[str]:
        """The options that ask for this fleet."""
        return self.fleet.words

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes by name, as soon as they are chosen."""
        return self.fleet.nodes

    def resolved(self, home: Path, request: Request) -> Request:
        """Return the request with the sweep's name and its nodes by name."""
        return with_nodes(home, request, self.fleet)

    def plan(self, home: Path, request: Request, make: Callable[..., Plan]) -> Plan:
        """Return the plan with a block for each node and round."""
        del home, request
        return make(part=self.fleet)

    def run(self, home: Path, request: Request) -> int:
        """Measure the nodes; return the exit code, 3 for a sick node."""
        return measured_nodes(home, request)[0]


def measured_nodes(home: Path, request: Request) -> tuple[int, Findings | None]:
    """Measure the nodes of the request's fleet; return the exit code, 3 for a sick node, and what was found of them."""
    assert request.extension is not None
    ended = run_sweep(home, request.extension.resolved(home, request))
    found = new_findings(home, ended)
    fleet = None if found is None else found[0].section(FleetFinding)
    if found is None or fleet is None:
        return ended.code, None
    return EXIT_REGRESSION if fleet.sick_nodes else ended.code, found[0]


def with_nodes(home: Path, request: Request, fleet: Fleet) -> Request:
    """Return the request with the sweep's name and its nodes by name. Raises InputError where they cannot be compared.

    The sweep is planned without nodes first, because its jobs decide which nodes can take them. Nodes that have been
    chosen stay so.
    """
    from accelsweep.planning.checked_grid import usual_name
    from accelsweep.planning.plan import make_plan
    from accelsweep.schedulers.slurm import chosen_nodes, refuse_unknown_partition

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
    check_jobs_accepted(site, [needs], warn)
    chosen = chosen_nodes(fleet.asked, needs, slurm)
    for sentence in chosen.left_out:
        say(f"note: {sentence}")
    if len(chosen.names) < FEWEST_NODES:
        raise InputError(f"--nodes {fleet.asked} is one node, {chosen.names[0]}: a fleet compares two or more")
    return replace(request, name=name, extension=FleetRequest(fleet=fleet.model_copy(update={"nodes": chosen.names})))


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


class FleetAnswer(FleetFinding, Answer):
    """`accelsweep fleet --json`: the nodes, worst first."""

    kind: ClassVar[str] = "fleet"

    sweep: str = Field(description="the sweep's name")
    headline: str = Field(description="the report's headline")
    sick: tuple[str, ...] = Field(description="the sick nodes by name; then the exit code is 3")
    report: str = Field(description="the path of the page")

    @classmethod
    def of(cls, findings: Findings, report: Path) -> FleetAnswer:
        """Return the answer from the findings of a fleet."""
        fleet = findings.section(FleetFinding)
        assert fleet is not None, "the findings of a fleet have its section"
        return cls(
            **dict(fleet),
            sweep=findings.sweep,
            headline=findings.recommendation.headline,
            sick=fleet.sick_nodes,
            report=str(report),
        )


# `accelsweep fleet`: the same settings on each node of a cluster, and which of the nodes are sick.


def measure_fleet(home: Path, request: Request, *, as_json: bool = False) -> int:
    """Measure the nodes of the request's fleet, and write the report; return the exit code, 3 for a sick node."""
    with contextlib.redirect_stdout(sys.stderr) if as_json else contextlib.nullcontext():
        code, findings = measured_nodes(home, request)
    if as_json and findings is not None:
        say(FleetAnswer.of(findings, SweepFolder(home, findings.sweep).page).text())
    return code


def preview_fleet(home: Path, request: Request, *, as_json: bool = False) -> None:
    """Print the plan of the request's fleet, as `run --dry-run` does, and write nothing."""
    assert request.extension is not None
    with contextlib.redirect_stdout(sys.stderr) if as_json else contextlib.nullcontext():
        asked = request.extension.resolved(home, request)
    show_plan(home, plan_to_show(home, asked), as_json=as_json)


@measures(without=("add_repeats", "until_decided"), profile="slurm")
def fleet(
    request: Request,
    overrides: Overrides = None,
    nodes: NodesAsked = "all",
    each: Each = 3,
    tolerance: Tolerance = FLEET_TOLERANCE,
    *,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """`accelsweep fleet`."""
    compared = Fleet(nodes=(), each=each, tolerance=tolerance, asked=nodes)
    request = replace(request, overrides=tuple(overrides or ()), extension=FleetRequest(fleet=compared))
    run_elsewhere(request, {"--dry-run": dry_run, "--json": as_json})
    if dry_run:
        preview_fleet(Path.cwd(), request, as_json=as_json)
        return
    raise typer.Exit(measure_fleet(Path.cwd(), request, as_json=as_json))
