"""Whether a cell's settings fit its task. What does not is refused while nothing has been written yet."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from accelsweep.core.errors import InputError
from accelsweep.core.tasks import RATES_OF

KERNELS = "accelsweep.workloads.kernels."
OURS = "accelsweep.workloads."

FileOf = Callable[[str], str]
"""Names the config file to look in for a dotted key."""


def refuse_unfit(config: Mapping[str, Any], rate: str | None, file_of: FileOf) -> None:
    """Raise InputError where the settings of a checked scientific config do not fit its `task`.

    `rate` is the plan's `analysis.rate`.
    """
    task, measure = config["task"], config["measure"]
    if rate is not None and rate not in RATES_OF[task]:
        raise InputError(
            f"analysis.rate={rate}: task={task} measures no such rate, only {', '.join(RATES_OF[task])}; look in "
            f"{file_of('analysis.rate')}"
        )
    if task == "time_to_accuracy":
        _refuse_aimless(measure, file_of)
    if task in ("inference", "kernels") and config["loop"] != "lightning":
        raise InputError(
            f"loop={config['loop']} names another training loop, and task={task} does not train: leave loop out; look "
            f"in {file_of('loop')}"
        )
    if task == "inference" and measure.get("scenario") == "single_stream" and config["batch_size"] != 1:
        raise InputError(
            f"measure.scenario=single_stream asks one sample at a time, and batch_size is {config['batch_size']}: set "
            "batch_size=1, or measure.scenario=offline"
        )
    target = str(config["model"].get("_target_"))
    if task == "kernels" and target.startswith(OURS) and not target.startswith(KERNELS):
        raise InputError(
            f"task=kernels calls a kernel, and {target} is a model to train: take model=kernel_matmul, "
            "model=kernel_elementwise or model=kernel_copy"
        )
    if task != "kernels" and target.startswith(KERNELS):
        raise InputError(f"{target} is a kernel, which has nothing to train: set task=kernels with it")


def _refuse_aimless(measure: Mapping[str, Any], file_of: FileOf) -> None:
    if measure.get("fake_loader"):
        raise InputError(
            "measure.fake_loader=true trains on one batch again and again, which reaches no target: set it to false "
            "for task=time_to_accuracy"
        )
    for key in ("target", "quality_metric"):
        if measure.get(key) is None:
            raise InputError(
                f"task=time_to_accuracy trains until measure.quality_metric reaches measure.target, and measure.{key} "
                f"is null: set it, for example measure.quality_metric=val_accuracy measure.target=0.9; look in "
                f"{file_of(f'measure.{key}')}"
            )
