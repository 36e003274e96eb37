"""Validates an untrusted archive completely before any of it is written or used.

No member is executed or unpickled, and no link is followed. Members must be regular files at known paths, and must
match the sizes and checksums that the archive lists. Their number and size are checked against limits before unpacking.
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
    MAX_ARCHIVE_BYTES,
    MAX_FILE_BYTES,
    MAX_FILES,
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
from accelsweep.records.layout import STEPS_FILE, SweepFolder, check_file_name
from accelsweep.records.not_run_reasons import Halt
from accelsweep.records.plan import Block, Done, Manifest
from accelsweep.records.run_files import check_record
from accelsweep.records.run_record import Record
from accelsweep.run_config import Run
from accelsweep.significant_digits import gib
from accelsweep.temporary_folders import temporary_folder

_END = struct.Struct("<4s4H2LH")

_ZIP64_LOCATOR_BYTES = 20
"""A ZIP64 locator could specify a different number of members; our archives never contain one."""

_MAX_DIRECTORY_BYTES = 300
"""Maximum bytes per member in the ZIP's central directory."""

_UNREADABLE = (
    zipfile.BadZipFile, zlib.error, struct.error, EOFError, OSError, ValueError, NotImplementedError, RuntimeError,
)  # fmt: skip
"""Errors that `zipfile` raises for damaged or malicious files."""


class RefusedArchive(InputError):
    """The archive is damaged, too large or not from accelsweep. Nothing was written."""

    def __init__(self, path: Path, why: str) -> None:
        """`path` is the archive, `why` the problem."""
        super().__init__(f"{path} is not a usable archive: {why}. Nothing was written")


@dataclass(frozen=True)
class CheckedArchive:
    """A fully checked archive, open only within the `checked` context."""

    path: Path
    contents: Contents
    archive: zipfile.ZipFile

    def read(self, place: str) -> bytes:
        """Return the contents of a file. Raises RefusedArchive if the file has changed since it was checked."""
        return b"".join(_verified(self.path, self.archive, self.contents.member(place), self.contents.files[place]))

    def unpack(self, places: list[str], root: Path) -> None:
        """Write these files of the sweep to a new folder `root`. Raises the same errors as `read`."""
        for place in places:
            target = root / place.partition("/")[2]
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("xb") as file:
                for chunk in _verified(
                    self.path, self.archive, self.contents.member(place), self.contents.files[place]
                ):
                    file.write(chunk)


@contextmanager
def checked(path: Path) -> Iterator[CheckedArchive]:
    """Check the entire archive at `path`, then open it.

    Raises RefusedArchive if it is damaged, too large or not from accelsweep, FileNotFoundError if it does not exist,
    and NewerFile if a later version wrote it.
    """
    try:
        file = open_regular(path)
    except DamagedFile as error:
        raise RefusedArchive(path, error.reason) from None
    with file:
        _check_end(path, file)
        try:
            archive = zipfile.ZipFile(file)
        except _UNREADABLE as error:
            raise RefusedArchive(path, f"it is not a complete ZIP file ({error})") from None
        with archive:
            contents = _contents(path, archive)
            _check(path, archive, contents)
            yield CheckedArchive(path, contents, archive)


def _check_end(path: Path, file: BufferedReader) -> None:
    """Check the size and the end-of-directory record, which contains the number of members."""
    size = file.seek(0, 2)
    if size > MAX_ARCHIVE_BYTES:
        raise RefusedArchive(path, f"it is larger than {gib(MAX_ARCHIVE_BYTES)}")
    if size < _END.size:
        raise RefusedArchive(path, "it is not a ZIP file, or its end is missing")
    file.seek(max(size - _END.size - _ZIP64_LOCATOR_BYTES, 0))
    tail = file.read()
    signature, _, _, _, count, listed, _, comment = _END.unpack(tail[-_END.size :])
    if signature != b"PK\x05\x06" or comment or tail[: -_END.size].startswith(b"PK\x06\x07"):
        raise RefusedArchive(path, "it is not a ZIP file from accelsweep, or its end is missing")
    if count > MAX_FILES + 1 or listed > (MAX_FILES + 1) * _MAX_DIRECTORY_BYTES:
        raise RefusedArchive(path, f"it has {count} files, but the limit is {MAX_FILES}")


def _contents(path: Path, archive: zipfile.ZipFile) -> Contents:
    """Return the archive's listing, checked against its members' names and sizes."""
    members = archive.infolist()
    for member in members:
        _check_member(path, member)
    if not members or members[0].filename != LISTING:
        raise RefusedArchive(path, f"it does not begin with {LISTING}: accelsweep did not write it")
    if sum(member.file_size for member in members) > MAX_ARCHIVE_BYTES:
        raise RefusedArchive(path, f"its files exceed {gib(MAX_ARCHIVE_BYTES)} in total")
    try:
        contents = Contents.unsealed(b"".join(_chunks(path, archive, LISTING)), path / LISTING)
    except DamagedFile as error:
        raise RefusedArchive(path, f"{LISTING}: {error.reason}") from None
    wrong = next((place for place in contents.files if not is_place(place)), None)
    if wrong is not None:
        raise RefusedArchive(path, f"it lists {wrong!r}, which is not part of a sweep")
    listed, found = [LISTING, *map(contents.member, contents.files)], [member.filename for member in members]
    if sorted(listed) != sorted(found) or len({name.casefold() for name in found}) < len(found):
        odd = next(iter(sorted(set(listed) ^ set(found))), "a file twice")
        raise RefusedArchive(path, f"it does not contain the files that {LISTING} lists: see {odd!r}")
    return contents


def _check_member(path: Path, member: zipfile.ZipInfo) -> None:
    """Reject a member that is encrypted, too large, or not a regular file."""
    kind = stat.S_IFMT(member.external_attr >> 16)
    if member.is_dir() or kind not in (0, stat.S_IFREG):
        raise RefusedArchive(path, f"{member.filename!r} is a folder, a link or a device")
    if member.flag_bits & 1 or member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise RefusedArchive(path, f"{member.filename!r} is encrypted or uses an unsupported compression method")
    if member.orig_filename != member.filename:
        raise RefusedArchive(path, f"the name {member.orig_filename!r} is not one that accelsweep writes")
    if member.file_size > MAX_FILE_BYTES:
        raise RefusedArchive(path, f"{member.filename!r} is larger than {MAX_FILE_BYTES // 2**20} MiB")


def _check(path: Path, archive: zipfile.ZipFile, contents: Contents) -> None:
    for needed in (PLAN_PLACE, NUMBERS_PLACE, PAGE_PLACE):
        if needed not in contents.files:
            raise RefusedArchive(path, f"it has no {contents.member(needed)}")
    for place, described in contents.files.items():
        member, kind = contents.member(place), document_at(place)
        chunks = _verified(path, archive, member, described)
        if kind is None:
            content = b"".join(chunks)
            why = excess(content) if place.endswith(STEPS_FILE) else None
            if why is not None:
                raise RefusedArchive(path, f"{member}: {why}")
            continue
        try:
            _check_names(kind.unsealed(b"".join(chunks), path / member), path / member, place)
        except DamagedFile as error:
            raise RefusedArchive(path, f"{member}: {error.reason}") from None


def _check_names(document: Document, path: Path, place: str) -> None:
    """Raise DamagedFile if a document is at another document's path, or refers to runs outside the folder."""
    parts = PurePosixPath(place).parts
    if isinstance(document, Record):
        check_record(document, path, parts[2])
        _check_time(document.started_at, path)
        _check_time(document.finished_at, path)
    elif isinstance(document, Block | Done | Halt):
        named = document.name if isinstance(document, Block) else document.block
        if named != parts[-1].partition(".")[0]:
            raise DamagedFile(path, f"it belongs to another block, {named!r}")
    elif isinstance(document, Manifest):
        for block in document.blocks:
            check_file_name(block.name)
            for run in block.runs:
                Run.parse(check_file_name(run))
    else:
        for file in registry.files():
            if file.model and file.check and isinstance(document, registry.load(file.model)):
                registry.load(file.check)(document, path, parts)


def _check_time(text: str, path: Path) -> None:
    try:
        has_offset = datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        has_offset = False
    if not has_offset:
        raise DamagedFile(path, f"{text!r} is not an ISO 8601 time with a UTC offset")


def _verified(path: Path, archive: zipfile.ZipFile, member: str, described: ArchivedFile) -> Iterator[bytes]:
    """Yield a member's contents in chunks; raise RefusedArchive if its size or checksum differs from the listing."""
    digest, size = hashlib.sha256(), 0
    for chunk in _chunks(path, archive, member):
        digest.update(chunk)
        size += len(chunk)
        yield chunk
    if size != described.size or digest.hexdigest() != described.sha256:
        raise RefusedArchive(path, f"{member} does not match its checksum")


def _chunks(path: Path, archive: zipfile.ZipFile, member: str) -> Iterator[bytes]:
    try:
        with archive.open(member) as file:
            while chunk := file.read(CHUNK_BYTES):
                yield chunk
    except _UNREADABLE as error:
        raise RefusedArchive(path, f"{member} cannot be unpacked ({error})") from None


def unpacked(archive: CheckedArchive, home: Path, name: str) -> SweepFolder:
    """Write a checked archive's sweep under `home`, without findings and report; return its folder."""
    folder = SweepFolder(home, name)
    kept = [place for place in archive.contents.files if not place.startswith((NUMBERS_PLACE, "report/"))]
    archive.unpack(written_in_order(kept), folder.root)
    return folder


@contextmanager
def opened(path: Path) -> Iterator[SweepFolder]:
    """Check an archive, unpack it into a temporary folder, and yield the folder of its sweep.

    Raises the same errors as `checked`.
    """
    with temporary_folder("opened") as home:
        with checked(path) as archive:
            folder = unpacked(archive, home, archive.contents.name)
        yield folder
