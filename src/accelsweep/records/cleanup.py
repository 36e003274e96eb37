"""Removes files left behind by killed processes, and moves aside anything that occupies the path of a sweep's file.

Every file is written under a temporary name and then renamed (`files`, `worker.main`, `report.report_files`); a SIGKILL
in between leaves the temporary file behind. Such a file is never read. It is removed if its name, owner and type
identify it as ours, and if it is more than `STALE_SECONDS` old by the file system's clock.

The owner file next to a temporary folder records which sweep the folder belongs to. The folder is removed once none of
that sweep's locks is live.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from accelsweep.errors import AccelsweepError, DamagedFile, InputError
from accelsweep.files import set_aside_non_file
from accelsweep.plain_json import sha256_text
from accelsweep.records.file_lock import disk_time, live_lock
from accelsweep.records.layout import ATTEMPTS_FOLDER, REPORTS_FOLDER, RUNS_FOLDER, SWEEPS_FOLDER, SweepFolder
from accelsweep.temporary_folders import remove_abandoned_folders

STALE_SECONDS = 3600.0
"""Older temporary files are stale, because no write takes this long; newer ones may still be in use."""

NEW_DATABASE = "new.db"
"""The name of a database file while it is being created."""

SHORT_PLACES = ("/tmp", "/var/tmp")  # noqa: S108 - we create a folder there that nobody else may write to
"""Fallback locations for a sweep's temporary folder if the TMPDIR path is too long for Unix sockets."""

_RANDOM = r"[a-z0-9_]{8}"

_TEMPORARY_FILE = re.compile(rf"\.[\w.-]+\.(json\.{_RANDOM}(\.part\.{_RANDOM})?|parquet(\.{_RANDOM})?)\.part", re.ASCII)
"""A lock file's temporary name has two random parts, because the file to be linked is itself written atomically."""

_Candidate = tuple[Path, float]
"""One of our files or folders, with its modification time."""


def remove_stale_files(folder: SweepFolder) -> list[Path]:
    """Remove stale temporary files of a sweep, its report, and imports into its working folder; return their paths."""
    names = ((Path(place, name), name) for place, _, files in os.walk(folder.root) for name in files)
    stale = _stale(
        [
            *_owned((path for path, name in names if _TEMPORARY_FILE.fullmatch(name)), stat.S_ISREG),
            *_owned(_folders(folder.report.parent, folder.name), stat.S_ISDIR),
            *_owned(_folders(folder.home, "import"), stat.S_ISDIR),
        ],
        folder.root,
    )
    for path in stale:
        with contextlib.suppress(OSError):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    return [path for path in stale if not path.exists()]


def remove_stale_databases(path: Path) -> None:
    """Remove stale folders in which a killed process was creating the database at `path`."""
    for folder in _stale([*_owned(_folders(path.parent, path.name, ending=""), stat.S_ISDIR)], path.parent):
        if all(file.name.startswith(NEW_DATABASE) for file in folder.iterdir()):
            shutil.rmtree(folder, ignore_errors=True)


def _folders(place: Path, name: str, ending: str = r"\.part") -> Iterator[Path]:
    """Yield the temporary folders `.NAME.RANDOM` in `place`."""
    pattern = re.compile(rf"\.{re.escape(name)}\.{_RANDOM}{ending}")
    return (path for path in place.glob(f".{name}.*") if pattern.fullmatch(path.name))


def _owned(paths: Iterable[Path], is_type: Callable[[int], bool]) -> Iterator[_Candidate]:
    for path in paths:
        with contextlib.suppress(OSError):
            status = path.lstat()
            if is_type(status.st_mode) and status.st_uid == os.getuid():
                yield path, status.st_mtime


def _stale(candidates: list[_Candidate], place: Path) -> list[Path]:
    if not candidates or (now := disk_time(place)) is None:
        return []
    return [path for path, modified in candidates if abs(now - modified) > STALE_SECONDS]


# The temporary folder of a sweep, and the owner file next to it.


def temporary_folder_name(folder: SweepFolder) -> str:
    """Return the name of a sweep's temporary folder."""
    return f"accelsweep-{sha256_text(str(folder.root.resolve()))[:12]}"


def write_owner_file(folder: SweepFolder, place: Path) -> None:
    """Write the owner file of `place`, the sweep's temporary folder; call this before creating the folder."""
    with open(_owner_file(place), "w", encoding="utf-8", opener=_open_without_links) as file:
        file.write(str(folder.root.resolve()))


def remove_temporary_folder(folder: SweepFolder, place: Path) -> None:
    """Remove `place`, the sweep's temporary folder, unless an executor still uses it."""
    if not any(map(live_lock, folder.locks())):
        _remove(place)


def remove_ownerless_folders() -> None:
    """Remove this user's temporary folders, whatever sweep they belong to, unless a live process owns them."""
    remove_abandoned_folders()
    base = tempfile.gettempdir()
    for file in [file for place in {base, *SHORT_PLACES} for file in Path(place).glob("accelsweep-*.owner")]:
        with contextlib.suppress(OSError, ValueError, AccelsweepError):
            if file.lstat().st_uid != os.getuid() or not stat.S_ISREG(file.lstat().st_mode):
                continue
            folder, place = SweepFolder.of(Path(file.read_text("utf-8"))), file.with_suffix("")
            locks = (folder.driver_file("lock"), *folder.locks())
            if place.name == temporary_folder_name(folder) and not any(map(live_lock, locks)):
                _remove(place)


def _remove(place: Path) -> None:
    shutil.rmtree(place, ignore_errors=True)  # does not follow links
    if not os.path.lexists(place):
        _owner_file(place).unlink(missing_ok=True)


def _owner_file(place: Path) -> Path:
    return place.with_name(f"{place.name}.owner")


def _open_without_links(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)


# Unexpected files and folders at the paths of a sweep's files.

_SUFFIXES = frozenset({".json", ".parquet", ".log", ".done"})
"""Suffixes of the files that we write; none of our folders uses them."""

REPORT_SUFFIXES = frozenset({".html", ".svg", ".csv", ".md"})
"""Suffixes of the report's files."""

_MAX_SQLITE_PATH_BYTES = 512

_KEPT_METADATA = re.compile(r"^@|\.damaged-")
"""Metadata entries to leave alone: Snakemake's own folders for outputs with long names, and files already set aside."""


def refuse_obstacles(folder: SweepFolder) -> None:
    """Raise InputError if a file or a dangling link occupies the path of a folder that the sweep needs.

    Also raised if the path of the working folder is too long for SQLite, which stores MLflow's data.
    """
    home, root = folder.home, folder.root
    needed = [home / SWEEPS_FOLDER, root, *(root / name for name in ("blocks", RUNS_FOLDER, "logs"))]
    for path in [*needed, home / REPORTS_FOLDER, folder.report, home / ".snakemake"]:
        if os.path.lexists(path) and not path.is_dir():
            what = f"a link to {path.readlink()}, which is not a folder" if path.is_symlink() else "a file"
            command = shlex.join(["mv", str(path), f"{path}.old"])
            raise InputError(f"{path} is {what}, and a folder is needed there. Move it away: {command}")
    if (length := len(os.fsencode(home / "mlflow.db-journal"))) > _MAX_SQLITE_PATH_BYTES:
        raise InputError(
            f"the path of the working folder is too long: MLflow's store would have a path of {length} bytes, and "
            f"SQLite allows {_MAX_SQLITE_PATH_BYTES}. Move the project to a shorter path: {str(home)[:60]}..."
        )


def set_unexpected_files_aside(folder: SweepFolder) -> list[DamagedFile]:
    """Set aside folders, pipes and devices at the paths of the sweep's files; return them with their new names."""
    report = (path for path in folder.report.glob("*") if path.suffix in REPORT_SUFFIXES)
    return [
        DamagedFile(path, f"it is not a file: something else was in its place; set aside as {aside.name}")
        for path in [*_sweep_files(folder), folder.stop, *report, *_snakemake_metadata(folder)]
        if (aside := set_aside_non_file(path)) is not None
    ]


def _sweep_files(folder: SweepFolder) -> Iterator[Path]:
    for place, folders, files in os.walk(folder.root):
        names = [name for name in (*folders, *files) if Path(name).suffix in _SUFFIXES]
        # Runs may write anything under `attempts`.
        folders[:] = [name for name in folders if name not in names and name != ATTEMPTS_FOLDER]
        yield from (Path(place, name) for name in names)


def _snakemake_metadata(folder: SweepFolder) -> Iterator[Path]:
    """Yield the paths of Snakemake's metadata files: it would hang if one were a FIFO and fail if one were a folder."""
    for place in ("metadata", "incomplete"):
        notes = (folder.home / ".snakemake" / place).glob("*")
        yield from (path for path in notes if not _KEPT_METADATA.search(path.name))
