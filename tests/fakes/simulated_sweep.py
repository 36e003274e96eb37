"""Sweeps in memory whose truth is known: a table of runs and a manifest from any rates, for tests and simulations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
import pyarrow as pa

from accelsweep.analyse.collect import WHOLE, table_of
from accelsweep.core.cell import cell_name
from accelsweep.core.documents import canonical_json, sha256_text
from accelsweep.core.plans import Analysis, Manifest, PlannedBlock, PlannedCell, Resources, Run, Settings, Site

CONFIG: dict[str, Any] = {
    "accelerator": "cpu",
    "devices": 1,
    "num_nodes": 1,
    "batch_size": 32,
    "precision": "32-true",
    "seed": 0,
    "loop": "lightning",
    "model": {},
    "data": {},
    "measure": {
        "warmup_steps": 5,
        "min_steps": 20,
        "min_seconds": 0.1,
        "max_steps": 200,
        "quality_metric": "val_accuracy",
        "quality_better": "max",
    },
}
FINGERPRINT = {"hardware": {"host": "Xeon"}, "software": {"torch": "2.13.0"}, "builds": {}, "sources": {}}


def name_of(axes: Mapping[str, Any]) -> str:
    """Return the name of the cell with these values on the axes."""
    return cell_name({**CONFIG, **axes})


def make_manifest(cells: Sequence[Mapping[str, Any]], blocks: int, **settings: Any) -> Manifest:
    """Return the plan of one run of each cell in each block; the first cell is the baseline."""
    names = [name_of(axes) for axes in cells]
    return Manifest(
        sweep="simulated",
        revision=1,
        experiment="simulated",
        overrides=("experiment=simulated",),
        axes=tuple(cells[0]),
        cells=tuple(PlannedCell(name=name, axes=dict(axes)) for name, axes in zip(names, cells, strict=True)),
        excluded=(),
        baseline=names[0],
        blocks=tuple(
            PlannedBlock(name=f"b{block}", runs=tuple(f"{name}-r{block}" for name in names), resources=Resources())
            for block in range(blocks)
        ),
        settings=Settings(repeats=max(blocks, 1), analysis=Analysis(**settings)),
        site=Site(name="local"),
        sources={},
        versions={},
    )


def make_run(axes: Mapping[str, Any], block: int, rate: float | None, **fields: Any) -> dict[str, Any]:
    """Return one run as a row of collect's table; `rate` None makes it crash.

    `fields` replace columns (`outcome`, `reason`, `seed`, ...), parts of the fingerprint (`hardware`, ...), `config`,
    and metrics: `quality=0.9` or any other number.
    """
    cell = name_of(axes)
    numbers = {key: fields.pop(key) for key in list(fields) if isinstance(fields[key], float)}
    units = {"samples_per_second": "1/s", "results_per_hour": "results/h", "energy_joules": "J", "host_pss_bytes": "B"}
    values = ({"samples_per_second": rate} if rate is not None else {}) | numbers
    metrics = {key: {"value": value, "unit": units.get(key, "1")} for key, value in values.items()}
    config = {**CONFIG, **axes, **fields.pop("config", {})}
    effective = {"device_names": ["Xeon"], "accelerator": config["accelerator"], "world_size": config["devices"]}
    row: dict[str, Any] = {
        "sweep": "simulated",
        "cell": cell,
        "run": Run.of(cell, block, 0).name,
        "repeat": block,
        "seed": block,
        "position": 0,
        "attempt": 1,
        "block": f"b{block}",
        "outcome": "measured" if rate is not None else "crashed",
        "reason": None if rate is not None else "RuntimeError: simulated",
        "started_at": f"2026-01-05T{9 + block // 60:02d}:{block % 60:02d}:00+00:00",
        "environment": {"before": {"host": "node1"}},
        "doubts": [],
        "config": config,
        "effective": effective,
        "metrics": metrics,
        "record_sha256": sha256_text(f"{cell} {block} {rate}"),
        **FINGERPRINT,
        **fields,
    }
    encoded = {key: canonical_json(value) if isinstance(value, dict | list) else value for key, value in row.items()}
    return {**encoded, "axes": dict(axes), "values": values}


def make_records(rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Return rows as the table that collect returns."""
    table: pa.Table = table_of(rows, list(rows[0]["axes"]))
    records: pd.DataFrame = table.to_pandas(types_mapper={WHOLE: pd.Int64Dtype()}.get)
    return records
