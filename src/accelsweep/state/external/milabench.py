"""Training rates from the summary that milabench writes as JSON: a mapping of benchmarks with their `train_rate`.

The summary does not tell the device, so the user has to. Format: Mila, milabench.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from accelsweep.core.recorded.external import ExternalRow
from accelsweep.errors import InputError
from accelsweep.json_documents import parse_json
from accelsweep.state.external.cells import board_of, number_of, text_of


def milabench_rows(path: Path, device: str | None) -> list[ExternalRow]:
    """Return a row for each benchmark with a rate: the mean over its readings, on all of its devices together."""
    if not device:
        raise InputError("a summary of milabench's does not tell its devices; name them with --device")
    try:
        summary = parse_json(text_of(path))
    except ValueError as error:
        raise InputError(f"{path} is no JSON ({error})") from None
    if not isinstance(summary, Mapping) or not all(isinstance(one, Mapping) for one in summary.values()):
        raise InputError(f"{path} is no summary of milabench's: it maps no benchmarks to their results")
    if not any("train_rate" in one for one in summary.values()):
        raise InputError(f"{path} is no summary of milabench's: no benchmark has a train_rate")
    rows = [_row(name, one, device, path) for name, one in summary.items() if one.get("train_rate")]
    return [row for row in rows if row is not None]


def _row(name: str, one: Mapping[str, Any], device: str, path: Path) -> ExternalRow | None:
    rates = one["train_rate"]
    mean = rates.get("mean") if isinstance(rates, Mapping) else None
    value = number_of("" if mean is None else str(mean), f"{path}, {name}")
    if value is None or not one.get("successes", 1):
        return None
    boards = one.get("per_gpu") or {}
    if not isinstance(boards, Mapping):
        raise InputError(f"{path}, {name}: per_gpu maps no devices to their readings")
    return ExternalRow(
        model=name,
        task="training",
        value=value,
        unit="1/s",
        device=device,
        board=board_of(device),
        devices=len(boards) or None,
    )
