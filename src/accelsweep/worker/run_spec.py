"""The spec of a run: the JSON file in the attempt's folder that the ranks read.

It is a rank's only input. A rank writes its `RankResult` to `rank-R.json` before destroying its process group, so that
the root cause of a failure is on disk before the collective errors that it causes on other ranks. The executor
validates the results.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from accelsweep.devices.memory_limits import MemoryLimit
from accelsweep.errors import DamagedFile
from accelsweep.files import write_json
from accelsweep.heartbeat import PROGRESS_FILE
from accelsweep.run_config import Run, SettingConfig


@dataclass(frozen=True)
class RunSpec:
    """One attempt at a run, as read by its ranks.

    `config` is the setting's frozen scientific config, `axes` contains its swept keys, and `run.seed` is the seed of
    this repeat. `world_size` is the number of ranks across all nodes. `attempt_folder` is an absolute path, the same on
    every node.
    `threads`: CPU threads per rank if set by the plan; None divides a node's cores among its ranks.
    `ceiling_cache`: the file that caches the matmul ceilings measured in this block; None disables the cache.
    `silence_seconds`: how long a rank may go without completing a step before the watchdog acts; None disables the
    watchdog.
    `run_seconds`: the run's time limit; None for no limit.
    `device_models`: the device models on which the run may be measured; if empty, any model is accepted.
    `host_memory`: for a batch size search, the host memory in bytes per rank and the limit that determines it; if
    None, the rank determines both.
    `substitute`: the registry target of a function (spec, place, report) that is called instead of measuring and
    performs `extra_steps` after the warm-up; if None, the run is measured.
    `position` counts the attempts that the block made before this one, and `planned_position` is the run's index in the
    block's order.
    `quality_put_off`: why this repeat has no quality phase although the setting has one; None if it has one.
    `any_batch_size`: whether the first batch may have another size than the config's.
    """

    sweep: str
    block: str
    run: Run
    planned_position: int
    position: int
    attempt: int
    config: SettingConfig
    axes: Mapping[str, Any]
    world_size: int
    attempt_folder: str
    threads: int | None = None
    ceiling_cache: str | None = None
    silence_seconds: float | None = None
    run_seconds: float | None = None
    device_models: tuple[str, ...] = ()
    host_memory: tuple[int, MemoryLimit] | None = None
    substitute: str | None = None
    extra_steps: int = 0
    any_batch_size: bool = False
    quality_put_off: str | None = None

    def write(self) -> None:
        """Write the spec to its attempt's folder."""
        write_json(self.file(), asdict(self))

    @classmethod
    def read(cls, path: Path) -> RunSpec:
        """Return the spec that `write` wrote to `path`. Raises FileNotFoundError, or DamagedFile if it is invalid."""
        try:
            written = json.loads(path.read_bytes().decode("utf-8", "surrogatepass"))
            typed = {
                "run": Run(**written["run"]),
                "config": SettingConfig.from_json(written["config"]),
                "device_models": tuple(written["device_models"]),
                "host_memory": written["host_memory"] and tuple(written["host_memory"]),
            }
            return cls(**{**written, **typed})
        except (ValueError, KeyError, TypeError) as error:
            raise DamagedFile(path, f"not a valid run spec in JSON ({error})") from None

    def file(self) -> Path:
        """Return the path of the spec itself."""
        return Path(self.attempt_folder) / "run-spec.json"

    def rank_result(self, rank: int) -> Path:
        """Return the path of the `RankResult` of rank `rank`."""
        return Path(self.attempt_folder) / f"rank-{rank}.json"

    def rank_steps(self, rank: int) -> Path:
        """Return the path of the file that lists the steps of rank `rank` (`worker.main.write_steps`)."""
        return Path(self.attempt_folder) / f"steps-{rank}.json"

    def rank_window(self, rank: int) -> Path:
        """Return the path of the end-of-window result of rank `rank`, used if the rank dies after its window."""
        return Path(self.attempt_folder) / f"rank-{rank}.window.json"

    def progress(self) -> Path:
        """Return the path of the file with the number of steps that rank 0 has finished (`heartbeat.StepCount`)."""
        return Path(self.attempt_folder) / PROGRESS_FILE

    def scratch(self) -> Path:
        """Return the folder for files that user code writes, such as logger output; removed when the run ends."""
        return Path(self.attempt_folder) / "scratch"

    def heartbeat(self, rank: int) -> Path:
        """Return the path of the heartbeat file of rank `rank`."""
        return Path(self.attempt_folder) / f"heartbeat-{rank}"
