"""The content of an archive: a list of its files with their checksums, their places, and the limits on all of them.

An archive is a ZIP file. Its first member, `archive.json`, lists the others. Unpacked in a working directory they lie
where a sweep and its report lie: `sweeps/NAME/` and `reports/NAME/`.
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import ClassVar

from pydantic import Field, field_validator

from accelsweep.core.recorded.profiles import SettingProfile
from accelsweep.json_documents import Document, Frozen
from accelsweep.records.findings import Findings
from accelsweep.records.layout import (
    ACCOUNTING_FILE,
    FINDINGS_FILE,
    MANIFEST_FILE,
    PAGE,
    RECORD_FILE,
    RUNS_FOLDER,
    STEPS_FILE,
    TRACE_FILE,
    check_sweep_name,
)
from accelsweep.records.plan import Block, Done, Manifest
from accelsweep.records.run_record import Record
from accelsweep.records.stop_reasons import Halt
from accelsweep.state.accounting import Accounting

LISTING = "archive.json"
"""The member that lists the others."""
CHUNK_BYTES = 2**20
"""Files are read and packed in pieces of this size."""

MOST_FILES = 60_000
"""An archive of more files is refused, and no sweep of more is packed. ZIP's plain form counts to 65535."""

MOST_ARCHIVE_BYTES = 2 * 2**30
"""An archive is refused if its file, or all that it holds, is larger; so is a sweep that is to be packed."""

MOST_FILE_BYTES = 256 * 2**20
"""No single file is larger: a document of ours is read at once."""

PLAN_PLACE, NUMBERS_PLACE, PAGE_PLACE = f"sweep/{MANIFEST_FILE}", f"sweep/{FINDINGS_FILE}", f"report/{PAGE}"
"""The places that every archive has."""

_PART = r"[A-Za-z0-9][A-Za-z0-9._+-]{0,119}"
_PLACES: dict[str, type[Document] | None] = {
    re.escape(PLAN_PLACE): Manifest,
    re.escape(NUMBERS_PLACE): Findings,
    rf"sweep/{re.escape(ACCOUNTING_FILE)}": Accounting,
    rf"sweep/blocks/({_PART})\.done\.json": Done,
    rf"sweep/blocks/({_PART})\.halt\.json": Halt,
    rf"sweep/blocks/({_PART})\.json": Block,
    rf"sweep/{RUNS_FOLDER}/({_PART})/{re.escape(RECORD_FILE)}": Record,
    rf"sweep/{RUNS_FOLDER}/({_PART})/{re.escape(RECORD_FILE)}\.damaged-[0-9]{{1,5}}": None,
    rf"sweep/{RUNS_FOLDER}/({_PART})/{re.escape(STEPS_FILE)}": None,
    rf"sweep/profiles/({_PART})/profile\.json": SettingProfile,
    rf"sweep/profiles/({_PART})/{re.escape(TRACE_FILE)}": None,
    r"report/[a-z][a-z0-9_-]{0,79}\.(?:csv|html|md|svg)": None,
}
"""Every place that a file of an archive can have, and the document in it. Nothing else is packed or accepted."""


class ArchivedFile(Frozen):
    """A file's size in bytes and the SHA-256 of its contents."""

    size: int = Field(ge=0, le=MOST_FILE_BYTES)
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")


class Contents(Document):
    """The list that an archive begins with.

    `files` are named by their places: `sweep/...` and `report/...`. `versions` are those of Python, of accelsweep and
    of the packages that decide the bytes of findings and report, on the machine that packed them.
    """

    kind: ClassVar[str] = "archive"

    name: str
    versions: dict[str, str]
    files: dict[str, ArchivedFile]

    @field_validator("name")
    @classmethod
    def _usable(cls, name: str) -> str:
        return check_sweep_name(name)

    def member(self, place: str) -> str:
        """Return the name of a file inside the archive, given its place: `sweeps/NAME/...` or `reports/NAME/...`."""
        top, _, rest = place.partition("/")
        return f"{top}s/{self.name}/{rest}"


def is_place(place: str) -> bool:
    """Return whether a file of an archive can have this place."""
    return ".." not in place and any(re.fullmatch(pattern, place, re.ASCII) for pattern in _PLACES)


def document_at(place: str) -> type[Document] | None:
    """Return the kind of document that has this place, None for files of other kinds."""
    return next(kind for pattern, kind in _PLACES.items() if re.fullmatch(pattern, place, re.ASCII))


def written_in_order(places: list[str]) -> list[str]:
    """Return the places in the order in which a sweep's own files come about: what is made from others stands last.

    Snakemake goes by the times of files.
    """
    return sorted(places, key=lambda place: (_made_from_others(place), place))


def _made_from_others(place: str) -> int:
    if place.startswith("report/"):
        return 3
    if place == NUMBERS_PLACE:
        return 2
    return 1 if PurePosixPath(place).name.endswith(".done.json") else 0
