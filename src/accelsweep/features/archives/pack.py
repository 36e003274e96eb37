"""Packs a sweep reproducibly into an archive: plan, records, findings and report, with limits and checksums.

Logs, earlier attempts and plan revisions, and machine-local files are left out. URLs in a block's config are masked if
they may contain secrets. A block's lock is replaced with the reason why its runs have no record, because the
process that held it cannot be queried on another machine.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import re
import zipfile
from collections.abc import Iterator, Mapping
from importlib import metadata
from io import BytesIO
from pathlib import Path, PurePosixPath
from typing import IO, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import Field, field_validator

from accelsweep import registry
from accelsweep.errors import DamagedFile, InputError
from accelsweep.files import create_exclusively, open_temporary, sha256_file
from accelsweep.json_documents import Document, Frozen
from accelsweep.records.early_decisions import EarlyDecisions
from accelsweep.records.findings import Findings
from accelsweep.records.layout import (
    EARLY_DECISIONS_FILE,
    FINDINGS_FILE,
    MANIFEST_FILE,
    PAGE,
    RECORD_FILE,
    RUNS_FOLDER,
    SERIES_FILE,
    STEPS_FILE,
    SweepFolder,
    check_sweep_name,
)
from accelsweep.records.not_run_reasons import Halt, StopReason, not_run_reason
from accelsweep.records.plan import Block, Done, Manifest
from accelsweep.records.run_record import Record
from accelsweep.redaction import without_secrets
from accelsweep.significant_digits import gib

LISTING = "archive.json"
"""The first member, which lists the others."""

CHUNK_BYTES = 2**20

MAX_FILES = 60_000
"""Maximum number of files in an archive. Without ZIP64 the limit is 65535."""

MAX_ARCHIVE_BYTES = 2 * 2**30
"""Maximum size of an archive, both packed and unpacked."""

MAX_FILE_BYTES = 256 * 2**20
"""Maximum size of a single file, limited because entire documents are read into memory."""

PLAN_PLACE, NUMBERS_PLACE, PAGE_PLACE = f"sweep/{MANIFEST_FILE}", f"sweep/{FINDINGS_FILE}", f"report/{PAGE}"
"""Paths that every archive contains."""

_PART = r"[A-Za-z0-9][A-Za-z0-9._+-]{0,119}"

_PLACES: dict[str, type[Document] | None] = {
    re.escape(PLAN_PLACE): Manifest,
    re.escape(NUMBERS_PLACE): Findings,
    re.escape(f"sweep/{EARLY_DECISIONS_FILE}"): EarlyDecisions,
    rf"sweep/blocks/({_PART})\.done\.json": Done,
    rf"sweep/blocks/({_PART})\.halt\.json": Halt,
    rf"sweep/blocks/({_PART})\.json": Block,
    rf"sweep/{RUNS_FOLDER}/({_PART})/{re.escape(RECORD_FILE)}": Record,
    rf"sweep/{RUNS_FOLDER}/({_PART})/{re.escape(RECORD_FILE)}\.damaged-[0-9]{{1,5}}": None,
    rf"sweep/{RUNS_FOLDER}/({_PART})/(?:{re.escape(STEPS_FILE)}|{re.escape(SERIES_FILE)})": None,
    r"report/[a-z][a-z0-9_-]{0,79}\.(?:csv|html|md|svg)": None,
    **{
        rf"sweep/{re.escape(file.pattern)}".replace(r"\*", f"({_PART})"): registry.load(file.model)
        if file.model
        else None
        for file in registry.files()
    },
}
"""Pattern of an allowed path -> the type of the document there, if any. Nothing else is packed or accepted."""


class ArchivedFile(Frozen):
    """A file's size in bytes and the SHA-256 of its contents."""

    size: int = Field(ge=0, le=MAX_FILE_BYTES)
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")


class Contents(Document):
    """The listing of an archive.

    `files` contains the paths `sweep/...` and `report/...`. `versions` contains the versions of accelsweep, Python and
    the packages that determine the bytes of findings and report.
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
        """Return the member name for a path: `sweeps/NAME/...` or `reports/NAME/...`."""
        top, _, rest = place.partition("/")
        return f"{top}s/{self.name}/{rest}"


def is_place(place: str) -> bool:
    """Return whether an archive may contain a file at this path."""
    return ".." not in place and any(re.fullmatch(pattern, place, re.ASCII) for pattern in _PLACES)


def document_at(place: str) -> type[Document] | None:
    """Return the type of the document at this path, or None for other files."""
    return next(kind for pattern, kind in _PLACES.items() if re.fullmatch(pattern, place, re.ASCII))


def written_in_order(places: list[str]) -> list[str]:
    """Return the paths in the order in which a sweep creates them, because Snakemake compares modification times."""
    return sorted(places, key=lambda place: (_made_from_others(place), place))


def _made_from_others(place: str) -> int:
    if place.startswith("report/"):
        return 3
    if place == NUMBERS_PLACE:
        return 2
    return 1 if PurePosixPath(place).name.endswith(".done.json") else 0


_SAME_TIME = (1980, 1, 1, 0, 0, 0)

_UNIX, _PLAIN_FILE = 3, 0o100644 << 16


def pack(folder: SweepFolder, report: list[str], versions: Mapping[str, str], target: Path) -> Contents:
    """Write the archive of a finished sweep to `target` and return its listing.

    `report` lists the names of the report's files. Raises InputError if the sweep is too large or `target` exists, and
    DamagedFile if the plan is damaged.
    """
    sources = dict(_sources(folder, report))
    listed = {place: _described(source) for place, source in sources.items()}
    _refuse_larger(folder, listed)
    contents = Contents(name=folder.name, versions=dict(versions), files=listed)
    descriptor, made = open_temporary(target)
    try:
        with os.fdopen(descriptor, "wb") as file:
            _write(file, contents, sources)
        create_exclusively(made, target)  # unlike a rename, it never replaces a file
    except FileExistsError:
        raise InputError(f"{target} already exists: remove it, or name another file with --to") from None
    finally:
        made.unlink(missing_ok=True)
    return contents


def _sources(folder: SweepFolder, report: list[str]) -> Iterator[tuple[str, Path | bytes]]:
    yield PLAN_PLACE, folder.manifest
    yield NUMBERS_PLACE, folder.findings
    if folder.early_decisions.is_file():
        yield f"sweep/{EARLY_DECISIONS_FILE}", folder.early_decisions
    yield from _block_sources(folder)
    for run in sorted(path.parent for path in folder.root.glob(f"{RUNS_FOLDER}/*/{RECORD_FILE}*")):
        for path in (*sorted(run.glob(f"{RECORD_FILE}*")), run / STEPS_FILE, run / SERIES_FILE):
            if path.is_file() and is_place(place := f"sweep/{RUNS_FOLDER}/{run.name}/{path.name}"):
                yield place, path
    for path in folder.feature_files():
        if is_place(place := f"sweep/{path.relative_to(folder.root)}"):
            yield place, path
    for name in report:
        yield f"report/{name}", folder.report / name


def _block_sources(folder: SweepFolder) -> Iterator[tuple[str, Path | bytes]]:
    for block in Manifest.read(folder.manifest).blocks:
        with contextlib.suppress(FileNotFoundError, DamagedFile):  # the analysis skips such a block too
            yield f"sweep/blocks/{block.name}.json", _masked(folder.block(block.name))
        if folder.done(block.name).is_file():
            yield f"sweep/blocks/{block.name}.done.json", folder.done(block.name)
        absent = not all(folder.record(run).is_file() for run in block.runs)
        if absent and (why := not_run_reason(folder, block.name)) != StopReason.never_began:
            yield f"sweep/blocks/{block.name}.halt.json", Halt(block=block.name, reason=why).sealed()


def _masked(path: Path) -> Path | bytes:
    """Return a block's file, or its contents with masked URLs if its configs contain secrets."""
    block = Block.read(path)
    whole = block.model_dump(mode="json")
    kept = without_secrets(whole)
    return path if kept == whole else Block.model_validate(kept).sealed()


def _described(source: Path | bytes) -> ArchivedFile:
    if isinstance(source, bytes):
        return ArchivedFile(size=len(source), sha256=hashlib.sha256(source).hexdigest())
    size = source.stat().st_size
    if size > MAX_FILE_BYTES:
        raise InputError(f"{source} is larger than {MAX_FILE_BYTES // 2**20} MiB, the limit for a file in an archive")
    return ArchivedFile(size=size, sha256=sha256_file(source))


def _refuse_larger(folder: SweepFolder, listed: Mapping[str, ArchivedFile]) -> None:
    size = sum(file.size for file in listed.values())
    if len(listed) > MAX_FILES or size > MAX_ARCHIVE_BYTES:
        raise InputError(
            f"sweep {folder.name!r} has {len(listed)} files totalling {gib(size, 1)}; an archive is limited "
            f"to {MAX_FILES} files and {gib(MAX_ARCHIVE_BYTES)}: copy the folder {folder.root} instead"
        )


def _write(file: IO[bytes], contents: Contents, sources: Mapping[str, Path | bytes]) -> None:
    with zipfile.ZipFile(file, "w", allowZip64=False) as archive:
        archive.writestr(_member(LISTING), contents.sealed())
        for place in written_in_order(list(sources)):
            with archive.open(_member(contents.member(place)), "w") as member:
                for chunk in _chunks(sources[place]):
                    member.write(chunk)


def _member(name: str) -> zipfile.ZipInfo:
    """Return a ZIP member whose metadata depends only on its name."""
    member = zipfile.ZipInfo(name, _SAME_TIME)
    member.compress_type, member.create_system, member.external_attr = zipfile.ZIP_DEFLATED, _UNIX, _PLAIN_FILE
    return member


def _chunks(source: Path | bytes) -> Iterator[bytes]:
    if isinstance(source, bytes):
        yield source
        return
    with source.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            yield chunk


DRAWERS = (
    "altair",
    "jinja2",
    "markupsafe",
    "numpy",
    "pandas",
    "pyarrow",
    "pydantic",
    "scipy",
    "vl-convert-python",
)


def drawn_with() -> dict[str, str]:
    """Return what, besides the records, determines the bytes of findings and report: versions, system and machine."""
    versions = {name: metadata.version(name) for name in DRAWERS}
    return {"python": platform.python_version(), "system": platform.system(), "machine": platform.machine(), **versions}


MAX_STEP_ROWS = 5_000_000
"""Maximum number of rows (steps times ranks) in a run's table of steps."""

_PHASES = frozenset({"warmup", "window"})


def excess(content: bytes) -> str | None:
    """Return why a parquet table is not a valid table of steps, or None.

    A file that is not parquet is accepted, because it is skipped when steps are read.
    """
    try:
        found = pq.ParquetFile(BytesIO(content), read_dictionary=["phase"])
        if found.metadata.num_rows > MAX_STEP_ROWS:
            return f"it has {found.metadata.num_rows} rows, but the limit is {MAX_STEP_ROWS}"
        if "phase" not in found.schema_arrow.names:
            return None
        phases = {phase for chunk in found.read(["phase"]).column("phase").chunks for phase in _values(chunk)}
    except (pa.ArrowException, OSError):
        return None
    return None if phases <= _PHASES else "it contains phases that no run has"


def _values(chunk: pa.Array) -> list[object]:
    """Return the distinct values of a dictionary-encoded chunk."""
    values: list[object] = chunk.dictionary.to_pylist() if isinstance(chunk, pa.DictionaryArray) else [None]
    return values
