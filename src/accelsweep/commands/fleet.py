"""`accelsweep fleet`: the same settings on each node of a cluster, and which of the nodes are sick."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

from accelsweep.commands.running.nodes import measured_nodes, with_nodes
from accelsweep.driver.console import say
from accelsweep.driver.plan_preview import made_plan, show_plan
from accelsweep.driver.run_sweep import Request
from accelsweep.records.layout import SweepFolder


def measure_fleet(home: Path, request: Request, *, as_json: bool = False) -> int:
    """Measure the nodes of the request's fleet, and write the report; return the exit code, 3 for a sick node."""
    with contextlib.redirect_stdout(sys.stderr) if as_json else contextlib.nullcontext():
        code, findings = measured_nodes(home, request)
    if as_json and findings is not None:
        from accelsweep.answers.forms.fleet import FleetAnswer

        say(FleetAnswer.of(findings, SweepFolder(home, findings.sweep).page).text())
    return code


def preview_fleet(home: Path, request: Request, *, as_json: bool = False) -> None:
    """Print the plan of the request's fleet, as `run --dry-run` does, and write nothing."""
    with contextlib.redirect_stdout(sys.stderr) if as_json else contextlib.nullcontext():
        asked = with_nodes(home, request)
    plan = made_plan(home, asked.overrides, name=asked.name, profile=asked.profile, fleet=asked.fleet)
    show_plan(home, plan, as_json=as_json)
