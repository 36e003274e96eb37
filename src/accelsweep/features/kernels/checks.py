"""What the plan refuses of kernels, known without importing torch."""

from __future__ import annotations

from accelsweep.config.schema import CellConfig
from accelsweep.config.value_errors import FileOf
from accelsweep.errors import InputError

KERNELS = "accelsweep.features.kernels."

OUR_CLASSES = "accelsweep."


def check(config: CellConfig, file_of: FileOf) -> None:  # noqa: ARG001 - no file is to blame
    """Raise InputError where `task=kernels` has a model that is no kernel, or another task has one."""
    target = config.model_target
    if config.task == "kernels" and target.startswith(OUR_CLASSES) and not target.startswith(KERNELS):
        raise InputError(
            f"task=kernels calls a kernel, and {target} is a model to train: take model=kernel_matmul, "
            "model=kernel_elementwise or model=kernel_copy"
        )
    if config.task != "kernels" and target.startswith(KERNELS):
        raise InputError(f"{target} is a kernel, which has nothing to train: set task=kernels with it")
