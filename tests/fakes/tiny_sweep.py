"""A planned sweep in one block, with the settings and repeats that an executor's test asks for; and its measuring."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import warm

from accelsweep.config.schema import checked_config
from accelsweep.config.setting import setting_name
from accelsweep.config.site import Site
from accelsweep.config.sweep_options import Limits, Options
from accelsweep.plain_json import canonical_json, sha256_text
from accelsweep.records.layout import SweepFolder
from accelsweep.records.plan import Block, Manifest, PlannedBlock, PlannedSetting
from accelsweep.records.run_record import Record
from accelsweep.run_config import Run, SettingConfig
from accelsweep.schedulers.protocol import Resources

CONFIG: dict[str, Any] = {
    "accelerator": "cpu",
    "devices": 1,
    "num_nodes": 1,
    "batch_size": 32,
    "precision": "32-true",
    "seed": 0,
    "loop": "raw",
    "launcher": "fork",
    "threads": 1,
    "env": {},
    "task": "train_throughput",
    "model": {"_target_": "accelsweep.workloads.image_models.SmallCNN", "width": 8, "depth": 2},
    "data": {"_target_": "accelsweep.workloads.datasets.Digits"},
    "optimizer": {"_target_": "torch.optim.SGD", "_partial_": True, "lr": 0.05},
    "trainer": {"strategy": "auto"},
    "measure": {
        "warmup_steps": 5,
        "min_steps": 20,
        "min_seconds": 0.1,
        "max_steps": 200,
        "quality_samples": None,
        "quality_metric": "val_accuracy",
        "quality_better": "max",
    },
}

LOCAL = Site(name="local")


def config_with(**changes: Any) -> SettingConfig:
    """Return CONFIG with `changes`, those of `measure` key by key, as it is read from a block."""
    measure = changes.get("measure", {})
    whole = {**CONFIG["measure"], **measure} if isinstance(measure, Mapping) else measure
    return checked_config({**CONFIG, **changes, "measure": whole})


def plan_sweep(
    home: Path,
    settings: Sequence[Mapping[str, Any]],
    *,
    repeats: int = 1,
    limits: Mapping[str, Any] | None = None,
    sources: Mapping[str, str] | None = None,
    name: str = "tiny",
    site: Site = LOCAL,
) -> tuple[SweepFolder, Path]:
    """Write manifest and block of a sweep of CONFIG with these changes; return folder and block file."""
    folder = SweepFolder(home, name)
    configs = {
        setting_name(config): checked_config(config) for config in ({**CONFIG, **changes} for changes in settings)
    }
    axes = dict(zip(configs, (dict(changes) for changes in settings), strict=True))
    runs = tuple(Run.of(setting, repeat, 0) for repeat in range(repeats) for setting in configs)
    block_name = "b" + sha256_text(canonical_json([name, [run.name for run in runs]]))[:12]
    block = Block(
        name=block_name, sweep=name, order_seed=0, runs=runs, configs=configs, axes=axes, resources=Resources()
    )
    block.write(folder.block(block_name))
    Manifest(
        sweep=name,
        revision=1,
        experiment=None,
        overrides=(),
        axes=tuple(sorted({key for changes in settings for key in changes})),
        settings=tuple(PlannedSetting(name=setting, axes=axes[setting]) for setting in configs),
        excluded=(),
        baseline=None,
        blocks=(PlannedBlock(name=block_name, runs=tuple(run.name for run in runs), resources=Resources()),),
        options=Options(repeats=repeats, limits=Limits(**(limits or {}))),
        site=site,
        sources=dict(sources or {}),
        versions={},
    ).write(folder.manifest)
    return folder, folder.block(block_name)


def measure_sweep(
    folder: SweepFolder, block: Path, *, within_seconds: float, fresh: bool = False, **environment: str
) -> tuple[list[Record], str]:
    """Measure the block by the executor's own command; return the records as planned, and the command's output.

    Fails if the command fails or takes longer. The machine's leases lie beside the sweep's home, for this test alone. A
    `fresh` interpreter imports torch anew (see warm.py).
    """
    log = folder.home / "executor.log"
    environment = {**os.environ, "ACCELSWEEP_LEASES": str(folder.home.parent / "leases"), **environment}
    if fresh:
        command = [sys.executable, "-m", "accelsweep.executor", str(block)]
        with log.open("wb") as output:
            code = subprocess.call(
                command, cwd=folder.home, env=environment, stdout=output, stderr=output, timeout=within_seconds
            )
    else:
        started = warm.start("accelsweep.executor", str(block), cwd=folder.home, environment=environment, output=log)
        code = warm.ended(started, within_seconds)
    assert code == 0, log.read_text()
    return [Record.read(folder.record(run)) for run in Manifest.read(folder.manifest).wanted_runs()], log.read_text()
