"""The files of the acceptance: results as JSON, tables as Markdown, the environment, and the records in one table."""

from __future__ import annotations

import csv
import json
import platform
from collections.abc import Iterable
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any

from checks import Result, Table
from place import Place, Record

from accelsweep.devices.cpu import cpu_model

PACKAGES = ("torch", "triton", "lightning", "hydra-core", "snakemake", "numpy", "pandas", "pydantic", "nvidia-ml-py")
COLUMNS = ("samples_per_second", "window_seconds", "mfu", "peak_memory_allocated_bytes", "energy_joules")
"""The metrics of a record that the table of all records holds."""


def describe(place: Place) -> dict[str, Any]:
    """Return the facts behind the results: versions, processor, and the device as its driver names it."""
    device: dict[str, Any] = {"kind": place.device}
    if place.device in ("cuda", "simulated"):
        device |= place.board().facts()
    versions = {name: _version(name) for name in PACKAGES}
    machine = {"python": platform.python_version(), "system": platform.platform(), "processor": cpu_model()}
    return {"device": device, "scale": "small" if place.small else "full", "versions": versions, **machine}


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def write(folder: Path, environment: dict[str, Any], results: list[Result], place: Place) -> None:
    """Write everything that is known by now."""
    folder.mkdir(parents=True, exist_ok=True)
    _json(folder / "environment.json", environment)
    _json(folder / "results.json", [asdict(result) | {"accepted": result.accepted} for result in results])
    (folder / "results.md").write_text("\n".join(_page(environment, results)), "utf-8")
    with (folder / "records.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(_records(place))


def _json(file: Path, content: Any) -> None:
    file.write_text(json.dumps(content, indent=1, default=str) + "\n", "utf-8")


def _page(environment: dict[str, Any], results: list[Result]) -> Iterable[str]:
    device = environment["device"].get("name", environment["processor"])
    yield f"# Acceptance on {device}, {environment['scale']} scale\n"
    yield from markdown(Table("Checks", ("group", "check", "ended", "s"), tuple(
        (one.group, one.name, one.status, one.seconds) for one in results)))  # fmt: skip
    for result in results:
        yield f"## {result.group}: {result.name}\n\n{result.status}" + (
            f": {result.reason}\n" if result.reason else "\n"
        )
        for table in result.findings.tables:
            yield from markdown(table)
        for one in result.findings.expectations:
            yield f"* {'holds' if one.holds else 'BROKEN'}: {one.sentence} ({one.seen})"
        for note in result.findings.notes:
            yield f"* {note}"
        yield ""


def markdown(table: Table) -> Iterable[str]:
    """Yield a table's lines; None is an empty cell."""
    yield f"**{table.title}**\n"
    yield f"| {' | '.join(table.columns)} |"
    yield f"|{'---|' * len(table.columns)}"
    for row in table.rows:
        yield f"| {' | '.join(map(_cell, row))} |"
    yield ""


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) and abs(value) < 1e4 else f"{value:.0f}" if isinstance(
        value, float) else str(value).replace("|", "/")  # fmt: skip


def _records(place: Place) -> Iterable[list[Any]]:
    yield ["sweep", "axes", "repeat", "outcome", "reason", "doubts", *COLUMNS]
    for sweep in sorted(path.name for path in (place.home / "sweeps").glob("*")):
        for record in place.records(sweep):
            yield _line(sweep, record)


def _line(sweep: str, record: Record) -> list[Any]:
    body = record.body
    axes = json.dumps(body["axes"], sort_keys=True)
    seen = [record.metric(name) for name in COLUMNS]
    return [sweep, axes, body["repeat"], record.outcome, body["reason"], " ".join(record.doubts), *seen]
