"""The origin of a measurement, as tags: model, data, library versions, and the user's commit.

`mlflow.search_runs` alone then tells whether a number came from a clean tree, and with which versions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from accelsweep.core.recorded.record import Record

COMMIT = "mlflow.source.git.commit"
DIRTY = "mlflow.source.git.dirty"


def origin(record: Record) -> dict[str, str]:
    """Return the tags of one record; a fact that is not known is absent."""
    dirty = record.checkout.dirty
    known: dict[str, Any] = {
        "model": record.config.model_target,
        "data": record.config.data_target,
        **record.fingerprint.software,
        COMMIT: record.checkout.commit,
        DIRTY: None if dirty is None else str(dirty).lower(),
    }
    return {name: str(value) for name, value in known.items() if value}


def common(origins: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """Return the tags of several records together; values that differ stand side by side, in the order of the runs."""
    found: dict[str, dict[str, None]] = {}
    for one in origins:
        for name, value in one.items():
            found.setdefault(name, {})[value] = None
    return {name: ", ".join(values) for name, values in found.items()}
