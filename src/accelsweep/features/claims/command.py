"""`accelsweep claims`: test the claims that fit this machine and a time budget, and report on all of them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from accelsweep.cli.run_options import measures, run_elsewhere
from accelsweep.driver.background_processes import ForkServers, forking_interpreters
from accelsweep.driver.console import Listing, Styled, Tone, say, say_bold, show, warn
from accelsweep.driver.plan_preview import estimate_remaining
from accelsweep.driver.request import Extension, Request
from accelsweep.driver.run_sweep import run_sweep
from accelsweep.driver.sweep_lock import active_driver, lock_sweep
from accelsweep.errors import (
    EXIT_INCOMPLETE,
    EXIT_INTERRUPTED,
    EXIT_OK,
    AccelsweepError,
    DamagedFile,
    InputError,
    nearest,
)
from accelsweep.features.claims.model import GROUP, ClaimVerdict, figures_of, value_text
from accelsweep.features.claims.page import Verdicts, write_verdicts
from accelsweep.features.claims.report import UNTESTED
from accelsweep.records.findings import Findings
from accelsweep.records.layout import SweepFolder
from accelsweep.results import Outcome

if TYPE_CHECKING:
    from accelsweep.planning.plan import Plan


def completed_names(incomplete: str) -> list[str]:
    """Return the names of claims with this prefix, including user-defined claims, for shell completion."""
    from accelsweep.cli.completion import choices, silent

    @silent
    def complete() -> list[str]:
        names = (name.partition("/") for name in choices(Path.cwd()).get("experiment", ()))
        return [name for folder, _, name in names if folder == GROUP and name.startswith(incomplete)]

    return complete()


Claims = Annotated[
    list[str] | None,
    typer.Argument(help="claims in conf/experiment/claims (default: all)", autocompletion=completed_names),
]


class ClaimsRequest(Extension):
    """The claims to test; empty means all."""

    command: Literal["claims"] = "claims"
    names: tuple[str, ...] = ()

    @property
    def arguments(self) -> list[str]:
        """The names of the claims."""
        return list(self.names)

    @property
    def folder(self) -> str:
        """The command's own folder, because it plans a separate sweep for each claim."""
        return GROUP

    def resolved(self, home: Path, request: Request) -> Request:
        """Return the request. Raises InputError for an unknown claim."""
        check_claims(home, self.names)
        return request

    def run(self, home: Path, request: Request) -> int:
        """Test the claims within the time budget."""
        return run_claims(home, self.names, (request.budget_seconds or 0.0) / 60.0)


def run_claims(home: Path, names: Sequence[str], minutes: float) -> int:
    """Run the sweeps of these claims (default: all), shortest first, until `minutes` have passed.

    Every claim is listed, whether or not it was run. If a claim fails or another driver is running its sweep, the
    others still run. Returns 0, 1 if a claim failed, or 130 if interrupted; a report is always written. Raises
    AccelsweepError if another command is testing claims in this folder.
    """
    known = check_claims(home, names)
    with lock_sweep(SweepFolder(home, GROUP)):  # only one command at a time writes the report
        return _run_claims(home, names, known, minutes)


def _run_claims(home: Path, names: Sequence[str], known: Sequence[str], minutes: float) -> int:
    deadline, interrupted = time.monotonic() + 60.0 * minutes, False
    plans, failed = _plans(home, known)
    left = {name: estimate_remaining(home, plan) for name, plan in plans.items()}
    to_run = {name for name in plans if minutes and left[name].runs_left and (not names or name in names)}
    why_not = {}
    with ForkServers(home) as servers:
        servers.log = SweepFolder(home, GROUP).report / "fork_server.log"
        servers.start({interpreter for name in to_run for interpreter in forking_interpreters(plans[name])})
        for name in sorted(plans, key=lambda name: left[name].minutes.expected):
            asked, sweep = not names or name in names, plans[name].manifest.sweep
            seconds = deadline - time.monotonic() if name in to_run and not interrupted else 0.0
            code = EXIT_OK
            try:
                code = _update_sweep(home, name, plans[name], seconds)
            except AccelsweepError as error:
                failed[sweep] = str(error)
            interrupted |= code == EXIT_INTERRUPTED
            spent = time.monotonic() >= deadline
            why_not[sweep] = _why_not(minutes, asked=asked, interrupted=interrupted, spent=spent)
            if code == EXIT_INCOMPLETE and not spent and not _is_untestable(SweepFolder(home, sweep)):
                failed[sweep] = f"{why_not[sweep]} (accelsweep runs {sweep})"
    findings = []
    for plan in plans.values():
        with contextlib.suppress(FileNotFoundError, DamagedFile):
            findings.append(Findings.read(SweepFolder(home, plan.manifest.sweep).findings))
    _report(home, findings, why_not | failed)
    for sweep, why in failed.items():
        warn(f"{sweep} failed: {why}")
    return EXIT_INTERRUPTED if interrupted else EXIT_INCOMPLETE if failed else EXIT_OK


def _is_untestable(folder: SweepFolder) -> bool:
    """Return whether the runs showed that this machine cannot test the claim, which is no failure; a crash is one."""
    if not folder.findings.is_file():
        return False
    findings = Findings.read(folder.findings)
    untested = all(claim.verdict is ClaimVerdict.not_testable for claim in figures_of(findings))
    return untested and not findings.outcomes.get(Outcome.crashed)


def _plans(home: Path, known: Sequence[str]) -> tuple[dict[str, Plan], dict[str, str]]:
    """Return the plans keyed by claim, and the reasons for missing plans keyed by sweep."""
    from accelsweep.planning.plan import make_plan

    plans, failed = {}, {}
    for name in known:
        try:
            plans[name] = make_plan(home, [f"experiment={GROUP}/{name}"])
        except AccelsweepError as error:
            failed[f"{GROUP}-{name}"] = str(error)
    return plans, failed


def _update_sweep(home: Path, name: str, plan: Plan, seconds: float) -> int:
    """Run the claim's sweep for `seconds`, or report on its existing runs. Rejects a sweep with an active driver."""
    from accelsweep.driver.finalize import finalize
    from accelsweep.planning.plan import write_plan

    if seconds > 0:
        return run_sweep(home, Request((f"experiment={GROUP}/{name}",), time_budget=f"{seconds:.0f}s")).code
    with lock_sweep(SweepFolder(home, plan.manifest.sweep)):
        finalize(write_plan(home, plan))
    return EXIT_OK


def available_claims(home: Path) -> list[str]:
    """Return the sorted names of all claims, including user-defined ones."""
    from accelsweep.installation import config_folders

    folders = [folder / "experiment" / GROUP for folder in config_folders(home)]
    return sorted({path.stem for folder in folders for path in folder.glob("*.yaml")})


def check_claims(home: Path, names: Sequence[str]) -> list[str]:
    """Return all available claims.

    Raises InputError for an unknown name, AccelsweepError if another command is testing claims in this folder.
    """
    known = available_claims(home)
    unknown = next((name for name in names if name not in known), None)
    if unknown is not None:
        raise InputError(f"no claim {unknown!r}{nearest(unknown, known)}; there are: {', '.join(known)}")
    if (driver := active_driver(SweepFolder(home, GROUP))) is not None:
        raise AccelsweepError(
            f"claims are being tested by process {driver.pid} on {driver.host} since {driver.since}: wait for it, "
            "or stop it with Ctrl-C"
        )
    return known


def _why_not(minutes: float, *, asked: bool, interrupted: bool, spent: bool) -> str:
    """Return why a claim may have remaining runs."""
    if not asked:
        return "it was not selected"
    if interrupted:
        return "the command was interrupted"
    return f"the time limit (--minutes {minutes:g}) was reached" if spent else "some of its runs have no result"


def _report(home: Path, sweeps: Sequence[Findings], why_not: Mapping[str, str]) -> None:
    """Write the page, and print its headline and the figures that were tested; the page has the others."""
    page, content = write_verdicts(home, sweeps, why_not), Verdicts(tuple(sweeps), why_not)
    headings = ("claim", "figure", "claimed", "measured here", "verdict", "doubts")
    rows: list[tuple[str | Styled, ...]] = []
    for claim in (claim for claim in content.claims if claim.verdict not in UNTESTED):
        measured = value_text(claim) if claim.measured or claim.projected else "-"
        kind = f"{claim.id} (analogue)" if claim.analogue else claim.id
        doubts = ", ".join(dict.fromkeys(doubt.code for doubt in claim.doubts)) or "-"
        tone = Tone.plain if claim.projected else _VERDICT_TONES.get(claim.verdict, Tone.plain)
        verdict = Styled(claim.verdict_text, tone)
        rows.append((kind, claim.figure or "", claim.claimed, measured, verdict, doubts))
    absent = sorted(why_not.keys() - {one.sweep for one in sweeps})
    rows += [(sweep, "", "-", "-", f"not run: {why_not[sweep]}", "-") for sweep in absent]
    if rows:
        show(Listing("claims", headings, tuple(rows)))
    say_bold(content.headline)
    say(content.detail)
    say(f"report: {page}")


@measures(only=("detach",))
def claims(
    request: Request,
    names: Claims = None,
    minutes: Annotated[float, typer.Option(min=0, help="do not start any run after this many minutes")] = 30.0,
) -> None:
    """`accelsweep claims`."""
    asked = ClaimsRequest(names=tuple(names or ()))
    request = replace(request, extension=asked, time_budget=f"{60.0 * minutes:f}s")
    run_elsewhere(request, {})
    raise typer.Exit(asked.run(Path.cwd(), request))


_VERDICT_TONES = {
    ClaimVerdict.agrees: Tone.good,
    ClaimVerdict.more: Tone.bad,
    ClaimVerdict.less: Tone.bad,
    ClaimVerdict.undecided: Tone.doubtful,
    ClaimVerdict.disturbed: Tone.doubtful,
}
"""The terminal style of each verdict; untested claims are unstyled."""
