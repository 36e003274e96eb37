"""Executes one rank of a run: reads the frozen config and writes `rank-R.json` and `steps-R.json`.

torch and Lightning are imported inside functions, so that importing this module is cheap and does not load them into an
executor that must not import them. `python -m accelsweep.worker.main SPEC` runs a rank in a different interpreter.
"""

from __future__ import annotations

import gc
import math
import os
import shutil
import sys
import traceback
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from accelsweep import registry
from accelsweep.devices import linux
from accelsweep.devices.clock import monotonic
from accelsweep.files import write_json
from accelsweep.garbage_collection import collector_paused
from accelsweep.heartbeat import StepCount
from accelsweep.measure.machine_state import environment
from accelsweep.measure.timed_window import RankWindow
from accelsweep.metrics import Metric
from accelsweep.results import ScriptTrainer
from accelsweep.signals import exit_code_of, parser_for
from accelsweep.worker.entry_point import run_entry_point
from accelsweep.worker.error_classification import Diverged, ProcessExited, is_interrupt
from accelsweep.worker.rank_measurement import RankReport
from accelsweep.worker.rank_setup import (
    RankPlace,
    VersionTree,
    bind_to_numa_node,
    destroy_process_group,
    dump_stacks_on_signal,
    empty_compile_caches,
    has_warm_cache,
    intercept_os_exit,
    set_threads,
    set_up_imports,
    threads_of,
)
from accelsweep.worker.run_spec import RunSpec
from accelsweep.worker.tasks.whole_process import WholeProcess

if TYPE_CHECKING:
    from accelsweep.worker.loops.execution import LoaderArguments


def write_steps(path: Path, rank: int, window: RankWindow) -> None:
    """Write all steps of `window`, warm-up included, as JSON lists of seconds, samples and losses.

    A missing loss is written as null, and a non-finite loss as a string (`nan`, `inf`), because JSON has no such
    numbers.
    """
    losses = [loss if loss is None or math.isfinite(loss) else str(loss) for loss in window.losses]
    steps = {"rank": rank, "warmup_steps": window.warmup_steps, "step_seconds": window.step_seconds}
    write_json(path, {**steps, "samples": window.step_samples, "train_loss": losses})


def preload(*, with_lightning: bool = True) -> None:
    """Import everything that a rank needs, so that forked ranks do not have to.

    Runs no operations and touches no device. A script without a Lightning Trainer needs no Lightning, which takes as
    long to import as torch.
    """
    import torch.distributed

    from accelsweep.worker import rank_measurement  # noqa: F401

    if not with_lightning:
        from accelsweep.worker.loops import hugging_face, script  # noqa: F401

        with suppress(ImportError, RuntimeError):  # it may refuse a version of Python
            import torch._dynamo  # noqa: F401  as the first optimiser would
        return
    with suppress(ImportError):  # Lightning is optional, and an older one may lack what our own Trainer needs
        import lightning.pytorch  # noqa: F401

        from accelsweep.worker.loops import entry_point  # noqa: F401
        from accelsweep.worker.tasks import inference, train  # noqa: F401
        from accelsweep.workloads import instantiate  # noqa: F401


def preload_without_garbage_collection(*, with_lightning: bool) -> None:
    """Call `preload`, and hide what it imports from the garbage collector, as the parents of forked ranks do.

    Looking for garbage among the modules of torch and Lightning, while they are imported and at the end of the process,
    takes half as long as importing them.
    """
    if "torch" in sys.modules:  # this rank was forked
        preload(with_lightning=with_lightning)
        return
    with collector_paused():
        preload(with_lightning=with_lightning)
        gc.freeze()


def run_rank(spec: RunSpec) -> None:
    """Run this process's rank of `spec` and write its result into the attempt's folder.

    Reads RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT and NODE_RANK from the environment. Errors in the
    user's code are recorded in the result with their traceback instead of being raised; only signals and an unwritable
    disk end this function early. The result is written to disk before the process group is destroyed.
    """
    place = RankPlace.of(spec)
    report = RankReport()
    dump_stacks_on_signal()

    def on_os_exit(code: int, frame: FrameType) -> None:
        traceback.print_stack(frame)
        report.record_error(ProcessExited(code, frame))
        report.result(place.rank).write(spec.rank_result(place.rank))

    with empty_compile_caches(spec), intercept_os_exit(on_os_exit):
        try:
            _run_task(spec, place, report)
        except BaseException as error:
            if is_interrupt(error):
                raise  # the sender of the signal records the reason
            report.record_error(error, spec.config.class_column)
        report.result(place.rank).write(spec.rank_result(place.rank))
        if place.rank == 0:
            shutil.rmtree(spec.scratch(), ignore_errors=True)
        destroy_process_group()


def _run_task(spec: RunSpec, place: RankPlace, report: RankReport) -> None:
    if spec.config.whole_process:
        bind_to_numa_node(spec, place)
        WholeProcess(spec, place).measure(report)
        return
    entry = spec.config.entry
    preload_without_garbage_collection(with_lightning=entry is None or entry.package is not None)
    import torch

    from accelsweep.worker.loops.execution import LoaderArguments

    version_tree = set_up_imports()
    began = monotonic()
    report.numa_node, sharing = bind_to_numa_node(spec, place) or (None, None)
    set_threads(threads_of(spec, place, sharing))
    if spec.config.matmul_precision is not None:
        torch.set_float32_matmul_precision(spec.config.matmul_precision)
    with LoaderArguments(spec.config.loader) as loaders:
        _run_training(spec, place, report, version_tree, loaders, began)


def _run_training(
    spec: RunSpec,
    place: RankPlace,
    report: RankReport,
    version_tree: VersionTree | None,
    loaders: LoaderArguments,
    began: float,
) -> None:
    """Measure what the config builds, or the user's own script."""

    def measure() -> None:
        if spec.substitute is None:
            _measure(spec, place, report, version_tree, loaders, began)
            return
        registry.load(spec.substitute)(spec, place, report)
        if version_tree is not None:
            version_tree.check_modules()

    if spec.config.entry is None:
        measure()
        return

    def measure_and_write(files: tuple[str, ...], trainer: ScriptTrainer) -> None:
        report.files, report.trainer = files, trainer
        measure()
        report.result(place.rank).write(spec.rank_result(place.rank))  # the script may not let the process end

    if version_tree is not None:
        os.chdir(version_tree.folders[0])
    run_entry_point(spec, place, measure_and_write)


def _measure(
    spec: RunSpec,
    place: RankPlace,
    report: RankReport,
    version_tree: VersionTree | None,
    loaders: LoaderArguments,
    began: float,
) -> None:
    from accelsweep.worker.rank_measurement import measure, telemetry_identities
    from accelsweep.worker.tasks.task import make_task

    task = make_task(spec, place)
    driver = task.driver()
    if version_tree is not None:
        version_tree.check_modules()
    kind, devices = driver.device.type, telemetry_identities(driver.device)
    report.environment["before"] = environment(devices, kind)
    measured = measure(spec, driver, place, StepCount(spec.progress()) if place.rank == 0 else None)
    del driver
    loaders.check()
    report.environment["after"] = environment(devices, kind)
    if version_tree is not None:
        version_tree.check_modules()
    report.add_window(measured)
    scope, seconds = "rank 0: module, data, device; imports excluded", measured.window.began_at - began
    report.metrics["load_seconds"] = Metric(value=seconds, unit="s", scope=scope, provenance="clock")
    first_step = report.metrics["first_step_seconds"]
    cache = "warm cache" if has_warm_cache(spec) else "compile caches empty"
    report.metrics["first_step_seconds"] = replace(first_step, scope=f"{first_step.scope}, {cache}")
    task.window_closed(measured, report)
    write_steps(spec.rank_steps(place.rank), place.rank, measured.window)
    if measured.diverged_at is not None:
        raise Diverged(f"the loss was not finite at step {measured.diverged_at}")
    report.tolerate(task.tolerated_failures)
    if "none" in task.tolerated_failures:
        report.result(place.rank).write(spec.rank_window(place.rank))
    task.after_window(report)


def main(arguments: list[str] | None = None) -> int:
    """Run the rank identified by the environment, using the spec passed on the command line."""
    parser = parser_for("worker.main", "Run one rank of a run.")
    parser.add_argument("spec", type=Path, help="path of the run's spec")
    spec = parser.parse_args(arguments).spec
    linux.die_with_parent(os.getppid())
    return exit_code_of(lambda: run_rank(RunSpec.read(spec)))


if __name__ == "__main__":
    sys.exit(main())
