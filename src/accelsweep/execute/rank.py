"""One rank of one run: from the frozen config to `rank-R.json` and `rank-R.steps.parquet`.

torch and Lightning are imported inside the functions, so that a supervisor that has them already pays nothing and a
parent that must not have them never gets them. `python -m accelsweep.execute.rank SPEC` runs a rank in an interpreter
of its own.
"""

from __future__ import annotations

import math
import os
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from accelsweep.core.breakdown import Breakdown
from accelsweep.core.outcome import Outcome
from accelsweep.core.record import Doubt, Effective, Metric
from accelsweep.execute import kernel
from accelsweep.execute.errors import OUTCOME_OF, Diverged, classify, interrupted, reason_of, traceback_of
from accelsweep.execute.process import (
    Place,
    fresh_compile_cache,
    keeps_compile_cache,
    leave_group,
    share_of_cores,
    use_threads,
)
from accelsweep.execute.progress import Progress
from accelsweep.execute.spec import RankResult, RunSpec
from accelsweep.measure import doubts
from accelsweep.measure.clock import monotonic
from accelsweep.measure.environment import environment

if TYPE_CHECKING:
    import torch


def preload() -> None:
    """Import everything that a rank will need, so that forked ranks need not. Runs no operation, touches no device."""
    import lightning.pytorch  # noqa: F401
    import torch.distributed  # noqa: F401

    import accelsweep.execute.counting
    import accelsweep.execute.measuring
    import accelsweep.execute.probing
    import accelsweep.execute.quality
    import accelsweep.execute.raw_loop
    import accelsweep.execute.steps
    import accelsweep.execute.trainer
    import accelsweep.measure.device  # noqa: F401


def run_rank(spec: RunSpec) -> None:
    """Run this process's rank of `spec` and leave its result in the attempt's folder.

    The environment holds RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT and NODE_RANK. An error of the user's
    code is a result, never an exception: its traceback goes to stderr and into the result, which is on disk before the
    process group is torn down. Only signals and a disk that cannot be written end this otherwise.
    """
    place = Place.of(spec)
    ending = _Ending()
    with fresh_compile_cache(spec):
        try:
            _measure(spec, place, ending)
        except (Exception, SystemExit) as error:
            if interrupted(error):
                raise  # whoever sent the signal knows why, and records it
            ending.failed(error)
        ending.result(place.rank).write(spec.rank_result(place.rank))
        leave_group()


class _Ending:
    """What is known of the run so far; whatever interrupts it, this much is recorded."""

    def __init__(self) -> None:
        self.metrics: dict[str, Metric] = {}
        self.environment: dict[str, dict[str, Any]] = {}
        self.effective: Effective | None = None
        self.doubts: list[Doubt] = []
        self.breakdown: Breakdown | None = None
        self._error: BaseException | None = None

    def failed(self, error: BaseException) -> None:
        """Keep the error and show it."""
        self._error = error
        traceback.print_exception(error, file=sys.stderr)

    def result(self, rank: int) -> RankResult:
        """Return all of it as the rank's document."""
        error = self._error
        kind = "none" if error is None else classify(error)
        return RankResult(
            rank=rank,
            outcome=Outcome.measured if error is None else OUTCOME_OF[kind],
            reason=None if error is None else reason_of(error),
            error_kind=kind,
            traceback=None if error is None else traceback_of(error),
            effective=self.effective,
            metrics=self.metrics,
            environment=self.environment,
            doubts=tuple(self.doubts),
            breakdown=self.breakdown,
        )


def _measure(spec: RunSpec, place: Place, ending: _Ending) -> None:
    preload()
    from accelsweep.execute.loops import make_loop
    from accelsweep.execute.measuring import device_uuids, measure
    from accelsweep.execute.quality import measure_quality
    from accelsweep.execute.steps import write_steps
    from accelsweep.workloads.build import make_importable

    make_importable()
    began = monotonic()
    use_threads(share_of_cores(spec, place))
    loop = make_loop(spec)
    uuids = device_uuids(loop.device)
    ending.environment["before"] = environment(uuids)
    measured = measure(spec, loop, place, Progress(spec.progress()) if place.rank == 0 else None)
    ending.environment["after"] = environment(uuids)
    ending.effective, ending.metrics = measured.effective, measured.metrics
    ending.metrics["load_seconds"] = _seconds(measured.window.began_at - began)
    ending.metrics["first_step_seconds"] = _named(ending.metrics["first_step_seconds"], spec)
    ending.environment |= measured.states
    seen = ending.environment
    ending.doubts += [
        *measured.doubts,
        *doubts.between(seen.get("opened", seen["before"]), seen.get("closed", seen["after"])),
    ]
    write_steps(spec.rank_steps(place.rank), place.rank, measured.window)
    if measured.diverged_at is not None:
        raise Diverged(f"the loss was not finite at step {measured.diverged_at}")
    device, example, logged = loop.device, loop.example, loop.logged
    del loop
    _after_the_window(spec, place, ending, device, example)
    quality = measure_quality(spec)
    ending.metrics |= quality.metrics
    ending.metrics |= {f"logged.{name}": _logged(value) for name, value in (logged | quality.logged).items()}


def _after_the_window(spec: RunSpec, place: Place, ending: _Ending, device: torch.device, example: Any) -> None:
    """Probe, count and compare with the ceiling: everything that may take time now that the window is closed."""
    from accelsweep.execute.counting import count_operations
    from accelsweep.execute.probing import probe, release

    release(device)
    probed = probe(spec, ending.metrics["step_seconds"].value or math.inf)
    ending.breakdown = probed.breakdown
    ending.metrics |= probed.metrics
    release(device)
    rate, effective = ending.metrics["samples_per_second"].value, ending.effective
    if place.rank == 0 and effective is not None and rate is not None:
        ending.metrics |= count_operations(spec, device, example, effective, rate)


def _seconds(value: float) -> Metric:
    return Metric(value=value, unit="s", scope="rank 0: module, data, device; imports excluded", provenance="clock")


def _named(first_step: Metric, spec: RunSpec) -> Metric:
    cache = "warm cache" if keeps_compile_cache(spec) else "compile caches empty"
    return first_step.model_copy(update={"scope": f"{first_step.scope}, {cache}"})


def _logged(value: float) -> Metric:
    if math.isfinite(value):
        return Metric(value=value, unit="as logged", scope="logged by the module")
    return Metric(value=None, unit="as logged", reason=f"the module logged {value}", scope="logged by the module")


def main(spec_path: str) -> None:
    """Run the rank that the environment names, of the spec at `spec_path`, in this interpreter."""
    kernel.die_with_parent(os.getppid())
    run_rank(RunSpec.read(Path(spec_path)))


if __name__ == "__main__":
    main(sys.argv[1])
