"""What tests that inject faults share: a real executor with misbehaving ranks, a user's home, and the tally."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from home import TINY, Home

_PROPERTY = "injected"


@pytest.fixture
def home(tmp_path: Path, empty_database: Path) -> Iterator[Home]:
    """A user's working directory with the experiment `tiny`, and locks of its own (see fakes/home.py)."""
    made = Home(tmp_path / "home", ACCELSWEEP_LEASES=str(tmp_path / "leases"))
    made.experiment("tiny", TINY)
    shutil.copy(empty_database, made.path)
    yield made
    made.end_processes()


@pytest.fixture
def inject(record_property: Callable[[str, object], None]) -> Callable[[str], None]:
    """Count an injection for the tally; a test that never calls this counts as one injection of its own name."""
    return lambda what: record_property(_PROPERTY, what)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print how the struck commands ended, and how many faults were tried and survived, by kind."""
    endings = Counter(
        str(what)
        for end in ("passed", "failed")
        for report in terminalreporter.stats.get(end, [])
        for key, what in report.user_properties
        if report.when == "call" and key == "ending"
    )
    if endings:
        terminalreporter.section("endings of commands, by their last lines")
        for kind, count in sorted(endings.items()):
            terminalreporter.write_line(f"{count:5}  {kind}")
    tried, survived = _tally(terminalreporter, "passed", "failed"), _tally(terminalreporter, "passed")
    if tried:
        terminalreporter.section("faults: tried, survived")
        for what in sorted(tried):
            terminalreporter.write_line(f"{tried[what]:5} {survived[what]:5}  {what}")


def _tally(terminalreporter: pytest.TerminalReporter, *ends: str) -> Counter[str]:
    reports = [report for end in ends for report in terminalreporter.stats.get(end, [])]
    tally: Counter[str] = Counter()
    for report in reports:
        if report.when == "call" and "faults/" in report.nodeid:
            own_name = (
                report.nodeid.split("::")[-1]
                .partition("@")[0]
                .partition("[")[0]
                .removeprefix("test_")
                .replace("_", " ")
            )
            tally.update([str(what) for key, what in report.user_properties if key == _PROPERTY] or [own_name])
    return tally
