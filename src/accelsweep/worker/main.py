"""One rank of one run: from the frozen config to `rank-R.json` and `rank-R.steps.parquet`.

torch and Lightning are imported inside the functions. A supervisor that has them already loses no time, and a parent
that must not have them never gets them. `python -m accelsweep.worker.main SPEC` runs a rank in another interpreter.
"""

from __future__ import annotations

import os
import shutil
import sys
import traceback
from pathlib import Path
from types import FrameType

import pyarrow as pa
import pyarrow.parquet as pq

from accelsweep import registry
from accelsweep.devices import linux
from accelsweep.devices.clock import monotonic
from accelsweep.measure.machine_state import environment
from accelsweep.measure.window import RankWindow
from accelsweep.records.run_record import Metric
from accelsweep.records.sweep_progress import StepCount
from accelsweep.signals import exit_code_of, parser_for
from accelsweep.worker.errors import Diverged, Exited, interrupted
from accelsweep.worker.measurement import Account
from accelsweep.worker.rank_setup import (
    OwnTree,
    RankPlace,
    before_exits,
    fresh_caches,
    is_warm,
    leave_group,
    share_of_cores,
    show_stacks_when_asked,
    use_threads,
)
from accelsweep.worker.run_spec import RunSpec

# A rank's raw steps on disk: every step's time, samples and loss, warm-up included, so that warm-up stays a view.

SCHEMA = pa.schema(
    [
        ("rank", pa.int32()),
        ("step", pa.int64()),
        ("phase", pa.string()),
        ("step_seconds", pa.float64()),
        ("samples", pa.int64()),
        ("train_loss", pa.float64()),
    ]
)
"""The columns of every steps file; `phase` is `warmup` or `window`, `train_loss` is null where a step gave none."""


def write_steps(path: Path, rank: int, window: RankWindow) -> None:
    """Write one row per step of `window`. The file appears whole: it is renamed into place."""
    count = len(window.step_seconds)
    warmup = window.warmup_steps
    columns = {
        "rank": [rank] * count,
        "step": list(range(count)),
        "phase": ["warmup"] * warmup + ["window"] * (count - warmup),
        "step_seconds": window.step_seconds,
        "samples": window.step_samples,
        "train_loss": window.losses,
    }
    temporary = path.with_name(f".{path.name}.part")
    pq.write_table(pa.table(columns, schema=SCHEMA), temporary, compression="zstd")
    temporary.replace(path)


def preload() -> None:
    """Import everything that a rank will need, so that forked ranks need not. Runs no operation, touches no device."""
    import lightning.pytorch  # noqa: F401
    import pandas as pd  # noqa: F401 - pyarrow asks for it when it writes the steps
    import torch.distributed  # noqa: F401

    from accelsweep.worker import measurement  # noqa: F401
    from accelsweep.worker.tasks import inference, train  # noqa: F401
    from accelsweep.workloads import instantiate  # noqa: F401


def run_rank(spec: RunSpec) -> None:
    """Run this process's rank of `spec` and leave its result in the attempt's folder.

    The environment holds RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT and NODE_RANK. An error of the user's
    code is a result, never an exception. Its traceback goes to stderr and into the result. The result is on disk before
    the process group is torn down. Only signals and an unwritable disk end this otherwise.
    """
    place = RankPlace.of(spec)
    account = Account()
    show_stacks_when_asked()

    def leaving(code: int, frame: FrameType) -> None:
        traceback.print_stack(frame)
        account.failed(Exited(code, frame))
        account.result(place.rank).write(spec.rank_result(place.rank))

    with fresh_caches(spec), before_exits(leaving):
        try:
            _work(spec, place, account)
        except BaseException as error:
            if interrupted(error):
                raise  # the sender of the signal records the reason
            account.failed(error, spec.config.class_column)
        account.result(place.rank).write(spec.rank_result(place.rank))
        if place.rank == 0:
            shutil.rmtree(spec.scratch(), ignore_errors=True)
        leave_group()


def _work(spec: RunSpec, place: RankPlace, account: Account) -> None:
    preload()
    from accelsweep.workloads.instantiate import add_working_directory_to_path

    add_working_directory_to_path()
    del sys.argv[1:]  # a module that reads them as it is imported would take the supervisor's for the user's
    if (own_tree := OwnTree.of_this_run()) is not None:
        own_tree.put_first()
    else:
        os.environ.pop("PYTHONSAFEPATH", None)  # it was for Snakemake, and not for what the user's code starts
    began = monotonic()
    use_threads(share_of_cores(spec, place))
    if spec.instead is None:
        _measure(spec, place, account, own_tree, began)
        return
    registry.load(spec.instead)(spec, place, account)
    if own_tree is not None:
        own_tree.refuse_other_modules()


def _measure(spec: RunSpec, place: RankPlace, account: Account, own_tree: OwnTree | None, began: float) -> None:
    from accelsweep.worker.measurement import identities, measure
    from accelsweep.worker.tasks.task import make_task

    task = make_task(spec, place)
    driver = task.driver()
    if own_tree is not None:
        own_tree.refuse_other_modules()
    kind, asked = driver.device.type, identities(driver.device)
    account.environment["before"] = environment(asked, kind)
    measured = measure(spec, driver, place, StepCount(spec.progress()) if place.rank == 0 else None)
    del driver
    account.environment["after"] = environment(asked, kind)
    if own_tree is not None:
        own_tree.refuse_other_modules()
    account.window_closed(measured)
    account.metrics["load_seconds"] = _seconds(measured.window.began_at - began)
    account.metrics["first_step_seconds"] = _named(account.metrics["first_step_seconds"], spec)
    task.closed(measured, account)
    write_steps(spec.rank_steps(place.rank), place.rank, measured.window)
    if measured.diverged_at is not None:
        raise Diverged(f"the loss was not finite at step {measured.diverged_at}")
    account.rate_survives(task.rate_survives)
    if "none" in task.rate_survives:
        account.result(place.rank).write(spec.rank_window(place.rank))
    task.after(account)


def _seconds(value: float) -> Metric:
    return Metric(value=value, unit="s", scope="rank 0: module, data, device; imports excluded", provenance="clock")


def _named(first_step: Metric, spec: RunSpec) -> Metric:
    cache = "warm cache" if is_warm(spec) else "compile caches empty"
    return first_step.model_copy(update={"scope": f"{first_step.scope}, {cache}"})


def main(arguments: list[str] | None = None) -> int:
    """Run the rank that the environment names, of the spec that the command line names, in this interpreter."""
    parser = parser_for("worker.main", "Run one rank of a run.")
    parser.add_argument("spec", type=Path, help="the file of the run's spec")
    spec = parser.parse_args(arguments).spec
    linux.die_with_parent(os.getppid())
    return exit_code_of(lambda: run_rank(RunSpec.read(spec)))


if __name__ == "__main__":
    sys.exit(main())
