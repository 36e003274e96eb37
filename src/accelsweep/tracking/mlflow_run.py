"""An MLflow run as it should be, in plain values. The writer compares it with the store, and writes the differences.

MLflow refuses some characters in names, long values and lone surrogates. This module replaces them. Otherwise a strange
key or log line in one run would stop the publication of the others.
"""

from __future__ import annotations

import math
import posixpath
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from accelsweep.config.setting import as_typed
from accelsweep.json_documents import sha256_text
from accelsweep.redaction import masked

KEY = "accelsweep.key"

SOURCE = "accelsweep.source"

PUBLISHED = "accelsweep.published"

CREATED = "accelsweep.created"

PARENT = "mlflow.parentRunId"

NOTE = "mlflow.note.content"

_MAX_NAME = 250

_MAX_PARAM = 6000

_MAX_TAG = 5000

_FORBIDDEN = re.compile(r"[^\w./ -]", re.ASCII)


@dataclass(frozen=True)
class HistoryPoint:
    """One point of a metric's history. `timestamp` is in milliseconds since 1970."""

    name: str
    value: float
    step: int
    timestamp: int


@dataclass(frozen=True)
class Artifact:
    """A text to store as `target`, or a file to store in the folder `target`, or a folder to store as `target`."""

    source: Path | str
    target: str = ""


@dataclass(frozen=True)
class DataSet:
    """The data that a run trained on, as MLflow's dataset input: `source` is its config as JSON."""

    name: str
    digest: str
    source: str


@dataclass(frozen=True)
class Wanted:
    """One MLflow run.

    `key` is unique in the experiment. `source` identifies the run's origin (a record's SHA-256). An MLflow run with the
    same key and another source is superseded, one with the same source is completed. `digest` covers everything else
    and is written last, so that a run that carries it is whole. Times: milliseconds since 1970.
    """

    key: str
    name: str
    source: str
    digest: str
    status: str
    started: int
    ended: int | None
    tags: Mapping[str, str]
    params: Mapping[str, str] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)
    curves: tuple[HistoryPoint, ...] = ()
    artifacts: tuple[Artifact, ...] = ()
    data: DataSet | None = None
    parent: str | None = None


def milliseconds(iso: str) -> int:
    """Return the milliseconds since 1970 of a UTC time in ISO 8601."""
    return round(datetime.fromisoformat(iso).timestamp() * 1000)


def plain(value: Any, limit: int = _MAX_TAG) -> str:
    """Return a value as text that every store accepts: JSON if it is no string, secrets masked, cut at `limit`."""
    text = masked(as_typed(value).replace("\0", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode())
    if len(text) <= limit:
        return text
    note = f"... ({len(text)} characters; whole in record.json)"
    return text[: limit - len(note)] + note


def params(values: Mapping[str, Any]) -> dict[str, str]:
    """Return settings as MLflow params."""
    return {name: plain(value, _MAX_PARAM) for name, value in zip(_names(values), values.values(), strict=True)}


def metrics(values: Mapping[str, float | None]) -> dict[str, float]:
    """Return the finite ones of some numbers as MLflow metrics."""
    numbers = {name: value for name, value in values.items() if value is not None and math.isfinite(value)}
    return dict(zip(_names(numbers), numbers.values(), strict=True))


def tags(values: Mapping[str, Any]) -> dict[str, str]:
    """Return the known values (not None, not empty) as MLflow tags."""
    known = {name: value for name, value in values.items() if value is not None and value != ""}
    return {name: plain(value) for name, value in zip(_names(known), known.values(), strict=True)}


def _names(wanted: Iterable[str]) -> list[str]:
    """Return MLflow's form of each name; two that would become one are told apart by a digest."""
    names: list[str] = []
    for name in wanted:
        clean = posixpath.normpath(_FORBIDDEN.sub("_", name)).lstrip("/.") or "_"
        if len(clean) > _MAX_NAME or clean in names:
            clean = f"{clean[: _MAX_NAME - 9]}-{sha256_text(name)[:8]}"
        names.append(clean)
    return names
