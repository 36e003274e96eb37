"""`accelsweep.plan` and `accelsweep.run`: what the commands of these names do, as functions that return it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pandas as pd
from markupsafe import escape

from accelsweep.base.errors import EXIT_INTERRUPTED, InputError
from accelsweep.commands import plan as planning
from accelsweep.commands.planning.shown import in_short
from accelsweep.commands.running.carried_out import carried_out
from accelsweep.commands.running.request import Request
from accelsweep.notebook.opened import OpenedSweep
from accelsweep.plan.table import PlanTable
from accelsweep.state.folders import SweepFolder

_USAGE_REPORTS = "MLFLOW_DISABLE_TELEMETRY"


class SweepPlan:
    """The preview of a sweep. `table` has everything as plain values; a notebook shows the settings and the summary."""

    def __init__(self, table: PlanTable) -> None:
        """`table` is what `accelsweep plan` prints."""
        self.table = table

    @property
    def name(self) -> str:
        """The sweep's name."""
        return self.table.sweep

    @property
    def settings(self) -> pd.DataFrame:
        """A row for each setting that can run: how many runs are wanted of it, and how many are settled already."""
        rows = [
            (row.cell, row.label, row.baseline, row.wanted, row.settled, row.wanted - row.settled)
            for row in self.table.cells
        ]
        columns = ("setting", "label", "baseline", "wanted_runs", "settled_runs", "runs_left")
        return pd.DataFrame(rows, columns=list(columns))

    @property
    def refused(self) -> pd.DataFrame:
        """A row for each combination that is not going to run, `unsupported` or `excluded`, with its reason."""
        rows = [("unsupported", row.label, row.reason) for row in self.table.unsupported]
        rows += [("excluded", row.label, row.reason) for row in self.table.excluded]
        return pd.DataFrame(rows, columns=["outcome", "label", "reason"])

    @property
    def summary(self) -> tuple[str, ...]:
        """The lines below the settings: blocks, runs, time, cost, and the smallest difference that can be seen."""
        return tuple(line.strip() for line in in_short(self.table))

    def __repr__(self) -> str:
        return f"<SweepPlan {self.name}: {len(self.table.cells)} settings, {self.table.wanted} runs>"

    def _repr_html_(self) -> str:
        lines = "".join(f"<li>{escape(line)}</li>" for line in self.summary)
        parts = [self.settings.drop(columns="setting").to_html(index=False, border=0)]
        if len(self.refused):
            parts.append(self.refused.to_html(index=False, border=0))
        return f"<div><p><strong>{escape(self.name)}</strong></p>{''.join(parts)}<ul>{lines}</ul></div>"


def plan(
    overrides: Sequence[str] = (),
    *,
    name: str | None = None,
    add_repeats: int = 0,
    profile: str | None = None,
    home: Path | str | None = None,
) -> SweepPlan:
    """Preview a sweep, given Hydra's overrides as on the command line; write nothing.

    `home` is the working directory, by default the present one. Raises InputError for anything that is wrong with the
    input, as `accelsweep plan` does.
    """
    given = _listed(overrides)
    return SweepPlan(planning.planned(_home(home), given, name=name, add_repeats=add_repeats, profile=profile))


def run(
    overrides: Sequence[str] = (),
    *,
    name: str | None = None,
    profile: str = "local",
    jobs: int | None = None,
    add_repeats: int = 0,
    time_budget: str | None = None,
    tracking_uri: str | None = None,
    cancel_old: bool = False,
    keep_going: bool = False,
    notify: Sequence[str] = (),
    home: Path | str | None = None,
) -> OpenedSweep:
    """Plan a sweep, measure its missing runs, write its report, and return it; progress is printed meanwhile.

    The same call again resumes it. A run that failed is a row of `.runs` with its reason, and no error here. An
    interrupted notebook is a Ctrl-C: finished runs are kept, and KeyboardInterrupt is raised. Raises InputError before
    anything is written, AccelsweepError if another command runs the sweep.
    """
    request = Request(
        overrides=_listed(overrides),
        name=name,
        profile=profile,
        jobs=jobs,
        add_repeats=add_repeats,
        time_budget=time_budget,
        tracking_uri=tracking_uri,
        cancel_old=cancel_old,
        keep_going=keep_going,
        notify=tuple(notify),
    )
    with _no_usage_reports():
        ended = carried_out(_home(home), request)
    if ended.code == EXIT_INTERRUPTED:
        raise KeyboardInterrupt
    return OpenedSweep([SweepFolder(_home(home), ended.sweep)])


@contextmanager
def _no_usage_reports() -> Iterator[None]:
    """Turn MLflow's usage reports off in the processes that are started meanwhile, unless the user decided."""
    ours = _USAGE_REPORTS not in os.environ
    os.environ.setdefault(_USAGE_REPORTS, "true")
    try:
        yield
    finally:
        if ours:
            del os.environ[_USAGE_REPORTS]


def _home(home: Path | str | None) -> Path:
    return Path.cwd() if home is None else Path(home).absolute()


def _listed(overrides: Sequence[str]) -> tuple[str, ...]:
    if isinstance(overrides, str):
        raise InputError(f"overrides are a list of texts: write [{overrides!r}]")
    return tuple(overrides)
