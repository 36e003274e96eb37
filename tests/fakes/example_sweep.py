"""A finished sweep on disk, made of real documents with invented numbers, for collect, the report and the publisher.

It has ten settings on a CPU. Eight run in three blocks of one repeat each; the plan marks the other two as unsupported.
A rule excluded two combinations. Among the 24 runs every outcome occurs: three out of memory, one diverged, one timed
out, one crashed, one without a record. The rates follow a simple law with 0.3 % noise from a fixed seed, so that the
verdicts are known. Two devices beat one, bf16-mixed loses to 32-true, batch 128 beats batch 32.
"""

from __future__ import annotations

import os
import random
import shutil
import tempfile
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from accelsweep.config.setting import setting_name
from accelsweep.config.site import Site
from accelsweep.config.sweep_options import Analysis, Options
from accelsweep.devices.device_kind import Device
from accelsweep.files import sha256_file
from accelsweep.metrics import Metric
from accelsweep.plain_json import canonical_json, sha256_text
from accelsweep.records.layout import SweepFolder
from accelsweep.records.plan import Block, Done, Excluded, Manifest, PlannedBlock, PlannedSetting
from accelsweep.records.run_record import Record
from accelsweep.results import Doubt, Effective, Fingerprint, Outcome
from accelsweep.run_config import Run
from accelsweep.schedulers.protocol import Resources

AXES = ("devices", "batch_size", "precision")
BASELINE = {"devices": 1, "batch_size": 32, "precision": "32-true"}
WARMUP_STEPS, WINDOW_STEPS = 5, 40
START = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)

FINGERPRINT = Fingerprint(
    hardware={"host": "Intel Xeon (example)"},
    software={"torch": "2.13.0", "lightning": "2.6.6"},
    builds={"torch": "cpu"},
    sources={},
)


def build_example_sweep(home: Path, name: str = "example", repeats: int = 3) -> SweepFolder:
    """Write the sweep below `home` and return its folder: manifest, blocks, done files, records, steps and logs."""
    made, folder = SweepFolder(Path(_first(name, repeats).name), name), SweepFolder(home, name)
    shutil.copytree(made.root, folder.root, copy_function=shutil.copyfile)
    return folder


@cache
def _first(name: str, repeats: int) -> tempfile.TemporaryDirectory[str]:
    """Write the sweep into a folder of this process, once: a hundred tests want a copy."""
    home = tempfile.TemporaryDirectory(prefix="example-", dir=os.environ.get("TESTS_SHARED_FOLDER"))
    folder = SweepFolder(Path(home.name), name)
    configs = {setting_name(config_of(axes)): config_of(axes) for axes in _grid() if axes["precision"] != "16-mixed"}
    axes_of = {setting: {key: config[key] for key in AXES} for setting, config in configs.items()}
    blocks = [_block(name, repeat, configs, axes_of) for repeat in range(repeats)]
    for block in blocks:
        block.write(folder.block(block.name))
    _manifest(name, blocks, repeats).write(folder.manifest)
    generator = random.Random(7)
    for number, block in enumerate(blocks):
        written = {}
        for position, run in enumerate(block.runs):
            record = _record(
                block, run, position, START + timedelta(minutes=10 * number, seconds=20 * position), generator
            )
            if record is not None:
                _write_run(folder, record)
                written[run.name] = sha256_file(folder.record(run.name))
        Done(block=block.name, records=written).write(folder.done(block.name))
    return home


def config_of(axes: dict[str, Any]) -> dict[str, Any]:
    """Return the scientific config of the setting with these values on the axes."""
    return {
        "accelerator": "cpu",
        "num_nodes": 1,
        "seed": 0,
        "loop": "lightning",
        "launcher": "fork",
        "threads": 1,
        "env": {},
        "task": "train_throughput",
        "model": {"_target_": "accelsweep.workloads.image_models.SmallCNN", "width": 16},
        "data": {"_target_": "accelsweep.workloads.datasets.Digits"},
        "optimizer": {"_target_": "torch.optim.SGD", "_partial_": True, "lr": 0.05},
        "trainer": {"strategy": "auto"},
        "measure": {
            "warmup_steps": WARMUP_STEPS,
            "min_steps": WINDOW_STEPS,
            "min_seconds": 1.0,
            "max_steps": 10_000,
            "quality_samples": 4096,
            "quality_metric": "val_accuracy",
            "quality_better": "max",
        },
        **axes,
    }


def _grid() -> list[dict[str, Any]]:
    """All supported and unsupported combinations, in grid order; 16-mixed at batch 128 is excluded."""
    combinations = product((1, 2), (32, 128), ("32-true", "bf16-mixed", "16-mixed"))
    return [
        {"devices": devices, "batch_size": batch_size, "precision": precision}
        for devices, batch_size, precision in combinations
        if not (precision == "16-mixed" and batch_size == 128)
    ]


def _block(sweep: str, repeat: int, configs: dict[str, Any], axes: dict[str, Any]) -> Block:
    runs = [Run.of(setting, repeat, 0) for setting in configs]
    random.Random(repeat).shuffle(runs)
    name = "b" + sha256_text(canonical_json([sweep, [run.name for run in runs]]))[:12]
    resources = Resources(cpus=2, minutes=90)
    return Block(
        name=name, sweep=sweep, order_seed=repeat, runs=tuple(runs), configs=configs, axes=axes, resources=resources
    )


def _manifest(name: str, blocks: list[Block], repeats: int) -> Manifest:
    why = "16-mixed is not available on a CPU; use bf16-mixed, or accelerator=cuda"
    return Manifest(
        sweep=name,
        revision=1,
        experiment="example",
        overrides=("experiment=example", "devices=1,2", "batch_size=32,128", "precision=32-true,bf16-mixed,16-mixed"),
        axes=AXES,
        settings=tuple(
            PlannedSetting(
                name=setting_name(config_of(axes)),
                axes=axes,
                unsupported=why if axes["precision"] == "16-mixed" else None,
            )
            for axes in _grid()
        ),
        excluded=tuple(
            Excluded(axes={"devices": devices, "batch_size": 128, "precision": "16-mixed"}, because="not of interest")
            for devices in (1, 2)
        ),
        baseline=setting_name(config_of(BASELINE)),
        blocks=tuple(
            PlannedBlock(name=block.name, runs=tuple(run.name for run in block.runs), resources=block.resources)
            for block in blocks
        ),
        options=Options(repeats=repeats, baseline=BASELINE, analysis=Analysis()),
        site=Site(
            name="local",
            probe=True,
            inventory=(Device(accelerator="cpu", model="Intel Xeon (example)", count=2, memory_bytes=8_000_000_000),),
        ),
        sources={},
        versions={"accelsweep": "0.1.0", "torch": "2.13.0", "lightning": "2.6.6"},
    )


def _record(block: Block, run: Run, position: int, start: datetime, generator: random.Random) -> Record | None:
    """Return the record of this run, or None for the run that left none."""
    axes = block.axes[run.setting]
    outcome, reason = _ending(axes, run.repeat)
    noise = generator.gauss(0.0, 0.003)
    if outcome is Outcome.not_run:
        return None
    wall_seconds = 4.0 if outcome is Outcome.measured else 1.5
    return Record(
        sweep=block.sweep,
        block=block.name,
        run=run.name,
        setting=run.setting,
        repeat=run.repeat,
        seed=run.seed,
        planned_position=position,
        position=position,
        attempt=1,
        axes=axes,
        config=block.configs[run.setting],
        outcome=outcome,
        reason=reason,
        started_at=start.isoformat(),
        finished_at=(start + timedelta(seconds=wall_seconds)).isoformat(),
        wall_seconds=wall_seconds,
        effective=effective_of(axes) if outcome is Outcome.measured else None,
        metrics=_metrics(axes, noise, run.repeat) if outcome is Outcome.measured else {},
        fingerprint=FINGERPRINT,
        environment={
            "before": {
                "host": "example-host",
                "memory_bytes": 8_000_000_000,
                "system": "Linux-6.1",
                "python": "3.11.9",
            },
            "after": {"host": "example-host", "load_average_1min": 1.0},
        },
        git={"commit": "0" * 40, "dirty": False},
        doubts=_doubts(axes, run.repeat),
    )


def _ending(axes: dict[str, Any], repeat: int) -> tuple[Outcome, str | None]:
    point = (axes["devices"], axes["batch_size"], axes["precision"])
    if point == (2, 128, "32-true"):
        return Outcome.out_of_memory, "CPU allocator: cannot allocate 1073741824 bytes"
    return {
        ((2, 128, "bf16-mixed"), 0): (Outcome.diverged, "the loss became NaN at step 12"),
        ((2, 128, "bf16-mixed"), 1): (Outcome.timed_out, "still running after 600 s"),
        ((1, 128, "bf16-mixed"), 2): (Outcome.crashed, "RuntimeError: <script>alert('user text')</script> & more"),
        ((2, 32, "bf16-mixed"), 2): (Outcome.not_run, None),
    }.get((point, repeat), (Outcome.measured, None))


def _doubts(axes: dict[str, Any], repeat: int) -> tuple[Doubt, ...]:
    if axes["devices"] == 2 and axes["precision"] == "32-true" and repeat == 1:
        message = "other processes used 35 % of the CPU during the window"
        return (Doubt(code="busy_cpu", message=message, remedy="stop other work on this machine and measure again"),)
    return ()


def effective_of(axes: dict[str, Any]) -> Effective:
    """Return the settings in force in a run of the example at these values of its axes."""
    return Effective(
        accelerator="cpu",
        device_names=("Intel Xeon (example)",),
        world_size=axes["devices"],
        num_nodes=1,
        precision=axes["precision"],
        strategy="single_device" if axes["devices"] == 1 else "ddp",
        loop="lightning",
        launcher="fork",
        threads_per_rank=1,
        batch_size=axes["batch_size"],
        global_batch_size=axes["batch_size"] * axes["devices"],
        warmup_steps=WARMUP_STEPS,
        window_steps=WINDOW_STEPS,
        optimizer="SGD",
    )


def _metrics(axes: dict[str, Any], noise: float, repeat: int) -> dict[str, Metric]:
    global_batch = axes["batch_size"] * axes["devices"]
    rate = 8000.0 * (1.0 + noise) * (1.8 if axes["devices"] == 2 else 1.0)
    rate *= 1.25 if axes["batch_size"] == 128 else 1.0
    rate *= 0.6 if axes["precision"] == "bf16-mixed" else 1.0
    step_seconds = global_batch / rate
    memory = 3.0e7 * axes["devices"] + 2.0e5 * global_batch * (0.6 if axes["precision"] == "bf16-mixed" else 1.0)
    accuracy = 0.95 + 0.003 * repeat - (0.004 if axes["precision"] == "bf16-mixed" else 0.0)
    return {
        "samples_per_second": Metric(value=rate, unit="1/s", scope="all ranks", provenance="clock"),
        "step_seconds": Metric(value=step_seconds, unit="s", provenance="clock"),
        "window_seconds": Metric(value=step_seconds * WINDOW_STEPS, unit="s", provenance="clock"),
        "window_steps": Metric(value=WINDOW_STEPS, unit="1"),
        "window_samples": Metric(value=WINDOW_STEPS * global_batch, unit="1", scope="all ranks"),
        "load_seconds": Metric(value=0.2, unit="s", provenance="clock"),
        "first_step_seconds": Metric(value=3 * step_seconds, unit="s", provenance="clock"),
        "step_seconds_p50": Metric(value=step_seconds, unit="s", provenance="clock"),
        "step_seconds_p99": Metric(value=None, unit="s", reason="40 steps were timed; a 99th percentile needs 1000"),
        "peak_memory_allocated_bytes": Metric(value=None, unit="B", reason="torch counts no allocations on a CPU"),
        "host_pss_bytes": Metric(value=memory, unit="B", scope="process group", provenance="counter"),
        "energy_joules": Metric(value=None, unit="J", reason="unavailable: RAPL is not readable here"),
        "final_train_loss": Metric(value=0.3 + 0.01 * repeat, unit="1"),
        "quality": Metric(value=accuracy, unit="val_accuracy", provenance="4096 samples"),
        "quality_seconds": Metric(value=0.8, unit="s", provenance="clock"),
    }


def _write_run(folder: SweepFolder, record: Record) -> None:
    folder.run(record.run).mkdir(parents=True)
    lines = [f"run {record.run}: {record.outcome}", *([record.reason] if record.reason else [])]
    (folder.run(record.run) / "run.log").write_text("\n".join(lines) + "\n", "utf-8")
    if record.outcome is Outcome.measured:
        pq.write_table(_steps(record), folder.steps(record.run))
    record.write(folder.record(record.run))


def _steps(record: Record) -> pa.Table:
    """Return the raw steps of all ranks: a slow first step, then a small ripple around the mean."""
    step_seconds = record.metrics["step_seconds"].value
    assert step_seconds is not None
    rows = [
        {
            "rank": rank,
            "step": step,
            "phase": "warmup" if step < WARMUP_STEPS else "window",
            "step_seconds": step_seconds * (3.0 if step == 0 else 1.0 + 0.02 * ((step % 5) - 2)),
            "samples": int(record.axes["batch_size"]),
            "train_loss": 2.3 / (1 + step / 10) if rank == 0 else None,
        }
        for rank in range(int(record.axes["devices"]))
        for step in range(WARMUP_STEPS + WINDOW_STEPS)
    ]
    types = {"rank": pa.int32(), "step": pa.int64(), "step_seconds": pa.float64(), "samples": pa.int64()}
    schema = pa.schema([(key, types.get(key, pa.float64() if key == "train_loss" else pa.string())) for key in rows[0]])
    return pa.Table.from_pylist(rows, schema=schema)
