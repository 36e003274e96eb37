"""The two documents between a supervisor and its ranks: the run's spec, and its ending on one rank.

The supervisor writes a `RunSpec` into the attempt's folder. Each rank reads nothing else, and answers with a
`RankResult` in `rank-R.json`. It writes that before its process group is torn down. So the first cause of a failure is
on disk before its echoes on other ranks.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field

from accelsweep.config.schema import CellConfig
from accelsweep.devices.memory_limits import MemoryLimit
from accelsweep.json_documents import Document
from accelsweep.records.layout import PROGRESS_FILE
from accelsweep.records.plan import Run
from accelsweep.records.run_record import Breakdown, Doubt, Effective, Metric, Outcome, Traits

ErrorKind = Literal["none", "out_of_memory", "diverged", "user_exception", "collective", "unsupported"]
"""The cause of a rank's end. Where ranks disagree, the first in `PRECEDENCE` is the run's."""

PRECEDENCE: tuple[ErrorKind, ...] = (
    "out_of_memory",
    "diverged",
    "unsupported",
    "user_exception",
    "collective",
    "none",
)
"""The order of ranks' endings that explain the run: the peers of a failing rank see a collective error."""

ANY_FAILURE: frozenset[ErrorKind] = frozenset({"none", "out_of_memory", "unsupported", "user_exception", "collective"})
"""The failures after a window that its rate survives. `none` are those without a word: a death, a limit of time.

A loss that is no number is another answer to the same question, not a failure.
"""


class RunSpec(Document):
    """One attempt at one run, for its ranks.

    `config` is the cell's frozen scientific config and `axes` its swept keys. `run.seed` seeds this repeat.
    `world_size` is the number of ranks on all nodes. `attempt_folder` is an absolute path, the same on every node.
    `threads` are the CPU threads of each rank if the plan fixes them; None shares the cores of a node among ranks.
    `ceilings` is the file in which the runs of a block keep their measured matmul ceilings; None keeps none.
    `silence_seconds` is how long the supervisor lets a rank be without a step; None lets it be.
    `run_seconds` is the time limit of the run; None has none.
    `device_models` are the models of devices that may run it; empty for any.
    `room` is for a search for the largest batch: the bytes that a rank may take on its host, and the limit that sets
    them. None leaves it to the rank.
    `instead` is a function (spec, place, account) that runs in place of the measurement, as a target of the registry,
    and takes so many `steps` after the warm-up; None measures.
    """

    kind: ClassVar[str] = "run-spec"

    sweep: str
    block: str
    run: Run
    position: int
    attempt: int
    config: CellConfig
    axes: dict[str, Any]
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

    def file(self) -> Path:
        """The path of the spec itself: `run-spec.json` in the attempt's folder."""
        return Path(self.attempt_folder) / "run-spec.json"

    def rank_result(self, rank: int) -> Path:
        """The path of rank `rank`'s `RankResult`."""
        return Path(self.attempt_folder) / f"rank-{rank}.json"

    def rank_steps(self, rank: int) -> Path:
        """The path of rank `rank`'s steps: rank, step, phase, step_seconds, samples, train_loss."""
        return Path(self.attempt_folder) / f"rank-{rank}.steps.parquet"

    def rank_window(self, rank: int) -> Path:
        """The path of rank `rank`'s result as its window closed, in case that it ends later without a word."""
        return Path(self.attempt_folder) / f"rank-{rank}.window.json"

    def progress(self) -> Path:
        """The path of rank 0's number of finished steps: 8 bytes, a little-endian signed integer."""
        return Path(self.attempt_folder) / PROGRESS_FILE

    def scratch(self) -> Path:
        """The path of a folder for what user code writes beside its logs; it is removed when the run ends."""
        return Path(self.attempt_folder) / "scratch"

    def pulse(self, rank: int) -> Path:
        """The path of rank `rank`'s signs of life (`records.sweep_progress`)."""
        return Path(self.attempt_folder) / f"pulse-{rank}"


class RankResult(Document):
    """The ending of a run on one rank.

    `metrics` and `effective` of rank 0 are the run's: values of all ranks (rate, skew, memory) were gathered before
    they were computed. Other ranks state their own. `outcome` and `reason` obey the record's rule: `measured` has no
    reason, everything else has one. `traceback` shows the user's code, without the harness's frames where there are
    any. `rate_stands` says that the window was measured and that its numbers hold although something failed later;
    `place` is where in the user's code that was. `extra` is the result of what ran in place of a measurement.
    """

    kind: ClassVar[str] = "rank-result"

    rank: int
    outcome: Outcome
    reason: str | None
    error_kind: ErrorKind
    traceback: str | None = None
    rate_stands: bool = False
    place: str | None = None
    effective: Effective | None = None
    metrics: dict[str, Metric] = Field(default_factory=dict)
    environment: dict[str, dict[str, Any]] = Field(default_factory=dict)
    doubts: tuple[Doubt, ...] = ()
    breakdown: Breakdown | None = None
    traits: Traits | str | None = None
    extra: dict[str, Any] | None = None
