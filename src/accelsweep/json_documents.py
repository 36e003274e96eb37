"""JSON documents with a checksum, validated on read.

A document on disk is `{"accelsweep": KIND, "format": N, "version": WRITER, "sha256": CHECKSUM, "body": {...}}`, where
the checksum covers the body's canonical JSON. If truncation, flipped bits or manual edits are detected, the file is
reported and not used. An intact file written by a later version is rejected and left in place.
"""

from __future__ import annotations

import contextlib
import hashlib
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

from packaging.version import InvalidVersion, Version
from pydantic import AfterValidator, AllowInfNan, BaseModel, ConfigDict, Field, Strict, ValidationError
from pydantic_core import from_json

from accelsweep.errors import DamagedFile, NewerFile, OlderFile
from accelsweep.files import read_regular, set_aside_non_file, write_bytes_atomically
from accelsweep.installation import __version__
from accelsweep.plain_json import canonical_json, parse_json, sha256_text

_FIRST_READABLE = Version("0.2.0.dev0")

MIN_JOB_MEM_MB = 1500
"""The minimum memory that a job needs to start: its two Snakemake processes died below 600 MB; torch needs more."""


def _enough_memory(mem_mb: int) -> int:
    if mem_mb < MIN_JOB_MEM_MB:
        raise ValueError(
            f"must be at least {MIN_JOB_MEM_MB} (each job runs two Snakemake processes and an executor), or null"
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

UNKNOWN_KEY_ERRORS = ("extra_forbidden", "unexpected_keyword_argument")
"""pydantic's error types for an unknown key in a model and in a dataclass."""


def first_error(error: ValidationError) -> str:
    """Return the first validation error as `key: message`."""
    first = error.errors()[0]
    key = ".".join(map(str, first["loc"]))
    message = first["msg"].removeprefix("Value error, ")
    return f"{key}: {message}" if key else message


class Frozen(BaseModel):
    """An immutable value that only accepts declared fields."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())


class Document(Frozen):
    """An immutable value stored in its own file. Subclasses set the `kind` and the `format` they read and write."""

    kind: ClassVar[str]
    format: ClassVar[int] = 1
    mode: ClassVar[int] = 0o666

    def write(self, path: Path) -> None:
        """Write the document to `path` atomically; anything at `path` that is not a file is set aside."""
        set_aside_non_file(path)
        write_bytes_atomically(path, self.sealed(), self.mode)

    def sealed(self) -> bytes:
        """Return the contents of the document's file: the body with its checksum."""
        body = canonical_json(self.body()).encode("utf-8", "surrogatepass")
        head = f'{{"accelsweep":"{self.kind}","format":{self.format},"version":"{__version__}",'
        head += f'"sha256":"{hashlib.sha256(body).hexdigest()}","body":'
        return b"".join((head.encode(), body, b"}\n"))

    def body(self) -> dict[str, Any]:
        """Return the body as plain data."""
        return self.model_dump(mode="json")

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read and validate the document at `path`.

        Raises DamagedFile if it is truncated, altered or of a different kind; OlderFile or NewerFile if another
        version wrote it in a format that this version cannot read; and FileNotFoundError if it does not exist.
        """
        return cls.unsealed(read_regular(path), path)

    @classmethod
    def unsealed(cls, content: bytes, path: Path) -> Self:
        """Validate `content` and return its document; errors refer to it as `path`. Raises like `read`."""
        envelope = _as_written(content)
        intact = envelope is not None
        if envelope is None:
            try:
                envelope = parse_json(content.decode("utf-8", "surrogatepass"))
            except ValueError as error:
                raise DamagedFile(path, f"not a complete JSON document ({error})") from None
        if not isinstance(envelope, dict) or envelope.get("accelsweep") != cls.kind:
            raise DamagedFile(path, f"not an accelsweep {cls.kind}")
        version = _version(str(envelope.get("version")))
        if version is not None and version < _FIRST_READABLE:
            raise OlderFile(path, __version__, str(version))
        is_ours = envelope.get("version") == __version__
        later = str(version) if version is not None and not is_ours and version > Version(__version__) else None
        if (format_ := envelope.get("format")) != cls.format:
            if later is not None:
                raise NewerFile(path, __version__, later, f"format {format_} of a {cls.kind}")
            raise DamagedFile(path, f"{cls.kind} of format {format_!r}; this version reads {cls.format}")
        if not intact and (
            "body" not in envelope or envelope.get("sha256") != sha256_text(canonical_json(envelope["body"]))
        ):
            raise DamagedFile(path, "its contents do not match its checksum")
        try:
            return cls.model_validate(envelope["body"])
        except ValidationError as error:
            first = error.errors()[0]
            if later is not None or first["type"] in UNKNOWN_KEY_ERRORS:
                key = ".".join(map(str, first["loc"]))
                raise NewerFile(path, __version__, later, f"its {key!r}") from None
            raise DamagedFile(path, f"not a valid {cls.kind}: {first_error(error)}") from None


def _as_written(content: bytes) -> dict[str, Any] | None:
    """Return the envelope of a file exactly as `Document.sealed` wrote it, or None if it may have changed since.

    The checksum of the body's bytes then proves everything that strict parsing and serialising the body again would,
    in a seventh of the time. This matters for thousands of records. A file that was reformatted takes the long way.
    """
    separator, end = b',"body":', b"}\n"
    start = content.find(separator)
    body = content[start + len(separator) : -len(end)]  # one copy: that of a large sweep's findings takes 100 MiB
    with contextlib.suppress(ValueError):
        envelope = from_json(content[:start] + b"}") if start > 0 and content.endswith(end) else None
        if isinstance(envelope, dict) and envelope.get("sha256") == hashlib.sha256(body).hexdigest():
            return {**envelope, "body": from_json(body, allow_inf_nan=False)}
    return None


@lru_cache
def _version(text: str) -> Version | None:
    """Return the version that wrote a document, or None if it is not a version."""
    try:
        return Version(text)
    except InvalidVersion:
        return None
