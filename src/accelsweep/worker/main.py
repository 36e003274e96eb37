"""One rank of one run: from the frozen config to `rank-R.json` and `steps-R.json`.

torch and Lightning are imported inside the functions: an executor that forks has them already, and a parent that must
not have them never gets them. `python -m accelsweep.worker.main SPEC` runs a rank in another interpreter.
"""

from __future__ import annotations

import math
import os
import shutil
import sys
import traceback
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import FrameType

from accelsweep import registry
from accelsweep.devices import linux
from accelsweep.devices.clock import monotonic
from accelsweep.files import write_json
from accelsweep.heartbeat import StepCount
from accelsweep.measure.machine_state import environment
from accelsweep.measure.window import RankWindow
from accelsweep.metrics import Metric
from accelsweep.signals import exit_code_of, parser_for
from accelsweep.worker.errors import Diverged, Exited, interrupted
from accelsweep.worker.measurement import Account
from accelsweep.worker.rank_setup import (
    OwnTree,
    RankPlace,
    add_working_directory_to_path,
    before_exits,
    fresh_caches,
    is_warm,
    leave_group,
    share_of_cores,
    show_stacks_when_asked,
    use_threads,
)
from accelsweep.worker.run_spec import RunSpec


def write_steps(path: Path, rank: int, window: RankWindow) -> None:
    """Write every step of `window` as JSON, warm-up included: lists of seconds, samples and losses, a step each.

    A loss is null where a step gave none, and text (`nan`, `inf`) where it is not finite, which JSON cannot hold.
    """
    losses = [loss if loss is None or math.isfinite(loss) else str(loss) for loss in window.losses]
    steps = {"rank": rank, "warmup_steps": window.warmup_steps, "step_seconds": window.step_seconds}
    write_json(path, {**steps, "samples": window.step_samples, "train_loss": losses})


def preload() -> None:
    """Import everything that a rank will need, so that forked ranks need not. Runs no operation, touches no device."""
    import torch.distributed  # noqa: F401

    from accelsweep.worker import measurement  # noqa: F401

    with suppress(ModuleNotFoundError):  # an environment for tasks that train no LightningModule
        import lightning.pytorch  # noqa: F401

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
    add_working_directory_to_path()
    del sys.argv[1:]  # a module that reads them as it is imported would take the executor's for the user's
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
    scope, seconds = "rank 0: module, data, device; imports excluded", measured.window.began_at - began
    account.metrics["load_seconds"] = Metric(value=seconds, unit="s", scope=scope, provenance="clock")
    first_step, cache = account.metrics["first_step_seconds"], "warm cache" if is_warm(spec) else "compile caches empty"
    account.metrics["first_step_seconds"] = replace(first_step, scope=f"{first_step.scope}, {cache}")
    task.closed(measured, account)
    write_steps(spec.rank_steps(place.rank), place.rank, measured.window)
    if measured.diverged_at is not None:
        raise Diverged(f"the loss was not finite at step {measured.diverged_at}")
    account.rate_survives(task.rate_survives)
    if "none" in task.rate_survives:
        account.result(place.rank).write(spec.rank_window(place.rank))
    task.after(account)


def main(arguments: list[str] | None = None) -> int:
    """Run the rank that the environment names, of the spec that the command line names, in this interpreter."""
    parser = parser_for("worker.main", "Run one rank of a run.")
    parser.add_argument("spec", type=Path, help="the file of the run's spec")
    spec = parser.parse_args(arguments).spec
    linux.die_with_parent(os.getppid())
    return exit_code_of(lambda: run_rank(RunSpec.read(spec)))


if __name__ == "__main__":
    sys.exit(main())
