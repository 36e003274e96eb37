"""All reasons why a block may end before all of its runs have a record, with the messages shown to the user.

An executor that ends early writes a halt file, `blocks/BLOCK.halt.json`; so does the driver if a scheduler prevented an
executor from starting. The block's next executor removes the file. `run`, `status`, `runs` and the report show the
reason, so that nobody has to read a log.
"""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import ClassVar, Literal

from accelsweep.errors import DamagedFile
from accelsweep.files import remove
from accelsweep.json_documents import Document
from accelsweep.records.early_decisions import decided_runs
from accelsweep.records.file_lock import is_live, read_lock
from accelsweep.records.layout import SweepFolder
from accelsweep.records.plan import BLOCK_NAME, Manifest, PlannedBlock

_NUMBER = re.compile(rf"\b{BLOCK_NAME}\b|[0-9]+")
"""A number, or the name of a block."""


class StopReason(StrEnum):
    """Message templates.

    Other reasons, such as a damaged plan, a block that is no longer in the plan, or a lost lock, are exceptions of our
    own that already carry a message.
    """

    no_room = (
        "the disk of {folder} has {free:.0f} MB free, but limits.free_disk_bytes requires {asked:.0f} MB; free "
        "some space or lower the limit"
    )
    no_inodes = (
        "the disk of {folder} has room for {free} more files (inodes), but limits.free_disk_inodes requires {asked}; "
        "remove files there or lower the limit"
    )
    disk_refused = "{where}: {error}; make the folder writable or free up space on its disk"
    budget_spent = "the time budget was used up before it began ({stop} exists)"
    block_spent = "the {seconds:g} s of its block (limits.block_seconds) were used up before it began"
    stopped = "the executor of its block was stopped by {signal}"
    failed = "the executor of its block failed ({error}); {log} has more"
    died = (
        "the executor of its block, process {pid} on {host}, died without a message{during}: it was killed, or the "
        "machine went down"
    )
    brought_down = (
        "runs of the first two settings killed their executors without a message ({runs}), and nothing was measured: "
        "the cause may be in the code that they run, or a lack of memory. Fix it, or measure the rest with "
        "--keep-going"
    )
    alike = (
        "the first two settings ended with the same exception, {error}; fix it, or measure the rest with --keep-going"
    )
    refused = "{scheduler} refused its job ({words}); change what the site file requests"
    job_ended = "its job {number} ended as {state} ({words}); {log} has more"
    hopeless = "its job {number} can never start, {scheduler} reports {reason}: change {keys}"
    waited = (
        "its job waited for more than limits.queue_minutes ({minutes:g}) in {scheduler}'s queue, "
        "which reports: {reason}"
    )
    gone = "its record is missing: its block was complete, but something else has since deleted the record"
    never_began = "it has not run yet"


class Halt(Document):
    """The reason why a block ended before all of its runs had a record, and the remedy.

    `retry` specifies when another job for its runs makes sense: `now` (in this command), `later` (in the next command)
    or `changed` (once the cause named in `reason` has been fixed).
    """

    kind: ClassVar[str] = "halt"

    block: str
    reason: str
    retry: Literal["now", "later", "changed"] = "now"


def not_run_reason(folder: SweepFolder, block: str) -> str:
    """Return why runs of a block have no record: the block was stopped, has not started, or is still running."""
    path = folder.lock(block)
    owner = read_lock(path)
    if owner is not None and is_live(owner, path):
        return StopReason.never_began
    if (halt := read_halt(folder, block)) is not None:
        return halt.reason
    if owner is None:  # a command that reopens a block removes its done file
        return StopReason.gone if folder.done(block).is_file() else StopReason.never_began
    during = f" while {owner.run} was running" if owner.run else ""
    return StopReason.died.format(pid=owner.pid, host=owner.host, during=during)


def not_run_reason_with_remedy(folder: SweepFolder, block: str, remedy: str) -> str:
    """Return why runs of a block have no record, and the `remedy` unless the reason itself requires a change."""
    reason, halt = not_run_reason(folder, block), read_halt(folder, block)
    requires_change = halt is not None and halt.reason == reason and halt.retry == "changed"
    return reason if requires_change else f"{reason}; {remedy}"


def count_not_run_reasons(folder: SweepFolder, manifest: Manifest) -> Mapping[str, int]:
    """Count the wanted runs without a record, keyed by reason, except those that simply have not started.

    Reasons that differ only in numbers are counted together, because free space and process IDs differ from block to
    block.
    """
    counts: Counter[str] = Counter()
    first: dict[str, str] = {}
    for block, missing in _missing_runs(folder, manifest):
        if (reason := not_run_reason(folder, block.name)) != StopReason.never_began:
            counts[first.setdefault(without_numbers(reason), reason)] += missing
    return counts


def _missing_runs(folder: SweepFolder, manifest: Manifest) -> Iterator[tuple[PlannedBlock, int]]:
    """Yield the blocks that lack records of runs that are not left out, and how many."""
    decided = decided_runs(folder, manifest)
    for block in manifest.blocks:
        missing = sum(run not in decided and not folder.record(run).exists() for run in block.runs)
        if missing:
            yield block, missing


def without_numbers(reason: str) -> str:
    """Return a reason without numbers and block names, so that reasons with the same cause are identical."""
    return _NUMBER.sub("", reason)


def read_halt(folder: SweepFolder, block: str) -> Halt | None:
    """Return the contents of the block's halt file, or None if there is no readable one."""
    with contextlib.suppress(FileNotFoundError, DamagedFile):
        return Halt.read(folder.halt(block))
    return None


def needs_change(folder: SweepFolder, manifest: Manifest) -> bool:
    """Return whether runs are missing and another job for any of them would be pointless until something is changed."""
    incomplete = [block.name for block, _ in _missing_runs(folder, manifest)]
    halts = [read_halt(folder, block) for block in incomplete]
    return bool(incomplete) and all(halt is not None and halt.retry == "changed" for halt in halts)


def remove_halts(folder: SweepFolder) -> None:
    """Remove the halt files of an earlier command, because their reasons may no longer apply."""
    for path in folder.halts():
        remove(path)
