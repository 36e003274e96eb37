"""Pack a sweep: what its findings and its report are made from, and both of them. The same sweep gives the same bytes.

Left out are logs, earlier attempts, earlier revisions of the plan, and all that belongs to one machine. An address in a
block's config, which may hold a secret, is masked as everywhere else. Who held a block becomes the reason why its runs
have no record: a process of another machine cannot be asked.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO

from accelsweep.errors import DamagedFile, InputError
from accelsweep.files import create_exclusively, open_temporary, sha256_file
from accelsweep.records.layout import ACCOUNTING_FILE, RECORD_FILE, RUNS_FOLDER, STEPS_FILE, SweepFolder
from accelsweep.records.plan import Block, Manifest
from accelsweep.records.stop_reasons import Halt, Why, why_not_run
from accelsweep.redaction import without_secrets
from accelsweep.significant_digits import gib
from accelsweep.state.archive.contents import (
    CHUNK_BYTES,
    LISTING,
    MOST_ARCHIVE_BYTES,
    MOST_FILE_BYTES,
    MOST_FILES,
    NUMBERS_PLACE,
    PLAN_PLACE,
    ArchivedFile,
    Contents,
    is_place,
    written_in_order,
)
from accelsweep.state.profiles import profile_files

_SAME_TIME = (1980, 1, 1, 0, 0, 0)
_UNIX, _PLAIN_FILE = 3, 0o100644 << 16


def pack(folder: SweepFolder, report: list[str], versions: Mapping[str, str], target: Path) -> Contents:
    """Write the archive of a finished sweep to `target` and return the list of its files.

    `report` are the names of the report's files. Raises InputError if the sweep is larger than an archive may be or
    if there is something at `target`; DamagedFile if the plan is damaged.
    """
    sources = dict(_sources(folder, report))
    listed = {place: _described(source) for place, source in sources.items()}
    _refuse_larger(folder, listed)
    contents = Contents(name=folder.name, versions=dict(versions), files=listed)
    descriptor, made = open_temporary(target)
    try:
        with os.fdopen(descriptor, "wb") as file:
            _write(file, contents, sources)
        create_exclusively(made, target)  # unlike a renaming, it never replaces what came to stand there meanwhile
    except FileExistsError:
        raise InputError(f"{target} is there already: remove it, or name another file with --to") from None
    finally:
        made.unlink(missing_ok=True)
    return contents


def _sources(folder: SweepFolder, report: list[str]) -> Iterator[tuple[str, Path | bytes]]:
    yield PLAN_PLACE, folder.manifest
    yield NUMBERS_PLACE, folder.findings
    yield from _block_sources(folder)
    for run in sorted(path.parent for path in folder.root.glob(f"{RUNS_FOLDER}/*/{RECORD_FILE}*")):
        for path in (*sorted(run.glob(f"{RECORD_FILE}*")), run / STEPS_FILE):
            if path.is_file() and is_place(place := f"sweep/{RUNS_FOLDER}/{run.name}/{path.name}"):
                yield place, path
    if folder.accounting.is_file():
        yield f"sweep/{ACCOUNTING_FILE}", folder.accounting
    for path in profile_files(folder):
        if is_place(place := f"sweep/profiles/{path.parent.name}/{path.name}"):
            yield place, path
    for name in report:
        yield f"report/{name}", folder.report / name


def _block_sources(folder: SweepFolder) -> Iterator[tuple[str, Path | bytes]]:
    for block in Manifest.read(folder.manifest).blocks:
        with contextlib.suppress(FileNotFoundError, DamagedFile):  # the analysis passes over it, too
            yield f"sweep/blocks/{block.name}.json", _masked(folder.block(block.name))
        if folder.done(block.name).is_file():
            yield f"sweep/blocks/{block.name}.done.json", folder.done(block.name)
        absent = not all(folder.record(run).is_file() for run in block.runs)
        if absent and (why := why_not_run(folder, block.name)) != Why.never_began:
            yield f"sweep/blocks/{block.name}.halt.json", Halt(block=block.name, why=why).sealed()


def _masked(path: Path) -> Path | bytes:
    """Return a block's file as it is, or its contents with masked addresses if its configs hold secrets."""
    block = Block.read(path)
    whole = block.model_dump(mode="json")
    kept = without_secrets(whole)
    return path if kept == whole else Block.model_validate(kept).sealed()


def _described(source: Path | bytes) -> ArchivedFile:
    if isinstance(source, bytes):
        return ArchivedFile(size=len(source), sha256=hashlib.sha256(source).hexdigest())
    size = source.stat().st_size
    if size > MOST_FILE_BYTES:
        raise InputError(f"{source} is larger than {MOST_FILE_BYTES // 2**20} MiB, the most that an archive takes")
    return ArchivedFile(size=size, sha256=sha256_file(source))


def _refuse_larger(folder: SweepFolder, listed: Mapping[str, ArchivedFile]) -> None:
    size = sum(file.size for file in listed.values())
    if len(listed) > MOST_FILES or size > MOST_ARCHIVE_BYTES:
        raise InputError(
            f"sweep {folder.name!r} has {len(listed)} files with {gib(size, 1)}; an archive takes "
            f"{MOST_FILES} with {gib(MOST_ARCHIVE_BYTES)}: copy the folder {folder.root} instead"
        )


def _write(file: IO[bytes], contents: Contents, sources: Mapping[str, Path | bytes]) -> None:
    with zipfile.ZipFile(file, "w", allowZip64=False) as archive:
        archive.writestr(_member(LISTING), contents.sealed())
        for place in written_in_order(list(sources)):
            with archive.open(_member(contents.member(place)), "w") as member:
                for chunk in _chunks(sources[place]):
                    member.write(chunk)


def _member(name: str) -> zipfile.ZipInfo:
    """Return a member whose description depends on its name alone."""
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
