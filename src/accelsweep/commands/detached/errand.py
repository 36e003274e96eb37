"""The errand of a head that is handed over: its command with all that the terminal decided, and the head's work."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from accelsweep.commands.running.claims import checked_claims, put_to_the_test
from accelsweep.commands.running.nodes import measured_nodes, with_nodes
from accelsweep.commands.running.versions import decided, measured_versions
from accelsweep.config.site import Site
from accelsweep.core.claims.claims import GROUP
from accelsweep.driver.adaptive_repeats import refuse_short_budget
from accelsweep.driver.auto_batch_size import planned_after_searches, tell_of_searches
from accelsweep.driver.console import say
from accelsweep.driver.plan_preview import show_plan
from accelsweep.driver.run_sweep import (
    Request,
    carried_out,
    checked_targets,
    planned,
    refuse_misfits,
    refuse_untaken_jobs,
    seconds_of,
)

if TYPE_CHECKING:
    from accelsweep.planning.plan import Plan


@dataclass(frozen=True)
class Errand:
    """A command before its head is handed over: its arguments, its site, and the sweep whose folder the head keeps.

    `plan` is what the head measures first. Claims have none: their head plans each of their sweeps by itself.
    """

    request: Request
    site: Site
    sweep: str
    plan: Plan | None = None

    @classmethod
    def of(cls, home: Path, request: Request) -> Errand:
        """Return what is to be done, planned and shown, so that faults are told at once. Raises InputError for them."""
        if request.claims is not None:
            checked_claims(home, request.claims)
            return cls(request, Site(name="local"), GROUP)
        checked_targets(request)
        request = _decided(home, request)
        plan, sweep = _planned(home, request)
        pinned = plan.manifest.compared if request.versions else ()
        return cls(replace(request, pinned=pinned), plan.manifest.site, sweep, plan)

    @property
    def first_plan(self) -> Plan | None:
        """The plan of the sweep itself; None where searches are measured first, and for claims."""
        return self.plan if self.plan is not None and self.plan.manifest.sweep == self.sweep else None

    @property
    def sweeps(self) -> tuple[str, ...]:
        """The sweeps that are planned, the first of them that of the head."""
        return tuple({self.sweep: None, self.plan.manifest.sweep: None}) if self.plan else ()


def _decided(home: Path, request: Request) -> Request:
    """Return the request with what each head of a chain must take for granted: names of sweeps and of nodes."""
    if request.command == "ab":
        return decided(home, request)
    return with_nodes(home, request) if request.command == "fleet" else request


def _planned(home: Path, request: Request) -> tuple[Plan, str]:
    """Return what the head measures first, and the name of the sweep that was asked for. Both are shown."""
    found = planned_after_searches(home, partial(planned, home, request))
    if isinstance(found, tuple):
        wanted, plan = found
        refuse_misfits(request, plan)
        tell_of_searches(wanted, plan)
        sweep = wanted.sweep
    else:
        plan, sweep = found, found.manifest.sweep
        refuse_misfits(request, plan)
        refuse_short_budget(home, plan, seconds_of(request.time_budget))
    show_plan(home, plan)
    refuse_untaken_jobs(home, plan)
    return plan, sweep


def do(home: Path, request: Request) -> int:
    """Do what the command does in a terminal; return its exit code."""
    if request.claims is not None:
        return put_to_the_test(home, request.claims, (seconds_of(request.time_budget) or 0.0) / 60.0)
    if request.command == "ab":
        code, found = measured_versions(home, request)
        if found is not None and found.gate_words is not None:
            say(found.gate_words)
        return code
    return measured_nodes(home, request)[0] if request.command == "fleet" else carried_out(home, request).code
