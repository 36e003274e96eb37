"""Check somebody else's archive: all of it is read and compared before anything is written or used.

Nothing in it is run, unpickled or followed. Members are plain files in places that we know, with the sizes and
checksums that the archive lists. Their number and their size are limited before they are unpacked.
"""

from __future__ import annotations

import hashlib
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from io import BufferedReader
from pathlib import Path, PurePosixPath

from accelsweep import registry
from accelsweep.errors import DamagedFile, InputError
from accelsweep.features.archives.pack import (
    CHUNK_BYTES,
    LISTING,
    MOST_ARCHIVE_BYTES,
    MOST_FILE_BYTES,
    MOST_FILES,
    NUMBERS_PLACE,
    PAGE_PLACE,
    PLAN_PLACE,
    ArchivedFile,
    Contents,
    document_at,
    excess,
    is_place,
    written_in_order,
)
from accelsweep.files import open_regular
from accelsweep.json_documents import Document
from accelsweep.records.cleanup import temporary_folder
from accelsweep.records.layout import STEPS_FILE, SweepFolder, inside
from accelsweep.records.plan import Block, Done, Manifest, Run
from accelsweep.records.run_files import own_record
from accelsweep.records.run_record import Record
from accelsweep.records.stop_reasons import Halt
from accelsweep.significant_digits import gib

_END = struct.Struct("<4s4H2LH")

_ANOTHER_END = 20
"""The length of the record, before the end, that would give other numbers of members: ours have none."""

_MOST_LISTED = 300
"""Bytes of the ZIP file's own list for each member; the longest of our names fits."""

_UNREADABLE = (
    zipfile.BadZipFile, zlib.error, struct.error, EOFError, OSError, ValueError, NotImplementedError, RuntimeError,
)  # fmt: skip
"""Errors of Python's reader of ZIP files for one that is damaged or made to harm."""


class RefusedArchive(InputError):
    """An archive is damaged, foreign or larger than any of ours. Nothing of it was written."""

    def __init__(self, path: Path, why: str) -> None:
        """`path` is the archive, `why` its fault."""
        super().__init__(f"{path} is no archive that can be used: {why}. Nothing was written")


@dataclass(frozen=True)
class CheckedArchive:
    """An archive whose every file was checked. It is read as long as `checked` holds it open."""

    path: Path
    contents: Contents
    archive: zipfile.ZipFile

    def read(self, place: str) -> bytes:
        """Return the contents of the file at this place. Raises RefusedArchive if it changed since it was checked."""
        return b"".join(_whole(self.path, self.archive, self.contents.member(place), self.contents.files[place]))

    def unpack(self, places: list[str], root: Path) -> None:
        """Write the files at these places of the sweep to a new folder `root`. Raises as `read` does."""
        for place in places:
            target = root / place.partition("/")[2]
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("xb") as file:
                for chunk in _whole(self.path, self.archive, self.contents.member(place), self.contents.files[place]):
                    file.write(chunk)


@contextmanager
def checked(path: Path) -> Iterator[CheckedArchive]:
    """Hold the archive at `path` open, after all of it was read and checked.

    Raises RefusedArchive if it is damaged, foreign or too large; FileNotFoundError where there is none; NewerFile if a
    later version wrote it.
    """
    try:
        file = open_regular(path)
    except DamagedFile as error:
        raise RefusedArchive(path, error.why) from None
    with file:
        _refuse_another_end(path, file)
        try:
            archive = zipfile.ZipFile(file)
        except _UNREADABLE as error:
            raise RefusedArchive(path, f"it is no whole ZIP file ({error})") from None
        with archive:
            contents = _contents(path, archive)
            _check(path, archive, contents)
            yield CheckedArchive(path, contents, archive)


def _refuse_another_end(path: Path, file: BufferedReader) -> None:
    """Refuse a file by its size and its last bytes, which tell the number of members before they are looked at."""
    size = file.seek(0, 2)
    if size > MOST_ARCHIVE_BYTES:
        raise RefusedArchive(path, f"it is larger than {gib(MOST_ARCHIVE_BYTES)}")
    if size < _END.size:
        raise RefusedArchive(path, "it is no ZIP file, or its end is missing")
    file.seek(max(size - _END.size - _ANOTHER_END, 0))
    tail = file.read()
    signature, _, _, _, count, listed, _, comment = _END.unpack(tail[-_END.size :])
    if signature != b"PK\x05\x06" or comment or tail[: -_END.size].startswith(b"PK\x06\x07"):
        raise RefusedArchive(path, "it is no ZIP file of accelsweep's, or its end is missing")
    if count > MOST_FILES + 1 or listed > (MOST_FILES + 1) * _MOST_LISTED:
        raise RefusedArchive(path, f"it holds {count} files, and the most is {MOST_FILES}")


def _contents(path: Path, archive: zipfile.ZipFile) -> Contents:
    """Return the list of the archive, after its members were compared with it. No other member was read yet."""
    members = archive.infolist()
    for member in members:
        _refuse_odd(path, member)
    if not members or members[0].filename != LISTING:
        raise RefusedArchive(path, f"it does not begin with {LISTING}: accelsweep did not write it")
    if sum(member.file_size for member in members) > MOST_ARCHIVE_BYTES:
        raise RefusedArchive(path, f"its files are larger than {gib(MOST_ARCHIVE_BYTES)} together")
    try:
        contents = Contents.unsealed(b"".join(_bytes(path, archive, LISTING)), path / LISTING)
    except DamagedFile as error:
        raise RefusedArchive(path, f"{LISTING}: {error.why}") from None
    wrong = next((place for place in contents.files if not is_place(place)), None)
    if wrong is not None:
        raise RefusedArchive(path, f"it lists {wrong!r}, which is no file of a sweep")
    listed, found = [LISTING, *map(contents.member, contents.files)], [member.filename for member in members]
    if sorted(listed) != sorted(found) or len({name.casefold() for name in found}) < len(found):
        odd = next(iter(sorted(set(listed) ^ set(found))), "a file twice")
        raise RefusedArchive(path, f"it does not hold the files that {LISTING} lists: see {odd!r}")
    return contents


def _refuse_odd(path: Path, member: zipfile.ZipInfo) -> None:
    """Refuse what is no plain file, what is encrypted, and what is larger than any of our files."""
    kind = stat.S_IFMT(member.external_attr >> 16)
    if member.is_dir() or kind not in (0, stat.S_IFREG):
        raise RefusedArchive(path, f"{member.filename!r} is a folder, a link or a device")
    if member.flag_bits & 1 or member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise RefusedArchive(path, f"{member.filename!r} is encrypted or packed in another way than ours")
    if member.orig_filename != member.filename:
        raise RefusedArchive(path, f"the name {member.orig_filename!r} is none of ours")
    if member.file_size > MOST_FILE_BYTES:
        raise RefusedArchive(path, f"{member.filename!r} is larger than {MOST_FILE_BYTES // 2**20} MiB")


def _check(path: Path, archive: zipfile.ZipFile, contents: Contents) -> None:
    for needed in (PLAN_PLACE, NUMBERS_PLACE, PAGE_PLACE):
        if needed not in contents.files:
            raise RefusedArchive(path, f"it holds no {contents.member(needed)}")
    for place, described in contents.files.items():
        member, kind = contents.member(place), document_at(place)
        chunks = _whole(path, archive, member, described)
        if kind is None:
            content = b"".join(chunks)
            why = excess(content) if place.endswith(STEPS_FILE) else None
            if why is not None:
                raise RefusedArchive(path, f"{member}: {why}")
            continue
        try:
            _check_names(kind.unsealed(b"".join(chunks), path / member), path / member, place)
        except DamagedFile as error:
            raise RefusedArchive(path, f"{member}: {error.why}") from None


def _check_names(document: Document, path: Path, place: str) -> None:
    """Raise DamagedFile if a document stands in the place of another one, or names runs that would leave the folder."""
    parts = PurePosixPath(place).parts
    if isinstance(document, Record):
        own_record(document, path, parts[2])
        _check_time(document.started_at, path)
        _check_time(document.finished_at, path)
    elif isinstance(document, Block | Done | Halt):
        named = document.name if isinstance(document, Block) else document.block
        if named != parts[-1].partition(".")[0]:
            raise DamagedFile(path, f"it is of another block, {named!r}")
    elif isinstance(document, Manifest):
        for block in document.blocks:
            inside(block.name)
            for run in block.runs:
                Run.parse(inside(run))
    else:
        for file in registry.files():
            if file.model and file.check and isinstance(document, registry.load(file.model)):
                registry.load(file.check)(document, path, parts)


def _check_time(text: str, path: Path) -> None:
    try:
        known = datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        known = False
    if not known:
        raise DamagedFile(path, f"{text!r} is no time in ISO 8601 with its offset to UTC")


def _whole(path: Path, archive: zipfile.ZipFile, member: str, described: ArchivedFile) -> Iterator[bytes]:
    """Yield the contents of a member piece by piece; raise RefusedArchive if they are not those that are listed."""
    digest, size = hashlib.sha256(), 0
    for chunk in _bytes(path, archive, member):
        digest.update(chunk)
        size += len(chunk)
        yield chunk
    if size != described.size or digest.hexdigest() != described.sha256:
        raise RefusedArchive(path, f"{member} does not match its checksum")


def _bytes(path: Path, archive: zipfile.ZipFile, member: str) -> Iterator[bytes]:
    try:
        with archive.open(member) as file:
            while chunk := file.read(CHUNK_BYTES):
                yield chunk
    except _UNREADABLE as error:
        raise RefusedArchive(path, f"{member} cannot be unpacked ({error})") from None


# Unpack a checked archive: what findings and report are made from, and neither of them.

_REMADE = ("sweep/findings.json", "report/")
"""Places of what is made again from the records."""


def unpacked(archive: CheckedArchive, home: Path, name: str) -> SweepFolder:
    """Write a checked archive's sweep below `home`, without what is made from its records; return its folder."""
    folder = SweepFolder(home, name)
    kept = [place for place in archive.contents.files if not place.startswith(_REMADE)]
    archive.unpack(written_in_order(kept), folder.root)
    return folder


@contextmanager
def opened(path: Path) -> Iterator[SweepFolder]:
    """Unpack the archive at `path` into a temporary folder after checking it, and yield the folder of its sweep.

    Raises as `checked` does.
    """
    with temporary_folder("opened") as home:
        with checked(path) as archive:
            folder = unpacked(archive, home, archive.contents.name)
        yield folder
