"""Safe reads, atomic writes, exclusive creation and locks for files shared by processes that may be killed.

Only regular files are read: a FIFO or a device at the path would block. Files are written under a temporary name,
synced and renamed. This module uses only the standard library, because runs import it in other people's environments.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import secrets
import stat
import time
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path
from typing import IO, Any

from accelsweep.errors import AccelsweepError, DamagedFile
from accelsweep.redaction import masked

# Reading, setting aside and removing files.

MAX_BYTES = 256 * 2**20
"""The default size limit: larger files are not read."""


def open_regular(path: Path) -> BufferedReader:
    """Open the regular file at `path`, following links, for reading.

    Raises DamagedFile, without blocking, if `path` is a folder, FIFO or device, or a parent is not a folder.
    Raises FileNotFoundError if `path` does not exist.
    """
    try:
        if is_non_file(path):  # check first: opening a FIFO would wait for a writer
            raise DamagedFile(path, "not a regular file: something else is in its place")
        return path.open("rb")
    except NotADirectoryError:
        above = next(parent for parent in path.parents if parent.exists())
        raise DamagedFile(above, "not a folder: something else is in its place") from None


def read_regular(path: Path, max_bytes: int = MAX_BYTES) -> bytes:
    """Return a regular file's contents. Raises like `open_regular`, and DamagedFile if it exceeds `max_bytes`."""
    with open_regular(path) as file:
        if os.fstat(file.fileno()).st_size > max_bytes:  # `read` with a limit would first allocate that much
            raise DamagedFile(path, f"larger than {max_bytes // 2**20} MiB")
        return file.read()


def sha256_file(path: Path) -> str:
    """Return the SHA-256 of a file's bytes as 64 hexadecimal digits. Raises like `open_regular`."""
    digest = hashlib.sha256()
    with open_regular(path) as file:
        while chunk := file.read(2**20):
            digest.update(chunk)
    return digest.hexdigest()


def tail_lines(log: Path | IO[bytes], count: int | None = None, max_bytes: int = 16_384) -> list[str]:
    """Return the last `count` lines (None: all) within the last `max_bytes` of a log, with secrets masked.

    Returns an empty list if the log cannot be read. The first line may be incomplete; bytes that are not valid UTF-8
    are replaced.
    """
    try:
        text = tail_bytes(log, max_bytes)
    except (OSError, DamagedFile):
        return []
    lines = masked(text.decode("utf-8", "replace")).splitlines()
    return lines if count is None else lines[-count:]


def tail_bytes(log: Path | IO[bytes], max_bytes: int) -> bytes:
    """Return the last `max_bytes` of a log. Raises OSError or DamagedFile if it cannot be read."""
    if isinstance(log, Path):
        with open_regular(log) as file:
            return tail_bytes(file, max_bytes)
    log.seek(max(0, log.seek(0, os.SEEK_END) - max_bytes))
    return log.read()


def is_non_file(path: Path) -> bool:
    """Return whether `path` is a folder, device, pipe or socket instead of a file."""
    try:
        return not stat.S_ISREG(path.stat().st_mode)
    except FileNotFoundError:
        return False


def set_aside(path: Path) -> Path:
    """Rename a damaged file or folder to `NAME.damaged-K`, so that it is neither used nor overwritten."""
    for number in range(1, 10_000):
        target = path.with_name(f"{path.name}.damaged-{number}")
        if not target.exists():
            path.rename(target)
            return target
    raise DamagedFile(path, "10000 damaged copies of it already exist; remove them first")


def set_aside_non_file(path: Path) -> Path | None:
    """Set aside a folder, device, pipe or socket found where a file belongs; return its new path, or None."""
    return set_aside(path) if is_non_file(path) else None


def remove(path: Path) -> None:
    """Remove a file if it exists; anything at `path` that is not a file is set aside."""
    set_aside_non_file(path)
    path.unlink(missing_ok=True)


# Writing files.


def write_bytes_atomically(path: Path, content: bytes, mode: int = 0o666) -> None:
    """Write `content` to `path` atomically: even after a power loss, a reader gets either the old or the new file.

    The file's permissions are `mode` minus the umask, as for any new file.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = open_temporary(path, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename is None:  # the error of a failed write contains no file name
            error.filename = str(path)
        raise


def write_json(path: Path, value: Any) -> None:
    """Write `value` as JSON to `path`, atomically. Raises ValueError for NaN and infinities."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, default=_plain_number)
    write_bytes_atomically(path, text.encode("utf-8", "surrogatepass"))


def _plain_number(value: Any) -> Any:
    """Convert a numpy or torch scalar to a Python one; raise TypeError for anything else."""
    if callable(item := getattr(value, "item", None)):
        return item()
    raise TypeError(f"a {type(value).__name__} cannot be written as JSON")


def open_temporary(path: Path, mode: int = 0o666) -> tuple[int, Path]:
    """Create a temporary file next to `path` that will be renamed to it; return its descriptor and temporary path.

    Unlike `tempfile`, this respects the umask and the folder's default ACL, because members of a group may share the
    folder.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.open(temporary, flags, mode), temporary


NO_HARD_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK, errno.EINVAL})
"""Errors raised by file systems that do not support hard or symbolic links: FAT, SMB, 9p, macOS folders mounted in
containers."""

_GUARD_TIMEOUT_SECONDS = 10.0

_GUARD_POLL_SECONDS = 0.02


def create_exclusively(source: Path, target: Path) -> None:
    """Link the complete file `source` to `target`. Exactly one of several concurrent processes succeeds.

    If the file system does not support hard links, `source` is renamed. Raises FileExistsError if `target` exists.
    """
    try:
        target.hardlink_to(source)
    except OSError as error:
        if error.errno not in NO_HARD_LINKS:
            raise
        with _guarded(target):
            if os.path.lexists(target):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target)) from None
            source.rename(target)


@contextlib.contextmanager
def _guarded(target: Path) -> Iterator[None]:
    """Exclude all other processes that guard `target`, on any machine. The block must finish within milliseconds.

    The guard is a folder, because creating a folder is exclusive on every file system. A guard that has not changed for
    several seconds is assumed to have been left behind by a killed process.
    """
    guard, since, seen = target.with_name(f".{target.name}.guard"), time.monotonic(), None
    while True:
        try:
            guard.mkdir()
            break
        except FileExistsError:
            with contextlib.suppress(FileNotFoundError):
                status = guard.stat()
                if seen != (seen := (status.st_ino, status.st_mtime_ns)):
                    since = time.monotonic()
            if time.monotonic() - since > _GUARD_TIMEOUT_SECONDS:
                with contextlib.suppress(OSError):
                    guard.rmdir()
            time.sleep(_GUARD_POLL_SECONDS)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            guard.rmdir()


# The user's node-local folder for locks and caches, writable only by the user.

LEASE_FOLDER_VARIABLE = "ACCELSWEEP_LEASES"
"""The environment variable that overrides the node-local folder."""

_NO_LOCKS = frozenset({errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL})


def lease_folder() -> Path:
    """Return the node-local folder, creating it if needed. Rejects a folder that another user could tamper with."""
    folder = Path(os.environ.get(LEASE_FOLDER_VARIABLE) or f"/tmp/accelsweep-{os.getuid()}")  # noqa: S108 - checked below
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o022:
        raise AccelsweepError(
            f"{folder} is not a folder that only you can write to; set {LEASE_FOLDER_VARIABLE} to one that is"
        )
    return folder


def lock(file: int | IO[bytes] | IO[str], operation: int = fcntl.LOCK_EX) -> None:
    """Lock a file in the node-local folder (`man 2 flock`).

    With LOCK_NB, raises BlockingIOError if the file is locked. Raises AccelsweepError if the file system does not
    support locking.
    """
    try:
        fcntl.flock(file, operation)
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        raise AccelsweepError(
            f"{lease_folder()} is on a disk without file locks ({error.strerror}), which runs need to take turns: set "
            f"{LEASE_FOLDER_VARIABLE} to a folder on this machine's local disk"
        ) from None


@contextlib.contextmanager
def exclusive_lock(purpose: str, path: Path) -> Iterator[None]:
    """Wait until no other process of this user on this machine holds the lock for `purpose` and `path`."""
    digest = hashlib.sha256(os.fsencode(path.resolve())).hexdigest()
    with (lease_folder() / f"{purpose}-{digest[:16]}.lock").open("w") as file:
        lock(file)
        yield
