"""`batch_size: auto`: the searches that a sweep runs first, and what their records answer."""

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


def found_batches(home: Path, sweep: str) -> SearchResults:
    """Return the answers of the searches for `sweep` so far, by their names; a search without a record is absent."""
    from accelsweep.planning.plan import batch_search_folder

    folder = batch_search_folder(home, sweep)
    if not folder.manifest.exists():
        return {}
    found: dict[str, FoundBatch | str] = {}
    for planned in Manifest.read(folder.manifest).settings:
        if (record := record_or_none(folder, Run.of(planned.name, 0, 0).name)) is not None:
            found[planned.name] = _answer(folder, record)
    return found


def _answer(folder: SweepFolder, record: Record) -> FoundBatch | str:
    frontier = record.frontier
    if record.outcome is not Outcome.measured or frontier is None:
        return f"batch_size=auto: the search in {folder.name} ended as {record.outcome}: {record.reason}"
    rows = frontier.largest if frontier.rows is None else frontier.rows // record.config.world_size
    if not rows:
        return f"batch_size=auto: the data has {frontier.rows} rows, fewer than the {record.config.world_size} ranks"
    return FoundBatch(
        search=record.setting,
        batch_size=min(frontier.largest, rows),
        largest=frontier.largest,
        headroom=frontier.headroom,
        sweep=folder.name,
        record_sha256=sha256_file(folder.record(record.run)),
    )


def planned_after_searches(home: Path, plan: Callable[[SearchResults], Plan]) -> Plan | tuple[BatchSearchNeeded, Plan]:
    """Return the plan with the batches that are found already; else what is missing, and the plan of the searches."""
    from accelsweep.planning.checked_grid import BatchSearchNeeded
    from accelsweep.planning.plan import batch_search_plan

    try:
        return plan({})
    except BatchSearchNeeded as wanted:
        known = found_batches(home, wanted.sweep)
    try:
        return plan(known)
    except BatchSearchNeeded as wanted:
        return wanted, batch_search_plan(home, wanted)


def tell_of_searches(wanted: BatchSearchNeeded, first: Plan, say: Callable[[str], None] = say) -> None:
    """Say which sweep comes first, and why."""
    say(
        f"batch_size=auto: the largest batch of {count_of(len(wanted.pending), 'setting')} is searched first, in the "
        f"sweep {first.manifest.sweep}; {wanted.sweep} is planned with what is found"
    )


def tell_of_batches(home: Path, wanted: BatchSearchNeeded) -> None:
    """Say what each search found, or why it found nothing."""
    found = found_batches(home, wanted.sweep)
    for name, setting in wanted.searches.items():
        if name in wanted.pending:
            one = found.get(name, "batch_size=auto: its search has not ended")
            words = one if isinstance(one, str) else f"batch_size=auto: {one.batch_size} per rank"
            say(f"{label(setting.axes)}: {words}")
