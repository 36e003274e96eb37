"""Files that a kill left behind: swept up once no process can still be writing them, or needs them.

Every file is written under a temporary name first and then renamed (`json_documents`, `worker.main`,
`report.report_files`). A SIGKILL in between leaves the temporary file behind. It is never read, and it is removed here
if its name, its owner and its kind show that it is ours and the clock of its own file system says that it is old.

A sweep's temporary folder has a file beside it that names the sweep, whose holds end with their processes.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from accelsweep.errors import AccelsweepError, DamagedFile, InputError
from accelsweep.files import set_aside_non_file
from accelsweep.plain_json import sha256_text
from accelsweep.records.file_lock import living_hold, now_on
from accelsweep.records.layout import ATTEMPTS_FOLDER, REPORTS_FOLDER, RUNS_FOLDER, SWEEPS_FOLDER, SweepFolder
from accelsweep.temporary_folders import remove_abandoned_folders

STALE_SECONDS = 3600.0
"""No write takes so long; a younger file may still be written."""

NEW_DATABASE = "new.db"
"""The name of a database until it is whole."""

SHORT_PLACES = ("/tmp", "/var/tmp")  # noqa: S108 - a folder of ours is made there, which nobody else may write to
"""Where the folder for a sweep's temporary files lies if TMPDIR is too long for the sockets in it."""

_RANDOM = r"[a-z0-9_]{8}"

_FILE = re.compile(rf"\.[\w.-]+\.(json\.{_RANDOM}(\.part\.{_RANDOM})?|parquet(\.{_RANDOM})?)\.part", re.ASCII)
"""Twice over where a hold was being written before it is linked into its place."""


def sweep_up(folder: SweepFolder) -> list[Path]:
    """Remove the stale half-written files of a sweep, of its report and of imports beside it; return their paths."""
    found = [*_files(folder), *_reports(folder), *_imports(folder.home)]
    if not found or (now := now_on(folder.root)) is None:
        return []
    stale = [path for path, changed in found if abs(now - changed) > STALE_SECONDS]
    for path in stale:
        with contextlib.suppress(OSError):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    return [path for path in stale if not path.exists()]


def sweep_up_databases(path: Path) -> None:
    """Remove the stale folders in which the database at `path` was being made by a process that was killed."""
    making = re.compile(rf"\.{re.escape(path.name)}\.{_RANDOM}")
    folders = [folder for folder in path.parent.glob(f".{path.name}.*") if making.fullmatch(folder.name)]
    found = [one for folder in folders for one in _ours(folder, stat.S_ISDIR)]
    if found and (now := now_on(path.parent)) is not None:
        for folder, changed in found:
            inside = [one.name for one in folder.iterdir()]
            if abs(now - changed) > STALE_SECONDS and all(name.startswith(NEW_DATABASE) for name in inside):
                shutil.rmtree(folder, ignore_errors=True)


def sweep_folder_name(folder: SweepFolder) -> str:
    """Return the name of the folder for a sweep's temporary files."""
    return f"accelsweep-{sha256_text(str(folder.root.resolve()))[:12]}"


def own(folder: SweepFolder, place: Path) -> None:
    """Write beside `place`, the folder for a sweep's temporary files, whose it is, before it is made."""
    with open(_owner(place), "w", encoding="utf-8", opener=_opened_by_us) as owner:
        owner.write(str(folder.root.resolve()))


def remove_sweep_folder(folder: SweepFolder, place: Path) -> None:
    """Remove `place`, the folder for a sweep's temporary files, unless a supervisor still works there."""
    if not any(map(living_hold, folder.holds())):
        _remove(place)


def sweep_up_temporary() -> None:
    """Remove this user's temporary folders that no living process owns, whatever sweep they belonged to."""
    remove_abandoned_folders()
    base = tempfile.gettempdir()
    for owner in [one for place in {base, *SHORT_PLACES} for one in Path(place).glob("accelsweep-*.owner")]:
        with contextlib.suppress(OSError, ValueError, AccelsweepError):
            if owner.lstat().st_uid == os.getuid() and stat.S_ISREG(owner.lstat().st_mode):
                _remove_ownerless(SweepFolder.of(Path(owner.read_text("utf-8"))), owner)


def _remove_ownerless(folder: SweepFolder, owner: Path) -> None:
    place = owner.with_suffix("")
    if place.name == sweep_folder_name(folder) and not any(
        map(living_hold, (folder.of_head("claim"), *folder.holds()))
    ):
        _remove(place)


def _remove(place: Path) -> None:
    shutil.rmtree(place, ignore_errors=True)  # of a link it removes nothing
    if not os.path.lexists(place):
        _owner(place).unlink(missing_ok=True)


def _owner(place: Path) -> Path:
    return place.with_name(f"{place.name}.owner")


def _opened_by_us(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)


def _files(folder: SweepFolder) -> Iterator[tuple[Path, float]]:
    for place, _, names in os.walk(folder.root):
        for name in names:
            if _FILE.fullmatch(name):
                yield from _ours(Path(place, name), stat.S_ISREG)


def _reports(folder: SweepFolder) -> Iterator[tuple[Path, float]]:
    building = re.compile(rf"\.{re.escape(folder.name)}\.{_RANDOM}\.part")
    for path in folder.report.parent.glob(f".{folder.name}.*.part"):
        if building.fullmatch(path.name):
            yield from _ours(path, stat.S_ISDIR)


def _imports(home: Path) -> Iterator[tuple[Path, float]]:
    unpacking = re.compile(rf"\.import\.{_RANDOM}\.part")
    for path in home.glob(".import.*.part"):
        if unpacking.fullmatch(path.name):
            yield from _ours(path, stat.S_ISDIR)


def _ours(path: Path, is_kind: Callable[[int], bool]) -> Iterator[tuple[Path, float]]:
    with contextlib.suppress(OSError):
        found = path.lstat()
        if is_kind(found.st_mode) and found.st_uid == os.getuid():
            yield path, found.st_mtime


# Strangers in the place of a sweep's files and folders.

_SUFFIXES = frozenset({".json", ".parquet", ".log", ".done"})
"""Those of the files that we write; no folder of ours has one."""

DRAWN_SUFFIXES = frozenset({".html", ".svg", ".csv", ".md"})
"""Those of the report's files."""

_LONGEST_PATH = 512

_LEFT_IN_NOTES = re.compile(r"^@|\.damaged-")
"""Snakemake's own folders, for outputs with long names, and what was set aside before."""


def refuse_obstacles(folder: SweepFolder) -> None:
    """Raise InputError where a folder of the sweep cannot be made, because a file or a link to nothing is there.

    So it does where the working folder's path is too long for SQLite, which keeps MLflow's store.
    """
    needed = [
        folder.home / SWEEPS_FOLDER,
        folder.root,
        *(folder.root / name for name in ("blocks", RUNS_FOLDER, "logs")),
    ]
    for path in [*needed, folder.home / REPORTS_FOLDER, folder.report, folder.home / ".snakemake"]:
        if os.path.lexists(path) and not path.is_dir():
            there = f"a link to {path.readlink()}, where no folder is" if path.is_symlink() else "a file"
            away = shlex.join(["mv", str(path), f"{path}.old"])
            raise InputError(f"{path} is {there}, and a folder is needed there. Move it away: {away}")
    if (length := len(os.fsencode(folder.home / "mlflow.db-journal"))) > _LONGEST_PATH:
        raise InputError(
            f"the path of the working folder is too long: MLflow's store would have one of {length} bytes, and SQLite "
            f"takes {_LONGEST_PATH}. Move the project to a place with a shorter path: {str(folder.home)[:60]}..."
        )


def set_strangers_aside(folder: SweepFolder) -> list[DamagedFile]:
    """Set aside what stands where files of the sweep belong; return what it was, with its new name."""
    places = [*_places(folder), folder.stop, *_drawn(folder), *_notes(folder)]
    return [
        DamagedFile(path, f"it is no file: something else stood there; set aside as {aside.name}")
        for path in places
        if (aside := set_aside_non_file(path)) is not None
    ]


def _places(folder: SweepFolder) -> Iterator[Path]:
    for place, folders, files in os.walk(folder.root):
        names = [name for name in (*folders, *files) if Path(name).suffix in _SUFFIXES]
        folders[:] = [
            name for name in folders if name not in names and name != ATTEMPTS_FOLDER
        ]  # there runs may leave what they like
        yield from (Path(place, name) for name in names)


def _drawn(folder: SweepFolder) -> Iterator[Path]:
    yield from (path for path in folder.report.glob("*") if path.suffix in DRAWN_SUFFIXES)


def _notes(folder: SweepFolder) -> Iterator[Path]:
    """Yield Snakemake's notes on what it made: it waits for ever at a FIFO, and fails at a folder in their place."""
    for place in ("metadata", "incomplete"):
        noted = (folder.home / ".snakemake" / place).glob("*")
        yield from (path for path in noted if not _LEFT_IN_NOTES.search(path.name))
