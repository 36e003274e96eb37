"""Sweeps in memory whose truth is known: runs and a manifest from any rates, for tests and simulations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from accelsweep.analysis.run_results import Reading, RunRow
from accelsweep.config.schema import checked_config
from accelsweep.config.setting import setting_name
from accelsweep.config.site import Site
from accelsweep.config.sweep_options import Analysis, Options
from accelsweep.plain_json import sha256_text
from accelsweep.records.plan import Manifest, PlannedBlock, PlannedSetting
from accelsweep.results import Doubt, Effective, Outcome
from accelsweep.run_config import Run, SettingConfig
from accelsweep.run_environment import HardwareKind
from accelsweep.schedulers.protocol import Resources

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


def name_of(axes: Mapping[str, Any]) -> str:
    """Return the name of the setting with these values on the axes."""
    return setting_name({**CONFIG, **axes})


def make_manifest(settings: Sequence[Mapping[str, Any]], blocks: int, **options: Any) -> Manifest:
    """Return the plan of one run of each setting in each block; the first setting is the baseline."""
    names = [name_of(axes) for axes in settings]
    return Manifest(
        sweep="simulated",
        revision=1,
        experiment="simulated",
        overrides=("experiment=simulated",),
        axes=tuple(settings[0]),
        settings=tuple(PlannedSetting(name=name, axes=dict(axes)) for name, axes in zip(names, settings, strict=True)),
        excluded=(),
        baseline=names[0],
        blocks=tuple(
            PlannedBlock(name=f"b{block}", runs=tuple(f"{name}-r{block}" for name in names), resources=Resources())
            for block in range(blocks)
        ),
        options=Options(repeats=max(blocks, 1), analysis=Analysis(**options)),
        site=Site(name="local"),
        sources={},
        versions={},
    )


def make_run(axes: Mapping[str, Any], block: int, rate: float | None, **fields: Any) -> RunRow:
    """Return one run as `collect` finds it; `rate` None makes it crash.

    `fields` replace fields of the row (`outcome`, `reason`, `seed`, ...), as the plain values in a record's file. Those
    of `config` and `effective` are merged. Any other number is a metric: `quality=0.9`.
    """
    setting = name_of(axes)
    numbers = {key: fields.pop(key) for key in list(fields) if isinstance(fields[key], float)}
    units = {
        "samples_per_second": "1/s",
        "largest_batch": "samples",
        "results_per_hour": "results/h",
        "energy_joules": "J",
        "host_pss_bytes": "B",
    }
    values = ({"samples_per_second": rate} if rate is not None else {}) | numbers
    plain = {key: {"value": value, "unit": units.get(key, "1")} for key, value in values.items()}
    config = checked_config({**CONFIG, **axes, **fields.pop("config", {})})
    row: dict[str, Any] = {
        "sweep": "simulated",
        "setting": setting,
        "axes": dict(axes),
        "run": Run.of(setting, block, 0).name,
        "repeat": block,
        "seed": block,
        "position": 0,
        "attempt": 1,
        "block": f"b{block}",
        "reason": None if rate is not None else "RuntimeError: simulated",
        "started_at": f"2026-01-05T{9 + block // 60:02d}:{block % 60:02d}:00+00:00",
        "config": config,
        "effective": _effective(config, fields.pop("effective", {})),
        "metrics": {name: Reading(**metric) for name, metric in fields.pop("metrics", plain).items()},
        "hardware": HardwareKind.of(fields.pop("hardware", {"host": "Xeon"})),
        "software": {"torch": "2.13.0"},
        "environment": {"before": {"host": "node1"}},
        "outcome": Outcome(fields.pop("outcome", "measured" if rate is not None else "crashed")),
        "doubts": tuple(Doubt(**doubt) for doubt in fields.pop("doubts", ())),
        "record_sha256": sha256_text(f"{setting} {block} {rate}"),
    }
    return RunRow(**row | fields)


def _effective(config: SettingConfig, changes: Mapping[str, Any]) -> Effective:
    own = {
        "accelerator": config.accelerator,
        "device_names": ["Xeon"],
        "world_size": config.world_size,
        "num_nodes": config.num_nodes,
        "precision": config.precision,
        "strategy": "auto",
        "loop": config.loop,
        "launcher": config.launcher,
        "threads_per_rank": 1,
        "batch_size": config.batch_size,
        "global_batch_size": config.samples_per_step,
        "warmup_steps": config.measure.warmup_steps,
        "window_steps": config.measure.min_steps,
        "optimizer": "SGD",
    }
    stated = {**own, **changes}
    return Effective(**{**stated, "device_names": tuple(stated["device_names"])})
