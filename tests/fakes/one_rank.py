"""One run without an executor: configs of tiny workloads, and all ranks of a spec as processes."""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import socket
import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoints, entry_points
from pathlib import Path

import pytest
import warm
from polling import PATIENCE_SECONDS

from accelsweep.config.schema import checked_config
from accelsweep.records.run_files import read_rank_result
from accelsweep.results import RankResult
from accelsweep.run_config import Run
from accelsweep.worker.run_spec import RunSpec

TIMED = {"_target_": "accelsweep.testing.calibration.TimedStep", "seconds": 0.002}
TIMED_DATA = {"_target_": "accelsweep.testing.calibration.TimedData"}
MLP = {"_target_": "accelsweep.workloads.image_models.MLP", "width": 16}
DIGITS = {"_target_": "accelsweep.workloads.datasets.Digits"}
SGD = {"_target_": "torch.optim.SGD", "_partial_": True, "lr": 0.1}
MEASURE = {"warmup_steps": 4, "min_steps": 20, "min_seconds": 0.05, "max_steps": 40, "quality_samples": None}
CONFIG = {
    "accelerator": "cpu",
    "devices": 1,
    "num_nodes": 1,
    "batch_size": 8,
    "precision": "32-true",
    "seed": 0,
    "loop": "lightning",
    "launcher": "fork",
    "threads": 1,
    "env": {},
    "task": "train_throughput",
    "model": TIMED,
    "data": TIMED_DATA,
    "optimizer": SGD,
    "trainer": {"strategy": "auto"},
    "measure": MEASURE,
}
BOTH_LOOPS = pytest.mark.parametrize("loop", ["lightning", "raw"])


def make_spec(
    folder: Path, seed: int = 1, axes: dict[str, object] | None = None, ceilings: Path | None = None, **changes: object
) -> RunSpec:
    """Return the document of a run whose ranks write into `folder`; `changes` are its config's."""
    config = checked_config({**CONFIG, **changes})
    return RunSpec(
        sweep="s",
        block="b",
        run=Run.of("0123456789ab", 0, seed),
        planned_position=0,
        position=0,
        attempt=1,
        config=config,
        axes=axes or {},
        world_size=config.world_size,
        attempt_folder=str(folder),
        ceiling_cache=str(ceilings) if ceilings else None,
    )


@functools.cache
def _entry_points(group: str) -> EntryPoints:
    return entry_points(group=group)


@contextlib.contextmanager
def place_of_a_rank(folder: Path) -> Iterator[None]:
    """Let this process be the only rank of a run in `folder`.

    A rank looks for garbage at least twice, which takes 0.2 s and more with all that tests have imported: that is put
    aside, as an executor does before it forks ranks. Each Trainer looks for callbacks among the entry points of all
    packages, which do not change here: 30 ms each time.
    """
    import torch
    from lightning.fabric.utilities import registry

    gc.collect()
    gc.freeze()
    threads = torch.get_num_threads()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "OMP_NUM_THREADS": "1"}.items():
            patch.setenv(name, value)
        patch.setattr(registry, "entry_points", _entry_points)
        patch.setattr(sys, "path", list(sys.path))
        patch.setattr(sys, "argv", ["rank", "spec.json"])
        patch.chdir(folder)
        yield
    torch.set_num_threads(threads)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def run_ranks(made: RunSpec, folder: Path) -> list[RankResult]:
    """Run all ranks of a spec, each in a process of its own; return their results by rank."""
    made.write()
    shared = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "NODE_RANK": "0"}
    logs = [folder / f"rank-{rank}.log" for rank in range(made.world_size)]
    processes = [
        warm.start(
            "accelsweep.worker.main",
            str(made.file()),
            cwd=folder,
            environment={**shared, "WORLD_SIZE": str(made.world_size), "RANK": str(rank), "LOCAL_RANK": str(rank)},
            output=log,
        )
        for rank, log in enumerate(logs)
    ]
    said = [
        (warm.ended(process, PATIENCE_SECONDS), log.read_text()) for process, log in zip(processes, logs, strict=True)
    ]
    assert [code for code, _ in said] == [0] * made.world_size, said
    return [read_rank_result(made.rank_result(rank)) for rank in range(made.world_size)]
