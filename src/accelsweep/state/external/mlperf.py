"""The time to the target of one run, from its log in an MLPerf Training submission: `result_0.txt`.

A log has lines `:::MLLOG {...}` of JSON, with other output between them. Format: MLCommons, mlperf_logging.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from accelsweep.core.recorded.external import ExternalRow
from accelsweep.errors import InputError
from accelsweep.json_documents import parse_json
from accelsweep.records.metrics import MLPERF_LOG_MARK
from accelsweep.state.external.cells import board_of, text_of

_MOST_MS = 1e15
"""Milliseconds since 1970: thirty thousand years."""


def mlperf_rows(path: Path, device: str | None) -> list[ExternalRow]:
    """Return one row: seconds from `run_start` to `run_stop`. A run that missed its target is refused."""
    events = {str(event.get("key")): event for event in _events(path)}
    if missing := [key for key in ("submission_benchmark", "run_start", "run_stop") if key not in events]:
        raise InputError(f"{path} has no {' and no '.join(missing)}: it is no log of a whole MLPerf training run")
    status = _metadata(events["run_stop"]).get("status")
    if status != "success":
        raise InputError(f"{path}: the run ended as {status!r}, so it has no time to its target")
    model = events["submission_benchmark"].get("value")
    if not model:
        raise InputError(f"{path}: submission_benchmark has no value, so the row has no model")
    platform = str(events.get("submission_platform", {}).get("value") or "")
    named, devices = _hardware(platform)
    named = device or named
    if not named:
        raise InputError(f"{path} does not tell its devices; name them with --device")
    org = events.get("submission_org", {}).get("value")
    batch = events.get("global_batch_size", {}).get("value")
    facts = {"submitted by": org, "platform": platform, "global batch": batch}
    return [
        ExternalRow(
            model=str(model),
            task="training",
            value=_seconds(events["run_start"], events["run_stop"], path),
            unit="s",
            device=named,
            board=board_of(named),
            devices=devices,
            conditions={name: str(value) for name, value in facts.items() if value},
        )
    ]


def _events(path: Path) -> list[dict[str, Any]]:
    found = []
    for number, line in enumerate(text_of(path).splitlines(), 1):
        if MLPERF_LOG_MARK not in line:
            continue
        try:
            event = parse_json(line.partition(MLPERF_LOG_MARK)[2])
        except ValueError as error:
            raise InputError(f"{path}, line {number}: it is no JSON ({error})") from None
        if not isinstance(event, dict):
            raise InputError(f"{path}, line {number}: it is no event")
        found.append(event)
    return found


def _metadata(event: dict[str, Any]) -> dict[str, Any]:
    found = event.get("metadata")
    return found if isinstance(found, dict) else {}


def _seconds(start: dict[str, Any], stop: dict[str, Any], path: Path) -> float:
    first, last = start.get("time_ms"), stop.get("time_ms")
    if not isinstance(first, int | float) or not isinstance(last, int | float) or not 0 <= first < last < _MOST_MS:
        raise InputError(f"{path}: run_start and run_stop have no times, or in the wrong order")
    return float(last - first) / 1000.0


def _hardware(platform: str) -> tuple[str, int | None]:
    """Return device and number of a platform such as `1xMI325X`; others name a system, whose number is not known."""
    found = re.fullmatch(r"(\d{1,6}) ?x ?(.+)", platform)
    return (found[2], int(found[1])) if found else (platform, None)
