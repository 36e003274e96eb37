"""The example sweep measured again and again: at other commits and dates, faster, elsewhere, with other torch."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

from example_sweep import build_example_sweep

from accelsweep.records.layout import SweepFolder
from accelsweep.records.run_record import Record


def build_sweep_again(
    home: Path,
    name: str,
    *,
    days: int = 0,
    speed: float = 1.0,
    commit: str | None = None,
    dirty: bool = False,
    machine: str = "a1",
    torch: str = "2.13.0",
) -> SweepFolder:
    """Write the example sweep as if it had been measured so many `days` later, at `speed` times its rates.

    All rates of a sweep share a noise of 0.3 %, as those of one day do.
    """
    folder, noise = build_example_sweep(home, name), random.Random(name).gauss(1.0, 0.003)
    for path in folder.latest_records():
        record, later = Record.read(path), timedelta(days=days)
        rate = record.metrics.get("samples_per_second")
        metrics = dict(record.metrics)
        if rate is not None and rate.value is not None:
            metrics["samples_per_second"] = replace(rate, value=rate.value * speed * noise)
        before = {**record.environment["before"], "machine": machine}
        software = {**record.fingerprint.software, "torch": torch}
        record.model_copy(
            update={
                "metrics": metrics,
                "git": {"commit": commit, "dirty": dirty if commit else None, "reason": None if commit else "no git"},
                "started_at": (datetime.fromisoformat(record.started_at) + later).isoformat(),
                "finished_at": (datetime.fromisoformat(record.finished_at) + later).isoformat(),
                "environment": {**record.environment, "before": before},
                "fingerprint": replace(record.fingerprint, software=software),
            }
        ).write(path)
    return folder
