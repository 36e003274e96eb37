"""Reasons why a block ended without its runs: every way in which that can happen, with the words for the user.

A supervisor that ends early leaves a halt beside its block, `blocks/BLOCK.halt.json`, whatever the reason. The head
leaves one where an engine let no supervisor begin. The next supervisor of the block takes it away. `run`, `status`,
`runs` and the report tell it, so that nobody has to read a log. Sweeps of earlier versions have no such files and read
as before.
"""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from collections.abc import Mapping
from enum import StrEnum
from typing import ClassVar, Literal

from accelsweep.errors import DamagedFile
from accelsweep.files import remove
from accelsweep.json_documents import Document
from accelsweep.records.file_lock import living, read_hold
from accelsweep.records.layout import SweepFolder
from accelsweep.records.plan import BLOCK_NAME, Manifest

_NUMBER = re.compile(rf"\b{BLOCK_NAME}\b|[0-9]+")
"""A number, or the name of a block."""


class Why(StrEnum):
    """The ways, as templates of the words.

    Errors of ours bring their own: a damaged plan, a block that the plan has no more, a hold or a lock that is lost.
    """

    no_room = (
        "the disk of {folder} has {free:.0f} MB free, limits.free_disk_bytes asks for {asked:.0f} MB; make room or "
        "lower it"
    )
    no_inodes = (
        "the disk of {folder} has room for {free} more files (inodes), limits.free_disk_inodes asks for {asked}; "
        "remove files there, or lower it"
    )
    disk_refused = "{where}: {error}; make the folder writable or make room on its disk"
    budget_spent = "the time budget was spent before it began ({stop} stands)"
    block_spent = "the {seconds:g} s of its block (limits.block_seconds) were spent before it began"
    stopped = "the executor of its block was stopped by {signal}"
    failed = "the executor of its block failed ({error}); {log} has more"
    died = (
        "the executor of its block, process {pid} on {host}, ended without a word{during}: it was killed, or the "
        "machine was"
    )
    brought_down = (
        "runs of the first two settings ended their executors without a word ({runs}), and nothing was measured: the "
        "cause may be in the code that they run, or too little memory. Mend it, or measure the rest with --keep-going"
    )
    alike = (
        "the first two settings ended with the same exception, {error}; mend it, or measure the rest with --keep-going"
    )
    refused = "{engine} refused its job ({words}); change what the site file asks for"
    job_ended = "its job {number} ended as {state} ({words}); {log} has more"
    hopeless = "its job {number} could never start, for which {engine} says {reason}: change {keys}"
    waited = "its job waited for more than limits.queue_minutes ({minutes:g}) in {engine}'s queue, which says: {reason}"
    gone = "its record is gone: its block had ended with it, and something else deleted it since"
    never_began = "it has not run yet"


class Halt(Document):
    """The reason why a block ended before each of its runs had a record, and the remedy.

    `again` tells when its runs are worth another job: `now`, in this command; `later`, in the next one; or `changed`,
    when what `why` names is changed.
    """

    kind: ClassVar[str] = "halt"

    block: str
    why: str
    again: Literal["now", "later", "changed"] = "now"


def why_not_run(folder: SweepFolder, block: str) -> str:
    """Return why runs of a block have no record: what kept it from them, or that nobody has begun it or it goes on."""
    path = folder.hold(block)
    hold = read_hold(path)
    if hold is not None and living(hold, path):
        return Why.never_began
    if (halt := halt_of(folder, block)) is not None:
        return halt.why
    if hold is None:  # a command that opens a block again removes its done file
        return Why.gone if folder.done(block).is_file() else Why.never_began
    during = f" while {hold.run} was going on" if hold.run else ""
    return Why.died.format(pid=hold.pid, host=hold.host, during=during)


def why_and_what_next(folder: SweepFolder, block: str, again: str) -> str:
    """Return why runs of a block have no record, and how they are measured `again`, unless that wants a change."""
    why, halt = why_not_run(folder, block), halt_of(folder, block)
    return why if halt is not None and halt.why == why and halt.again == "changed" else f"{why}; {again}"


def reasons_not_run(folder: SweepFolder, manifest: Manifest) -> Mapping[str, int]:
    """Return how many wanted runs have no record for which reason; those that nobody kept from it are left out.

    Reasons that differ in numbers alone are one reason: the room on a disk, and who died, differ from block to block.
    """
    counts: Counter[str] = Counter()
    told: dict[str, str] = {}
    for block in manifest.blocks:
        absent = sum(not folder.record(run).exists() for run in block.runs)
        if absent and (why := why_not_run(folder, block.name)) != Why.never_began:
            counts[told.setdefault(without_numbers(why), why)] += absent
    return counts


def without_numbers(reason: str) -> str:
    """Return a reason without its numbers and names of blocks, in which reasons for the same cause differ."""
    return _NUMBER.sub("", reason)


def halt_of(folder: SweepFolder, block: str) -> Halt | None:
    """Return what keeps a block from its runs; None where nothing does, or the file is damaged."""
    with contextlib.suppress(FileNotFoundError, DamagedFile):
        return Halt.read(folder.halt(block))
    return None


def wants_a_change(folder: SweepFolder, manifest: Manifest) -> bool:
    """Return whether runs are absent, and none of them is worth another job before something is changed."""
    left = [block.name for block in manifest.blocks if not all(folder.record(run).exists() for run in block.runs)]
    halts = [halt_of(folder, block) for block in left]
    return bool(left) and all(halt is not None and halt.again == "changed" for halt in halts)


def forget_halts(folder: SweepFolder) -> None:
    """Take the halts of an earlier command away, whose reasons may be no more."""
    for path in folder.halts():
        remove(path)
