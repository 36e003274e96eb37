"""The spec of a run: the JSON file in the attempt's folder that its ranks read.

Each rank reads nothing else, and answers with a `RankResult` in `rank-R.json`. It writes that before its process group
is torn down, so the first cause of a failure is on disk before its echoes on other ranks. The executor validates the
results.
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
    """One attempt at one run, for its ranks.

    `config` is the setting's frozen scientific config and `axes` its swept keys. `run.seed` seeds this repeat.
    `world_size` is the number of ranks on all nodes. `attempt_folder` is an absolute path, the same on every node.
    `threads` are the CPU threads of each rank if the plan fixes them; None shares the cores of a node among ranks.
    `ceilings` is the file in which the runs of a block keep their measured matmul ceilings; None keeps none.
    `silence_seconds` is how long the executor lets a rank be without a step; None lets it be.
    `run_seconds` is the time limit of the run; None has none.
    `device_models` are the models of devices that may run it; empty for any.
    `room` is for a search for the largest batch: the bytes that a rank may take on its host, and the limit that sets
    them. None leaves it to the rank.
    `instead` is a function (spec, place, account) that runs in place of the measurement, as a target of the registry,
    and takes so many `steps` after the warm-up; None measures.
    """

    sweep: str
    block: str
    run: Run
    position: int
    attempt: int
    config: SettingConfig
    axes: Mapping[str, Any]
    world_size: int
    attempt_folder: str
    threads: int | None = None
    ceilings: str | None = None
    silence_seconds: float | None = None
    run_seconds: float | None = None
    device_models: tuple[str, ...] = ()
    room: tuple[int, MemoryLimit] | None = None
    instead: str | None = None
    steps: int = 0

    def write(self) -> None:
        """Write the spec into its attempt's folder."""
        write_json(self.file(), asdict(self))

    @classmethod
    def read(cls, path: Path) -> RunSpec:
        """Return the spec that `write` wrote to `path`. Raises DamagedFile for anything else, FileNotFoundError."""
        try:
            written = json.loads(path.read_bytes().decode("utf-8", "surrogatepass"))
            typed = {
                "run": Run(**written["run"]),
                "config": SettingConfig.from_json(written["config"]),
                "device_models": tuple(written["device_models"]),
                "room": written["room"] and tuple(written["room"]),
            }
            return cls(**{**written, **typed})
        except (ValueError, KeyError, TypeError) as error:
            raise DamagedFile(path, f"not a whole JSON document of a run's spec ({error})") from None

    def file(self) -> Path:
        """The path of the spec itself: `run-spec.json` in the attempt's folder."""
        return Path(self.attempt_folder) / "run-spec.json"

    def rank_result(self, rank: int) -> Path:
        """The path of rank `rank`'s `RankResult`."""
        return Path(self.attempt_folder) / f"rank-{rank}.json"

    def rank_steps(self, rank: int) -> Path:
        """The path of rank `rank`'s steps (`worker.main.write_steps`)."""
        return Path(self.attempt_folder) / f"steps-{rank}.json"

    def rank_window(self, rank: int) -> Path:
        """The path of rank `rank`'s result as its window closed, in case that it ends later without a word."""
        return Path(self.attempt_folder) / f"rank-{rank}.window.json"

    def progress(self) -> Path:
        """The path of rank 0's number of finished steps (`heartbeat.StepCount`)."""
        return Path(self.attempt_folder) / PROGRESS_FILE

    def scratch(self) -> Path:
        """The path of a folder for what user code writes beside its logs; it is removed when the run ends."""
        return Path(self.attempt_folder) / "scratch"

    def heartbeat(self, rank: int) -> Path:
        """The path of rank `rank`'s heartbeat."""
        return Path(self.attempt_folder) / f"heartbeat-{rank}"
