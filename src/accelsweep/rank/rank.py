"""One rank of one run: from the frozen config to `rank-R.json` and `rank-R.steps.parquet`.

torch and Lightning are imported inside the functions. A supervisor that has them already loses no time, and a parent
that must not have them never gets them. `python -m accelsweep.rank.rank SPEC` runs a rank in an interpreter of its own.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from accelsweep.base.entry import answer, parser_for
from accelsweep.core.recorded.record import Metric
from accelsweep.machine import linux
from accelsweep.measure.clock import monotonic
from accelsweep.measure.surroundings.environment import environment
from accelsweep.rank.account import Account
from accelsweep.rank.compile_cache import fresh_caches, is_warm
from accelsweep.rank.errors import Diverged, interrupted
from accelsweep.rank.own_tree import OwnTree
from accelsweep.rank.process import (
    RankPlace,
    leave_group,
    share_of_cores,
    show_stacks_when_asked,
    use_threads,
)
from accelsweep.rank.spec import RunSpec
from accelsweep.state.progress import StepCount


def preload() -> None:
    """Import everything that a rank will need, so that forked ranks need not. Runs no operation, touches no device."""
    import lightning.pytorch  # noqa: F401
    import pandas as pd  # noqa: F401 - pyarrow asks for it when it writes the steps
    import torch.distributed  # noqa: F401

    from accelsweep.rank import measuring, steps  # noqa: F401
    from accelsweep.rank.tasks import inference, train_throughput  # noqa: F401
    from accelsweep.workloads.building import build  # noqa: F401


def run_rank(spec: RunSpec) -> None:
    """Run this process's rank of `spec` and leave its result in the attempt's folder.

    The environment holds RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT and NODE_RANK. An error of the user's
    code is a result, never an exception. Its traceback goes to stderr and into the result. The result is on disk before
    the process group is torn down. Only signals and an unwritable disk end this otherwise.
    """
    place = RankPlace.of(spec)
    account = Account()
    show_stacks_when_asked()
    with fresh_caches(spec):
        try:
            _work(spec, place, account)
        except (Exception, SystemExit) as error:
            if interrupted(error):
                raise  # the sender of the signal records the reason
            account.failed(error, spec.config.class_column)
        account.result(place.rank).write(spec.rank_result(place.rank))
        if place.rank == 0:
            shutil.rmtree(spec.scratch(), ignore_errors=True)
        leave_group()


def _work(spec: RunSpec, place: RankPlace, account: Account) -> None:
    preload()
    from accelsweep.workloads.building.build import make_importable

    make_importable()
    if (own_tree := OwnTree.of_this_run()) is not None:
        own_tree.put_first()
    began = monotonic()
    use_threads(share_of_cores(spec, place))
    if spec.profile_steps is None:
        _measure(spec, place, account, own_tree, began)
        return
    from accelsweep.rank.profiling import profile

    profile(spec, place, account)
    if own_tree is not None:
        own_tree.refuse_other_modules()


def _measure(spec: RunSpec, place: RankPlace, account: Account, own_tree: OwnTree | None, began: float) -> None:
    from accelsweep.rank.measuring import identities, measure
    from accelsweep.rank.steps import write_steps
    from accelsweep.rank.tasks.task import task_of

    task = task_of(spec, place)
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
    task.after(account)


def _seconds(value: float) -> Metric:
    return Metric(value=value, unit="s", scope="rank 0: module, data, device; imports excluded", provenance="clock")


def _named(first_step: Metric, spec: RunSpec) -> Metric:
    cache = "warm cache" if is_warm(spec) else "compile caches empty"
    return first_step.model_copy(update={"scope": f"{first_step.scope}, {cache}"})


def main(arguments: list[str] | None = None) -> int:
    """Run the rank that the environment names, of the spec that the command line names, in this interpreter."""
    parser = parser_for("rank.rank", "Run one rank of a run.")
    parser.add_argument("spec", type=Path, help="the file of the run's spec")
    spec = parser.parse_args(arguments).spec
    linux.die_with_parent(os.getppid())
    return answer(lambda: run_rank(RunSpec.read(spec)))


if __name__ == "__main__":
    sys.exit(main())
