"""Builds the config's `model`, `data` and `optimizer` from `_target_`; built-in classes get no special treatment.

A class receives exactly the keys in its config, plus any of `batch_size`, `seed` and `device` that its `__init__`
declares. Unknown and missing arguments, and objects of the wrong type, are rejected with a message that says which key
or command fixes the error.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from inspect import Parameter
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.fabric.utilities import move_data_to_device
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader, Dataset, IterableDataset

from accelsweep.errors import InputError, Unsupported
from accelsweep.measure.batch_size import declared_batch_size
from accelsweep.run_config import LEARNING_RATE_KEYS, Scaling, SettingConfig
from accelsweep.workloads.data_module import ModuleData
from accelsweep.workloads.lightning_modules import SeesDataAhead
from accelsweep.workloads.targets import build_target, instantiate, locate, target_parameters
from accelsweep.workloads.training_stream import make_loader, repeat_training_rows


def build_module(
    config: SettingConfig, axes: Collection[str] = (), batches_per_step: Callable[[], int] = lambda: 1
) -> pl.LightningModule:
    """Return the LightningModule specified by `config.model`, with the config's optimiser if it does not define one.

    `axes` are the keys that the sweep varies. `batches_per_step` returns how many batches an optimiser step will use;
    it is called when the optimiser is created. Raises InputError if the target is not a LightningModule or does not
    accept the given arguments, and Unsupported if the sweep varies an optimiser that the module does not use. Errors
    from the user's code propagate.
    """
    node = dict(config.model)
    if config.data_from_module and "batch_size" in target_parameters(node) and "batch_size" not in node:
        node["batch_size"] = config.batch_size
    module = build_target(node, "model")
    if not isinstance(module, pl.LightningModule):
        raise InputError(_wrong_module(module, config.model))
    if uses_config_optimizer(module):
        if not config.optimizer:
            raise InputError(
                f"{type(module).__name__} defines no configure_optimizers, and the config has no optimizer: "
                "choose one, e.g. optimizer=sgd, or define the method"
            )
        module.configure_optimizers = lambda: configure_optimizer(  # type: ignore[method-assign]
            module, config, batches_per_step
        )
    elif any(axis.split(".")[0] == "optimizer" for axis in axes):
        raise Unsupported(
            f"the sweep varies `optimizer`, but {type(module).__name__} defines configure_optimizers, so every value "
            "would produce the same measurement: remove `optimizer` from the grid, or remove the method"
        )
    return module


def uses_config_optimizer(module: pl.LightningModule) -> bool:
    """Return whether the config's optimiser is used, because the module's class defines no `configure_optimizers`."""
    return type(module).configure_optimizers is pl.LightningModule.configure_optimizers


def build_data(config: SettingConfig, seed: int, device: torch.device | None = None) -> pl.LightningDataModule:
    """Return the LightningDataModule specified by `config.data`.

    `batch_size` (per rank) is passed as an argument or, if there is no such argument, set as an attribute. If the
    config contains `data.batch_size`, the data divides a global batch among the ranks and receives the global size.
    `seed` and `device` are only passed to targets that declare them. Raises InputError if the target is not a
    LightningDataModule or does not accept the given arguments.
    """
    node = dict(config.data)
    batch_size = config.divided_batch_size or config.batch_size
    if node.pop("batch_size", batch_size) != batch_size:
        raise InputError("data.batch_size is set in the config: remove it, and set the top-level batch_size instead")
    parameters = target_parameters(node)
    if "batch_size" in parameters or any(parameter.kind is Parameter.VAR_KEYWORD for parameter in parameters.values()):
        node["batch_size"] = batch_size
    for name, value in (("seed", seed), ("device", device)):
        if name in parameters and name not in node and value is not None:
            node[name] = value
    data = build_target(node, "data")
    if not isinstance(data, pl.LightningDataModule):
        raise InputError(_wrong_data_module(data, config.data))
    if "batch_size" not in node and not isinstance(data, ModuleData):
        # As in Lightning's batch size finder. If there is neither an argument nor an attribute, batches are unchanged,
        # and a run whose first batch has a different size is rejected.
        if hasattr(data, "batch_size"):
            data.batch_size = batch_size
        if "batch_size" in data.hparams:
            data.hparams["batch_size"] = batch_size
    return data


def build_training_data(
    config: SettingConfig,
    seed: int,
    device: torch.device,
    module: pl.LightningModule,
    reused: pl.LightningDataModule | None = None,
) -> pl.LightningDataModule:
    """Return the training data for `module`. In a search for the largest batch, rows are repeated if there are too few.

    With `measure.fake_loader`, training repeatedly uses one batch that is already on the device, which yields an upper
    bound for any input pipeline. `reused` is the data of an earlier module.
    """
    if reused is None:
        data = build_data(config, seed, device)
    else:
        data = reused
        vars(data).pop("train_dataloader", None)  # the wrapper that was created for the earlier module
    if isinstance(data, ModuleData):
        data.serve(module)
    if config.task == "largest_batch":
        repeat_training_rows(data, config.batch_size)
    if config.measure.fake_loader:
        _repeat_first_batch(data, device)
    if isinstance(module, SeesDataAhead):
        module.around_data(data)
    return data


class _RepeatedBatch(IterableDataset[Any]):
    def __init__(self, batch: Any, batch_size: int | None) -> None:
        self._batch, self.batch_size = batch, batch_size

    def __iter__(self) -> Iterator[Any]:
        while True:
            yield self._batch


def _repeat_first_batch(data: pl.LightningDataModule, device: torch.device) -> None:
    original = data.train_dataloader

    def train_dataloader() -> DataLoader[Any]:
        loader = original()
        batch = move_data_to_device(next(iter(loader)), device)
        return make_loader(_RepeatedBatch(batch, declared_batch_size(loader)))

    data.train_dataloader = train_dataloader  # type: ignore[method-assign]


def prepare_data(config: SettingConfig) -> None:
    """Call `prepare_data` of the data and, if defined, of the module. Raises errors from the user's code."""
    build_data(config, seed=config.seed, device=torch.device("cpu")).prepare_data()
    target = locate(config.model_target)
    if getattr(target, "prepare_data", None) not in (None, pl.LightningModule.prepare_data):
        build_module(config).prepare_data()


def _wrong_module(built: Any, node: Mapping[str, Any]) -> str:
    """Describe why `built`, created from the config's `model`, is not a LightningModule, and the remedy."""
    gave = f"model._target_={node.get('_target_')} created a {type(built).__name__}"
    if remedy := _other_lightning(built, "LightningModule"):
        return f"{gave}, {remedy}"
    if not isinstance(built, nn.Module):
        return f"{gave}, not a LightningModule: it must be one, or a torch.nn.Module with model=supervised"
    arguments = " ".join(f"model.network.{key}={value}" for key, value in node.items() if value is not None)
    return (
        f"{gave}, a plain torch.nn.Module without a training_step; train it with: "
        f"model=supervised {arguments} model.loss._target_=torch.nn.CrossEntropyLoss (or whichever loss it needs)"
    )


def _wrong_data_module(built: Any, node: Mapping[str, Any]) -> str:
    """Describe why `built`, created from the config's `data`, is not a LightningDataModule, and the remedy."""
    target = node.get("_target_")
    gave = f"data._target_={target} created a {type(built).__name__}, not a LightningDataModule"
    if remedy := _other_lightning(built, "LightningDataModule"):
        return f"{gave}: {remedy}"
    if isinstance(built, Dataset) or hasattr(built, "__getitem__"):
        return f"{gave}; for a data set, use: data=dataset data.train._target_={target}"
    if isinstance(built, DataLoader):
        return f"{gave}; use its data set: data=dataset data.train._target_=THE_SET (batch_size remains an axis)"
    return gave


def _other_lightning(built: Any, name: str) -> str | None:
    """Return the remedy if `built` is from the package `pytorch_lightning`, Lightning's former name."""
    if any(base.__name__ == name and base.__module__.startswith("pytorch_lightning") for base in type(built).__mro__):
        return (
            f"a {name} from pytorch_lightning, whose classes differ from those of lightning.pytorch, which is used "
            "here: write `import lightning.pytorch as pl`"
        )
    return None


LR_FACTORS: dict[Scaling, Callable[[float], float]] = {
    "none": lambda _: 1.0,
    "linear": lambda ratio: ratio,
    "sqrt": math.sqrt,
}
"""The learning rate factor as a function of the ratio of global batch to base batch, keyed by `lr_scaling`.

`linear`: P. Goyal et al., "Accurate, Large Minibatch SGD: Training ImageNet in 1 Hour" (2017), section 2.1: "when the
minibatch size is multiplied by k, multiply the learning rate by k". `sqrt`: A. Krizhevsky, "One weird trick for
parallelizing convolutional neural networks" (2014), section 5.1: multiply it by the square root of k, which keeps the
variance in the gradient expectation constant.
"""


def scales_learning_rate(config: SettingConfig) -> bool:
    """Return whether the learning rate of the config's optimiser is scaled with the global batch."""
    return (config.learning_rate.lr_scaling or "none") != "none"


def scaled_learning_rate(lr: float, scaling: Scaling, global_batch: int, base_batch: int | None) -> float:
    """Return the learning rate for a global batch, given `lr` for a global batch of `base_batch` samples."""
    if base_batch is None:
        raise InputError(
            f"optimizer.lr_scaling={scaling} needs optimizer.base_batch_size, the global batch size that lr={lr} is for"
        )
    return lr * LR_FACTORS[scaling](global_batch / base_batch)


def configure_optimizer(
    module: nn.Module, config: SettingConfig, batches_per_step: Callable[[], int] = lambda: 1
) -> Any:
    """Return what `configure_optimizers` should return: the config's `optimizer` over all trainable parameters.

    With `warmup_steps`, a schedule stepped after every optimiser step multiplies the learning rate of the i-th step
    (zero-based) by (i + 1) / warmup_steps, at most 1. The ramp is linear, as in Goyal et al. (section 2.2), but starts
    near zero rather than at the unscaled rate, so that it has the same effect with every scaling.

    `batches_per_step` is only called if the rate is scaled. Raises InputError for contradictory options, and
    Unsupported for a variant of the optimiser that this device or torch does not support.
    """
    options = {key: value for key, value in (config.optimizer or {}).items() if key not in LEARNING_RATE_KEYS}
    scaling, warmup_steps = config.learning_rate.lr_scaling or "none", config.learning_rate.warmup_steps or 0
    if scaling != "none":
        if "lr" not in options:
            raise InputError(f"optimizer.lr_scaling={scaling} scales optimizer.lr, which is not set")
        global_batch, base_batch = config.samples_per_step * batches_per_step(), config.learning_rate.base_batch_size
        options["lr"] = scaled_learning_rate(float(options["lr"]), scaling, global_batch, base_batch)
    if options.get("fused") and options.get("foreach"):
        raise Unsupported("optimizer.fused and optimizer.foreach are mutually exclusive: torch uses only one of them")
    make: Callable[..., Optimizer] = instantiate({"_convert_": "all", **options, "_partial_": True})
    try:
        optimizer = make([parameter for parameter in module.parameters() if parameter.requires_grad])
    except RuntimeError as error:
        if "fused" in str(error):
            raise Unsupported(f"optimizer.fused=true is not supported here: {error}") from error
        raise
    if warmup_steps < 1:
        return optimizer
    schedule = LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / warmup_steps))
    return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}
