"""The one way to write and read JSON documents: sealed by a checksum, renamed into place, validated before use.

A document on disk is `{"accelsweep": KIND, "format": N, "version": WRITER, "sha256": SEAL, "body": {...}}`. The seal is
the SHA-256 of the body's canonical JSON. A truncated file, a flipped bit or a hand edit is noticed and named, and the
file is not used. A whole file that a later version wrote is refused, and stays where it is.
Only regular files are read, so that a FIFO or a device in the place of one stops nobody.
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
from collections.abc import Iterator, Mapping
from io import BufferedReader
from pathlib import Path
from typing import IO, Annotated, Any, ClassVar, Final, NoReturn, Self

from packaging.version import InvalidVersion, Version
from pydantic import AfterValidator, AllowInfNan, BaseModel, ConfigDict, Field, Strict, ValidationError

from accelsweep.errors import AccelsweepError, DamagedFile, NewerFile
from accelsweep.installation import __version__
from accelsweep.redaction import masked

# The ranges of all numbers that a user states, as types, and a text that says something.

LEAST_MEM_MB = 1500
"""Memory below which a job cannot start: its two Snakemakes were seen to die below 600 MB, torch comes on top."""


def _enough_memory(mem_mb: int) -> int:
    if mem_mb < LEAST_MEM_MB:
        raise ValueError(
            f"must be at least {LEAST_MEM_MB} (each job runs two Snakemakes and an executor beside its runs), or null"
        )
    return mem_mb


NonEmpty = Annotated[str, Field(min_length=1)]

AtLeast0 = Annotated[int, Field(ge=0)]

AtLeast1 = Annotated[int, Field(ge=1)]

JobMemory = Annotated[int, AfterValidator(_enough_memory)]

NotNegative = Annotated[float, Field(ge=0)]

Positive = Annotated[float, Field(gt=0)]

Share = Annotated[float, Field(gt=0, lt=1)]

ShareFrom0 = Annotated[float, Field(ge=0, lt=1)]

Natural = Annotated[AtLeast0, Strict()]

Count = Annotated[AtLeast1, Strict()]

Amount = Annotated[NotNegative, AllowInfNan(False), Strict()]

StrictShare = Annotated[Share, Strict()]

StrictShareFrom0 = Annotated[ShareFrom0, Strict()]


def first_wrong(error: ValidationError) -> str:
    """Return the first wrong value of a file as `place: what is wrong there`."""
    first = error.errors()[0]
    place = ".".join(map(str, first["loc"]))
    said = first["msg"].removeprefix("Value error, ")
    return f"{place}: {said}" if place else said


MOST_DOCUMENT_BYTES = 256 * 2**20
"""No document of ours comes near this size; a larger file is none of them."""


def canonical_json(value: Any) -> str:
    """Return the one JSON text of `value`: sorted keys, no spaces, UTF-8, no NaN. Raises ValueError for NaN and inf."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def sha256_text(text: str) -> str:
    """Return the SHA-256 of `text` in UTF-8, as 64 hexadecimal digits."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def sha256_file(path: Path) -> str:
    """Return the SHA-256 of a file's bytes, as 64 hexadecimal digits. Raises as `open_regular` does."""
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def open_regular(path: Path) -> BufferedReader:
    """Return the file at `path`, or that a link there leads to, open for reading.

    Raises DamagedFile where a folder, a FIFO or a device stands in its place, without waiting for anybody. Raises it
    too where a file stands in the place of a folder above it. Raises FileNotFoundError if there is nothing.
    """
    try:
        if is_occupied(path):  # before it is opened: a FIFO waits for its writer there
            raise DamagedFile(path, "it is no file: something else stands in its place")
        return path.open("rb")
    except NotADirectoryError:
        above = next(parent for parent in path.parents if parent.exists())
        raise DamagedFile(above, "it is no folder: something else stands in its place") from None


def read_whole(path: Path, most_bytes: int = MOST_DOCUMENT_BYTES) -> bytes:
    """Return the bytes of a regular file. Raises as `open_regular` does, and DamagedFile above `most_bytes`."""
    with open_regular(path) as file:
        content = file.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise DamagedFile(path, f"it is larger than {most_bytes // 2**20} MiB")
    return content


def is_occupied(path: Path) -> bool:
    """Return whether a folder, a device, a pipe or a socket stands where a file of ours belongs."""
    try:
        return not stat.S_ISREG(path.stat().st_mode)
    except FileNotFoundError:
        return False


def clear_place(path: Path) -> Path | None:
    """Set aside what stands in the place of a file and is none; return its new path, or None."""
    return set_aside(path) if is_occupied(path) else None


def remove(path: Path) -> None:
    """Remove a file of ours, if there is one; what stands in its place and is none is set aside."""
    clear_place(path)
    path.unlink(missing_ok=True)


def parsed_json(text: str) -> Any:
    """Return the value of a JSON text. Raises ValueError for NaN and infinities, and for what is nested too deeply."""
    try:
        return json.loads(text, parse_constant=_no_number, parse_float=_finite)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is no JSON")


def _finite(text: str) -> float:
    number = float(text)
    if number in (float("inf"), float("-inf")):
        raise ValueError(f"{text} is too large a number")
    return number


def write_bytes_atomically(path: Path, content: bytes, mode: int = 0o666) -> None:
    """Write `content` to `path` atomically: a reader, also after a power loss, sees the old file or the new one.

    Its permissions are `mode` without the bits of the umask, as those of any file that a program makes.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = open_beside(path, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename is None:  # a write names no file
            error.filename = str(path)
        raise


def open_beside(path: Path, mode: int = 0o666) -> tuple[int, Path]:
    """Make a new file in the folder of `path`, to be renamed to it; return its descriptor and its temporary name.

    Other than with `tempfile`, the umask, or a default ACL of the folder, decides who else may read and write it:
    members of a group take turns in one folder.
    """
    made = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.open(made, flags, mode), made


NO_HARD_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK, errno.EINVAL})
"""What file systems without hard links, or without symbolic ones, answer where one is to be made.

Such are FAT, SMB shares, 9p, and folders that a container shares with a Mac."""

_GUARD_SECONDS = 10.0

_LOOK_SECONDS = 0.02


def put_in_place(made: Path, target: Path) -> None:
    """Give the file `made`, which is complete, the name `target` as well. Of several processes that try, one succeeds.

    A file system without hard links loses the name `made` to `target`. Raises FileExistsError where `target` exists.
    """
    try:
        target.hardlink_to(made)
    except OSError as error:
        if error.errno not in NO_HARD_LINKS:
            raise
        with _guarded(target):
            if os.path.lexists(target):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target)) from None
            made.rename(target)


@contextlib.contextmanager
def _guarded(target: Path) -> Iterator[None]:
    """Keep every process that asks for `target`, on any machine, out of the with-block, which takes milliseconds.

    The guard is a folder: every file system lets one process alone make it. One that stands unchanged for seconds was
    left by a killed process.
    """
    guard, since, seen = target.with_name(f".{target.name}.guard"), time.monotonic(), None
    while True:
        try:
            guard.mkdir()
            break
        except FileExistsError:
            with contextlib.suppress(FileNotFoundError):
                now = guard.stat()
                if seen != (seen := (now.st_ino, now.st_mtime_ns)):
                    since = time.monotonic()
            if time.monotonic() - since > _GUARD_SECONDS:
                with contextlib.suppress(OSError):
                    guard.rmdir()
            time.sleep(_LOOK_SECONDS)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            guard.rmdir()


class Frozen(BaseModel):
    """A value that does not change once made and has only declared fields."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())


class Document(Frozen):
    """A frozen value with a file of its own. Subclasses name their `kind` and the `format` they read and write."""

    kind: ClassVar[str]
    format: ClassVar[int] = 1
    mode: ClassVar[int] = 0o666

    def write(self, path: Path) -> None:
        """Write the sealed document to `path`, atomically; what stands there and is no file is set aside."""
        clear_place(path)
        write_bytes_atomically(path, self.sealed(), self.mode)

    def sealed(self) -> bytes:
        """Return the bytes of the document's file: its contents with their checksum."""
        body = canonical_json(self.body())
        head = f'{{"accelsweep":"{self.kind}","format":{self.format},"version":"{__version__}",'
        head += f'"sha256":"{sha256_text(body)}","body":'
        return (head + body + "}\n").encode("utf-8", "surrogatepass")

    def body(self) -> dict[str, Any]:
        """Return the contents of the document as plain data."""
        return self.model_dump(mode="json")

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read and validate the document at `path`.

        Raises DamagedFile if it is truncated, altered or of another kind. Raises NewerFile if it is whole, and a later
        version wrote it. Raises FileNotFoundError if it is absent.
        """
        return cls.unsealed(read_whole(path), path)

    @classmethod
    def unsealed(cls, content: bytes, path: Path) -> Self:
        """Return the document whose file, called `path` in errors, holds `content`. Raises as `read` does."""
        try:
            envelope = parsed_json(content.decode("utf-8", "surrogatepass"))
        except ValueError as error:
            raise DamagedFile(path, f"not a whole JSON document ({error})") from None
        body = _unseal(path, envelope, cls.kind, cls.format)
        try:
            return cls.model_validate(body)
        except ValidationError as error:
            first = error.errors()[0]
            later = _later(envelope)
            if later is not None or first["type"] == "extra_forbidden":
                where = ".".join(map(str, first["loc"]))
                raise NewerFile(path, __version__, later, f"its {where!r}") from None
            raise DamagedFile(path, f"not a valid {cls.kind}: {first_wrong(error)}") from None


def _unseal(path: Path, envelope: Any, kind: str, known_format: int) -> Any:
    if not isinstance(envelope, dict) or envelope.get("accelsweep") != kind:
        raise DamagedFile(path, f"not an accelsweep {kind}")
    found = envelope.get("format")
    if found != known_format and (later := _later(envelope)) is not None:
        raise NewerFile(path, __version__, later, f"format {found} of a {kind}")
    if found != known_format:
        raise DamagedFile(path, f"{kind} of format {found!r}; this version reads {known_format}")
    if "body" not in envelope or envelope.get("sha256") != sha256_text(canonical_json(envelope["body"])):
        raise DamagedFile(path, "its contents do not match its checksum")
    return envelope["body"]


def _later(envelope: dict[str, Any]) -> str | None:
    """Return the version that wrote the document, if it is known and later than this one."""
    version = str(envelope.get("version"))
    try:
        return version if Version(version) > Version(__version__) else None
    except InvalidVersion:
        return None


def set_aside(path: Path) -> Path:
    """Rename a damaged file or folder to `NAME.damaged-K` beside it, so that it is neither used nor overwritten."""
    for number in range(1, 10_000):
        target = path.with_name(f"{path.name}.damaged-{number}")
        if not target.exists():
            path.rename(target)
            return target
    raise DamagedFile(path, "10000 damaged copies stand beside it; clear them away first")


# The one look-up of a dotted key in nested mappings.

NO_SUCH_KEY: Final = object()
"""The answer of `looked_up` where there is no such key: None is a value."""


def looked_up(tree: Any, key: str) -> Any:
    """Return the value at the dotted `key` of a nested mapping, or NO_SUCH_KEY."""
    for part in key.split("."):
        if not isinstance(tree, Mapping) or part not in tree:
            return NO_SUCH_KEY
        tree = tree[part]
    return tree


# The folder that a user has on a machine: locks, and what takes long to make. Only its owner can write to it.

FOLDER_VARIABLE = "ACCELSWEEP_LEASES"
"""Environment variable that names another node-local folder."""

_NO_LOCKS = frozenset({errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL})


def lease_folder() -> Path:
    """Return the node-local folder, made if need be. Refuses one that another user could tamper with."""
    folder = Path(os.environ.get(FOLDER_VARIABLE) or f"/tmp/accelsweep-{os.getuid()}")  # noqa: S108 - owner checked below
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise AccelsweepError(
            f"{folder} is not a folder that only you can write to; set {FOLDER_VARIABLE} to one that is"
        )
    return folder


def lock(file: int | IO[bytes] | IO[str], how: int = fcntl.LOCK_EX) -> None:
    """Lock a file of the node-local folder (`man 2 flock`). Raises BlockingIOError where `how` says not to wait.

    Raises AccelsweepError where the folder's file system has no locks.
    """
    try:
        fcntl.flock(file, how)
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        raise AccelsweepError(
            f"{lease_folder()} lies on a disk that has no file locks ({error.strerror}), by which runs take turns: set "
            f"{FOLDER_VARIABLE} to a folder of this machine's own disk"
        ) from None


@contextlib.contextmanager
def alone_with(purpose: str, path: Path) -> Iterator[None]:
    """Wait until no other process of this user on this machine is in the same with-block for `path`."""
    path = lease_folder() / f"{purpose}-{sha256_text(str(path.resolve()))[:16]}.lock"
    with path.open("w") as file:
        lock(file)
        yield


# The end of a log, which may be long, may still grow, and may hold bytes that are no text.


def last_lines(log: Path | IO[bytes], count: int | None = None, most_bytes: int = 16_384) -> list[str]:
    """Return the last `count` lines of a log (all for None) within its last `most_bytes`, secrets masked.

    Empty where the file cannot be read. The first line may be cut. Bytes that are no UTF-8 are replaced.
    """
    try:
        text = end_of(log, most_bytes)
    except (OSError, DamagedFile):
        return []
    lines = masked(text.decode("utf-8", "replace")).splitlines()
    return lines if count is None else lines[-count:]


def end_of(log: Path | IO[bytes], most_bytes: int) -> bytes:
    """Return the last `most_bytes` of a log. Raises OSError or DamagedFile where it cannot be read."""
    if isinstance(log, Path):
        with open_regular(log) as file:
            return end_of(file, most_bytes)
    log.seek(max(0, log.seek(0, os.SEEK_END) - most_bytes))
    return log.read()
