"""Checks kernels at planning time, without importing torch."""

from __future__ import annotations

from accelsweep.config.value_errors import FileOf
from accelsweep.errors import InputError
from accelsweep.run_config import SettingConfig

KERNELS = "accelsweep.features.kernels."


def check(config: SettingConfig, file_of: FileOf) -> None:  # noqa: ARG001 - no file is to blame
    """Raise InputError if `task=kernels` is combined with a model to train, or another task with a kernel."""
    target = config.model_target
    if config.task == "kernels" and target.startswith("accelsweep.") and not target.startswith(KERNELS):
        raise InputError(
            f"task=kernels calls a kernel, but {target} is a model to train: use model=kernel_matmul, "
            "model=kernel_elementwise or model=kernel_copy"
        )
    if config.task != "kernels" and target.startswith(KERNELS):
        raise InputError(f"{target} is a kernel, which has nothing to train: set task=kernels")
