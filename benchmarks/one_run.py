"""Shared parts of the loops' benchmarks: the spec of one run of a fixed length, its metric, and an interval."""

from __future__ import annotations

import math
import statistics
from typing import Any

from scipy import stats

from accelsweep.config.schema import checked_config
from accelsweep.results import RankResult
from accelsweep.run_config import Run
from accelsweep.worker.run_spec import RunSpec

WARMUP = 30


def spec_of(
    folder: str, model: dict[str, Any], seed: int, *, loop: str, steps: int, batch_size: int, **others: Any
) -> RunSpec:
    """Return one run on digits, its window exactly `steps` long; `others` replace or add keys of its config."""
    config = checked_config(
        {
            "accelerator": "cpu",
            "devices": 1,
            "num_nodes": 1,
            "batch_size": batch_size,
            "precision": "32-true",
            "seed": seed,
            "loop": loop,
            "launcher": "fork",
            "threads": 1,
            "task": "train_throughput",
            "model": model,
            "data": {"_target_": "accelsweep.workloads.datasets.Digits"},
            "optimizer": {"_target_": "torch.optim.SGD", "_partial_": True, "lr": 0.05, "momentum": 0.9},
            "trainer": {"strategy": "auto"},
            "measure": {
                "warmup_steps": WARMUP,
                "min_steps": steps,
                "max_steps": steps,
                "min_seconds": 0.0,
                "quality_samples": None,
            },
            **others,
        }
    )
    return RunSpec(
        sweep="benchmark",
        block="benchmark",
        run=Run.of("0" * 12, 0, seed),
        planned_position=0,
        position=0,
        attempt=1,
        config=config,
        axes={},
        world_size=config.world_size,
        attempt_folder=folder,
    )


def metric_of(result: RankResult, name: str) -> float:
    """Return a metric of a rank. Exits with the reason if the run did not measure it."""
    value = result.metrics[name].value if result.reason is None else None
    if value is None:
        raise SystemExit(f"{result.outcome}: {result.reason}")
    return value


def interval(values: list[float], confidence: float) -> tuple[float, float, float]:
    """Return the mean and the ends of its t interval."""
    mean = statistics.fmean(values)
    half = stats.t.ppf(0.5 + confidence / 2, len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))
    return mean, mean - half, mean + half
