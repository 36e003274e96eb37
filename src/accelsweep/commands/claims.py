"""`accelsweep claims`: put every claim that this machine can test to the test within a time budget, and tell of all."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import typer
from rich.table import Table

from accelsweep.commands.console import console
from accelsweep.core.errors import EXIT_INTERRUPTED, EXIT_OK, InputError, nearest
from accelsweep.core.findings import Findings
from accelsweep.core.folders import SweepFolder

GROUP = "claims"


def put_to_the_test(home: Path, names: Sequence[str], minutes: float) -> int:
    """Run the sweeps of these claims (all without a name), those that take least first, until `minutes` are over.

    Every claim is planned and has a row, run or not. Returns 0, or 130 if interrupted; either way there is a report.
    """
    from accelsweep.commands.finish import finish
    from accelsweep.commands.plan import minutes_left
    from accelsweep.commands.run import Request, run
    from accelsweep.plan.make import make_plan, write_plan

    known = known_claims(home)
    _refuse_unknown(names, known)
    deadline, interrupted = time.monotonic() + 60.0 * minutes, False
    plans = {name: make_plan(home, [f"experiment={GROUP}/{name}"]) for name in known}
    left = {name: minutes_left(home, plan) for name, plan in plans.items()}
    why_not = {}
    for name in sorted(known, key=lambda name: left[name]):
        seconds, asked = deadline - time.monotonic(), not names or name in names
        if left[name] and asked and seconds > 0 and not interrupted:
            request = Request((f"experiment={GROUP}/{name}",), time_budget=f"{seconds:.0f}s")
            interrupted = run(home, request) == EXIT_INTERRUPTED
        else:
            finish(write_plan(home, plans[name]))
        why_not[plans[name].manifest.sweep] = _why_not(minutes, asked=asked, interrupted=interrupted)
    found = [Findings.read(SweepFolder(home, plans[name].manifest.sweep).findings) for name in known]
    _tell(home, found, why_not)
    return EXIT_INTERRUPTED if interrupted else EXIT_OK


def known_claims(home: Path) -> list[str]:
    """Return the names of the experiments that put a claim to the test, the user's own among them, in order."""
    from accelsweep.plan.compose import config_folders

    folders = [folder / "experiment" / GROUP for folder in config_folders(home)]
    return sorted({path.stem for folder in folders for path in folder.glob("*.yaml")})


def _refuse_unknown(names: Sequence[str], known: Sequence[str]) -> None:
    unknown = next((name for name in names if name not in known), None)
    if unknown is not None:
        raise InputError(f"no claim {unknown!r}{nearest(unknown, known)}; there are: {', '.join(known)}")


def _why_not(minutes: float, *, asked: bool, interrupted: bool) -> str:
    """Return why runs of a claim are left, if any are."""
    if not asked:
        return "it was not asked for"
    return "the command was interrupted" if interrupted else f"the {minutes:g} minutes were spent"


def _tell(home: Path, found: Sequence[Findings], why_not: Mapping[str, str]) -> None:
    from accelsweep.report.claims import value_words
    from accelsweep.report.verdicts import write_verdicts

    page = write_verdicts(home, found, why_not)
    table = Table(title="claims put to the test", title_justify="left")
    for heading in ("claim", "figure", "claimed", "measured here", "verdict", "doubts"):
        table.add_column(heading)
    for claim in (claim for one in found for claim in one.claims):
        measured = value_words(claim) if claim.measured else "-"
        kind = f"{claim.id} (analogue)" if claim.analogue else claim.id
        doubts = ", ".join(dict.fromkeys(doubt.code for doubt in claim.doubts)) or "-"
        table.add_row(kind, claim.figure or "", claim.claimed, measured, claim.verdict.value, doubts)
    console().print(table)
    typer.echo(f"report: {page}")
