"""The desired state of an MLflow run as plain values; `run_writer` writes the differences to the store.

MLflow rejects some characters in names, long values and lone surrogates. These are replaced here, so that an unusual
key or log line in one run cannot prevent the others from being published.
"""

from __future__ import annotations

import math
import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from accelsweep.config.setting import override_value
from accelsweep.plain_json import sha256_text
from accelsweep.redaction import masked

KEY_TAG = "accelsweep.key"
SOURCE_TAG = "accelsweep.source"
PUBLISHED_TAG = "accelsweep.published"
"""The tag that stores a run's digest, set once the run has been written completely."""

CREATED_TAG = "accelsweep.created"
PARENT_TAG = "mlflow.parentRunId"
NOTE_TAG = "mlflow.note.content"

_MAX_NAME = 250
_MAX_PARAM = 6000
_MAX_TAG = 5000
_FORBIDDEN = re.compile(r"[^\w./ -]", re.ASCII)


@dataclass(frozen=True)
class MetricPoint:
    """One point of a metric's history. `timestamp` is in milliseconds since 1970."""

    name: str
    value: float
    step: int
    timestamp: int


@dataclass(frozen=True)
class Artifact:
    """Text to store as `target`, a file to store in the folder `target`, or a folder to store as `target`.

    `suffixes` are those of the files to store from a folder; None for all files.
    """

    source: Path | str
    target: str = ""
    suffixes: frozenset[str] | None = None

    def files(self) -> list[Path]:
        """Return the files to store from the folder `source`."""
        assert isinstance(self.source, Path), "texts are not in a folder"
        files = (path for path in sorted(self.source.rglob("*")) if path.is_file())  # a FIFO would block
        return [path for path in files if self.suffixes is None or path.suffix in self.suffixes]


@dataclass(frozen=True)
class MlflowRun:
    """The desired state of one MLflow run.

    `key` is unique in the experiment. `source` identifies the origin, such as a record's SHA-256: a stored run with the
    same key is updated if its source is the same, and replaced otherwise. `digest` covers everything else; it is
    written last, so a stored run with a digest is complete. `data` contains the name and config (JSON) of the
    training data set. Times are in milliseconds since 1970.
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
    curves: tuple[MetricPoint, ...] = ()
    artifacts: tuple[Artifact, ...] = ()
    data: tuple[str, str] | None = None
    parent: str | None = None


def epoch_ms(iso: str) -> int:
    """Convert an ISO 8601 time to milliseconds since 1970."""
    return round(datetime.fromisoformat(iso).timestamp() * 1000)


def storable_text(value: Any, limit: int = _MAX_TAG) -> str:
    """Return a value as text that any store accepts.

    A value that is not a string is formatted as JSON. Secrets are masked, and the text is truncated to `limit`
    characters.
    """
    text = masked(override_value(value).replace("\0", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode())
    if len(text) <= limit:
        return text
    note = f"... ({len(text)} characters; full text in record.json)"
    return text[: limit - len(note)] + note


def to_params(values: Mapping[str, Any]) -> dict[str, str]:
    """Return config values as MLflow params."""
    return {name: storable_text(value, _MAX_PARAM) for name, value in _with_valid_names(values).items()}


def to_metrics(values: Mapping[str, float | None]) -> dict[str, float]:
    """Return the metrics with finite values as MLflow metrics."""
    return _with_valid_names(
        {name: value for name, value in values.items() if value is not None and math.isfinite(value)}
    )


def to_tags(values: Mapping[str, Any]) -> dict[str, str]:
    """Return the known values (neither None nor empty) as MLflow tags."""
    known = {name: value for name, value in values.items() if value is not None and value != ""}
    return {name: storable_text(value) for name, value in _with_valid_names(known).items()}


def _with_valid_names(values: Mapping[str, Any]) -> dict[str, Any]:
    """Make names valid for MLflow; a hash distinguishes those that are too long or would otherwise become identical."""
    valid: dict[str, Any] = {}
    for name, value in values.items():
        clean = posixpath.normpath(_FORBIDDEN.sub("_", name)).lstrip("/.") or "_"
        if len(clean) > _MAX_NAME or clean in valid:
            clean = f"{clean[: _MAX_NAME - 9]}-{sha256_text(name)[:8]}"
        valid[clean] = value
    return valid
