"""The state of a head that was handed over: where it went, and how it ended."""

from __future__ import annotations

import contextlib
from typing import ClassVar, Literal, NamedTuple

from accelsweep.errors import DamagedFile, NewerFile
from accelsweep.json_documents import Document
from accelsweep.records.layout import SweepFolder

PlaceKind = Literal["slurm", "systemd", "tmux"]


class Whereabouts(NamedTuple):
    """The holder of a detached head, in words, and whether the head has not begun there yet, for which `reason`."""

    words: str
    waits: bool = False
    reason: str = ""


class Handed(Document):
    """The last head that was handed over. `name` is that of its job, unit or session, `host` where that was asked."""

    kind: ClassVar[str] = "handed"

    place: PlaceKind
    name: str
    host: str
    since: str


class HeadEnd(Document):
    """The exit code of a detached head."""

    kind: ClassVar[str] = "head_end"

    code: int


def handed_head(folder: SweepFolder) -> Handed | None:
    """Return the last head that was handed over, None where there was none."""
    with contextlib.suppress(FileNotFoundError, DamagedFile, NewerFile):
        return Handed.read(folder.of_head("handed"))
    return None


def end_of_head(folder: SweepFolder) -> int | None:
    """Return the exit code of the last detached head, None where it has not ended, or was killed."""
    with contextlib.suppress(FileNotFoundError, DamagedFile, NewerFile):
        return HeadEnd.read(folder.of_head("ended")).code
    return None
