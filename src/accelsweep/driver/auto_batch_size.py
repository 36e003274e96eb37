"""Support for `batch_size: auto`: the searches that run before a sweep, and their results."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from accelsweep.config.setting import label
from accelsweep.driver.console import say
from accelsweep.files import sha256_file
from accelsweep.records.layout import SweepFolder
from accelsweep.records.plan import FoundBatch, Manifest
from accelsweep.records.run_files import record_or_none
from accelsweep.records.run_record import Record
from accelsweep.results import Outcome
from accelsweep.run_config import Run
from accelsweep.significant_digits import count_of

if TYPE_CHECKING:
    from accelsweep.planning.auto_batch_size import SearchResults
    from accelsweep.planning.checked_grid import BatchSearchNeeded
    from accelsweep.planning.plan import Plan


def plan_or_searches(home: Path, plan: Callable[[SearchResults], Plan]) -> Plan | tuple[BatchSearchNeeded, Plan]:
    """Return the plan if all batch sizes are known; otherwise, return what is missing and a plan to search for it."""
    from accelsweep.planning.checked_grid import BatchSearchNeeded
    from accelsweep.planning.plan import batch_search_plan

    try:
        return plan({})
    except BatchSearchNeeded as unsearched:
        batches = search_results(home, unsearched.sweep)
    try:
        return plan(batches)
    except BatchSearchNeeded as unsearched:
        return unsearched, batch_search_plan(home, unsearched)


def search_results(home: Path, sweep: str) -> SearchResults:
    """Return the results of the sweep's batch-size searches, keyed by name; searches without a record are omitted."""
    from accelsweep.planning.plan import batch_search_folder

    folder = batch_search_folder(home, sweep)
    if not folder.manifest.exists():
        return {}
    records = (
        record_or_none(folder, Run.of(search.name, 0, 0).name) for search in Manifest.read(folder.manifest).settings
    )
    return {record.setting: _search_result(folder, record) for record in records if record is not None}


def _search_result(folder: SweepFolder, record: Record) -> FoundBatch | str:
    found = record.largest_batch
    if record.outcome is not Outcome.measured or found is None:
        return f"batch_size=auto: the search in {folder.name} ended as {record.outcome}: {record.reason}"
    rows = found.largest if found.rows is None else found.rows // record.config.world_size
    if not rows:
        return f"batch_size=auto: the data contains only {found.rows} rows for {record.config.world_size} ranks"
    return FoundBatch(
        search=record.setting,
        batch_size=min(found.largest, rows),
        largest=found.largest,
        headroom=found.headroom,
        sweep=folder.name,
        record_sha256=sha256_file(folder.record(record.run)),
    )


def announce_searches(unsearched: BatchSearchNeeded, searches: Plan, say: Callable[[str], None] = say) -> None:
    """Report which sweep runs first, and why."""
    say(
        f"batch_size=auto: searching first for the largest batch of {count_of(len(unsearched.pending), 'setting')}, in "
        f"the sweep {searches.manifest.sweep}; {unsearched.sweep} is then planned with the results"
    )


def report_searches(home: Path, unsearched: BatchSearchNeeded) -> None:
    """Print each search's result, or the reason why there is none."""
    results = search_results(home, unsearched.sweep)
    for name, setting in unsearched.searches.items():
        if name in unsearched.pending:
            result = results.get(name, "batch_size=auto: its search has not finished")
            text = result if isinstance(result, str) else f"batch_size=auto: {result.batch_size} per rank"
            say(f"{label(setting.axes)}: {text}")
