"""`accelsweep fleet`: measure the same settings on each node of a cluster, and report sick nodes."""

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
from accelsweep.driver.plan_preview import preview_plan
from accelsweep.driver.request import Extension, Request
from accelsweep.driver.run_sweep import new_findings, run_sweep
from accelsweep.errors import EXIT_REGRESSION, InputError
from accelsweep.features.fleet.findings import FleetFinding
from accelsweep.features.fleet.planning import FLEET_TOLERANCE, Fleet
from accelsweep.records.findings import Findings
from accelsweep.records.layout import SweepFolder
from accelsweep.schedulers.protocol import refuse_without
from accelsweep.schedulers.slurm import SlurmScheduler

if TYPE_CHECKING:
    from accelsweep.planning.plan import Plan
    from accelsweep.records.plan import TrialFindings

MIN_NODES = 2

MIN_ROUNDS = 2


class FleetRequest(Extension):
    """The nodes to compare."""

    command: Literal["fleet"] = "fleet"
    fleet: Fleet

    @property
    def arguments(self) -> list[str]:
        """The fleet's command-line options."""
        return self.fleet.words

    @property
    def nodes(self) -> tuple[str, ...]:
        """The names of the nodes, once they are selected."""
        return self.fleet.nodes

    def resolved(self, home: Path, request: Request) -> Request:
        """Return the request with the sweep's name and the selected nodes."""
        return select_nodes(home, request, self.fleet)

    def plan(self, home: Path, request: Request, make: Callable[..., Plan], trial: TrialFindings | None) -> Plan:
        """Return the plan, which contains a block per node and round."""
        del home, request, trial
        return make(part=self.fleet)

    def run(self, home: Path, request: Request) -> int:
        """Measure the nodes; return the exit code, 3 for a sick node."""
        return measure_nodes(home, request)[0]


def measure_nodes(home: Path, request: Request) -> tuple[int, Findings | None]:
    """Measure the nodes and write the report; return the exit code, 3 for a sick node, and the findings if any."""
    assert request.extension is not None
    ended = run_sweep(home, request.extension.resolved(home, request))
    results = new_findings(home, ended)
    if results is None or (fleet := results[0].section(FleetFinding)) is None:
        return ended.code, None
    return EXIT_REGRESSION if fleet.sick_nodes else ended.code, results[0]


def select_nodes(home: Path, request: Request, fleet: Fleet) -> Request:
    """Return the request with the sweep's name and the names of its nodes, unless already selected.

    The sweep is first planned without nodes, because its jobs determine which nodes are eligible. Raises InputError if
    the nodes cannot be compared.
    """
    from accelsweep.planning.checked_grid import comparison_name
    from accelsweep.planning.plan import make_plan
    from accelsweep.schedulers.slurm import chosen_nodes, refuse_unknown_partition

    if fleet.nodes:
        return request
    if fleet.each < MIN_ROUNDS:
        raise InputError(f"--each {fleet.each}: noise cannot be estimated from one round; use at least {MIN_ROUNDS}")
    repeats = [word for word in request.overrides if word.lstrip("+").partition("=")[0] == "repeats"]
    if repeats:
        raise InputError(
            f"{repeats[0]} contradicts --each {fleet.each}, which sets the repeats: leave out {repeats[0]}"
        )
    name = request.name or comparison_name(home, request.overrides, "fleet", request.entry)
    manifest = make_plan(home, request.overrides, name=name, entry=request.entry).manifest
    site = manifest.site
    if site.scheduler == "local":
        raise InputError(
            f"a fleet is several machines, but site={site.name} is this one: choose the site of a cluster "
            "(site=NAME; `accelsweep site NAME --from-slurm` drafts its file)"
        )
    if site.scheduler != "slurm":
        raise InputError(
            f"a fleet requests nodes by name, which is supported for Slurm only, but site={site.name} has "
            f"scheduler={site.scheduler}: choose a site with scheduler=slurm"
        )
    refuse_without(SlurmScheduler(site), f"the site '{site.name}'")
    if not manifest.blocks:
        raise InputError(f"no setting can run at site={site.name}, so no node can be compared; see `accelsweep plan`")
    needs = manifest.blocks[0].resources.model_copy(update={"node": None})
    slurm = site.of_kind(needs.node_kind).slurm
    refuse_unknown_partition(needs, slurm)
    check_jobs_accepted(site, [needs], warn)
    chosen = chosen_nodes(fleet.asked, needs, slurm)
    for message in chosen.left_out:
        say(f"note: {message}")
    if len(chosen.names) < MIN_NODES:
        raise InputError(f"--nodes {fleet.asked} is a single node, {chosen.names[0]}: a fleet compares two or more")
    return replace(request, name=name, extension=FleetRequest(fleet=fleet.model_copy(update={"nodes": chosen.names})))


class FleetAnswer(FleetFinding, Answer):
    """`accelsweep fleet --json`: the nodes, worst first."""

    kind: ClassVar[str] = "fleet"

    sweep: str = Field(description="the sweep's name")
    headline: str = Field(description="the report's headline")
    sick: tuple[str, ...] = Field(description="the names of the sick nodes; if any, the exit code is 3")
    report: str = Field(description="the path of the report's page")


def measure_fleet(home: Path, request: Request, *, as_json: bool = False) -> int:
    """Measure the nodes, write the report and print the answer; return the exit code, 3 for a sick node."""
    with contextlib.redirect_stdout(sys.stderr) if as_json else contextlib.nullcontext():
        code, findings = measure_nodes(home, request)
    if as_json and findings is not None:
        fleet = findings.section(FleetFinding)
        assert fleet is not None, "the findings of a fleet have its section"
        answer = FleetAnswer(
            **dict(fleet),
            sweep=findings.sweep,
            headline=findings.recommendation.headline,
            sick=fleet.sick_nodes,
            report=str(SweepFolder(home, findings.sweep).page),
        )
        say(answer.text())
    return code


def preview_fleet(home: Path, request: Request, *, as_json: bool = False) -> None:
    """Print the plan, as `run --dry-run` does, and write nothing."""
    assert request.extension is not None
    with contextlib.redirect_stdout(sys.stderr) if as_json else contextlib.nullcontext():
        resolved = request.extension.resolved(home, request)
    preview_plan(home, resolved, as_json=as_json)


@measures(without=("add_repeats", "until_decided", "minutes"), profile="slurm")
def fleet(
    request: Request,
    overrides: Overrides = None,
    nodes: Annotated[str, typer.Option(help="`all` nodes of the partition, or a list such as gpu[1-3],gpu7")] = "all",
    each: Annotated[int, typer.Option(min=1, help="number of blocks per node, one per round")] = 3,
    tolerance: Annotated[
        float,
        typer.Option(min=0.001, max=1, help="a node is sick if it is slower than the others by more than this share"),
    ] = FLEET_TOLERANCE,
    *,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """`accelsweep fleet`."""
    extension = FleetRequest(fleet=Fleet(nodes=(), each=each, tolerance=tolerance, asked=nodes))
    request = replace(request, overrides=tuple(overrides or ()), extension=extension)
    run_elsewhere(request, {"--dry-run": dry_run, "--json": as_json})
    if dry_run:
        preview_fleet(Path.cwd(), request, as_json=as_json)
        return
    raise typer.Exit(measure_fleet(Path.cwd(), request, as_json=as_json))
