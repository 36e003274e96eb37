"""`external/NAME.json` in the user's folder: read a published file, keep its rows, and find them again by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from pydantic import ValidationError

from accelsweep.core.recorded.external import ExternalResults, ExternalRow
from accelsweep.errors import InputError, nearest
from accelsweep.files import sha256_file
from accelsweep.json_documents import first_error
from accelsweep.state.external.lambda_labs import lambda_rows
from accelsweep.state.external.milabench import milabench_rows
from accelsweep.state.external.mlperf import mlperf_rows
from accelsweep.state.external.timm import timm_rows

READERS: Mapping[str, Callable[[Path, str | None], list[ExternalRow]]] = {
    "timm": timm_rows,
    "lambda": lambda_rows,
    "mlperf": mlperf_rows,
    "milabench": milabench_rows,
}
"""The sources whose files can be read, by the word that users write."""

FOLDER = "external"


def external_file(home: Path, name: str) -> Path:
    """Return the place of the rows called `name`."""
    return home / FOLDER / f"{name}.json"


def read_published(path: Path, source: str, device: str | None) -> ExternalResults:
    """Return the rows of a file that `source` publishes. Raise InputError for a damaged or a foreign one.

    `device` names the device where the file does not, or does so otherwise than the user would.
    """
    if source not in READERS:
        raise InputError(f"no source {source!r}{nearest(source, READERS)}; there are: {', '.join(READERS)}")
    if not path.exists():
        raise InputError(f"there is no file {path}")
    try:
        rows = READERS[source](path, device)
        if not rows:
            raise InputError(f"{path} has no row with a rate")
        return ExternalResults(source=source, file=path.name, sha256=sha256_file(path), rows=tuple(rows))
    except ValidationError as error:
        raise InputError(f"{path}: {first_error(error)}") from None


def kept(home: Path, name: str) -> ExternalResults:
    """Return the rows called `name`; raise InputError if there are none, DamagedFile if their file is damaged."""
    place = external_file(home, name)
    if not place.exists():
        known = sorted(path.stem for path in place.parent.glob("*.json"))
        there = f"there are: {', '.join(known)}" if known else "there are none"
        remedy = "`accelsweep import FILE --from SOURCE` adds some"
        raise InputError(f"no external rows {name!r}{nearest(name, known)}; {there}. {remedy}")
    return ExternalResults.read(place)


def all_kept(home: Path) -> tuple[ExternalResults, ...]:
    """Return all rows of the folder, by the names of their files; raise DamagedFile that names a damaged one."""
    return tuple(ExternalResults.read(path) for path in sorted((home / FOLDER).glob("*.json")))
