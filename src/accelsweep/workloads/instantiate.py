"""Objects made of the config's `model`, `data` and `optimizer`: ours and the user's alike, by `_target_`."""

from __future__ import annotations

import inspect
import math
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from inspect import Parameter
from pathlib import Path
from typing import Any, Unpack, get_args, get_origin

import lightning.pytorch as pl
import torch
from hydra.errors import HydraException
from hydra.utils import get_object, instantiate
from lightning.fabric.utilities import move_data_to_device
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader, Dataset, IterableDataset

from accelsweep.config.schema import CellConfig, LearningRate, Scaling, global_batch_of
from accelsweep.config.setting import brings_own_data
from accelsweep.config.target_signature import OUR_PACKAGE, Arguments, refuse_arguments
from accelsweep.errors import InputError, Unsupported
from accelsweep.measure.batch_size import stated_size
from accelsweep.workloads.data_module import ModuleData
from accelsweep.workloads.distillation import Distillation
from accelsweep.workloads.loading.look_ahead import show_ahead
from accelsweep.workloads.training_stream import loader_of, repeat_rows

# Messages about a `_target_` that gave an unexpected object: its type, and the command that takes it.


def no_module(found: Any, settings: Mapping[str, Any]) -> str:
    """Return why `found`, made by the config's `model`, is no LightningModule, and the right words to type."""
    gave = f"model._target_={settings.get('_target_')} gave a {type(found).__name__}"
    if other := _other_lightning(found, "LightningModule"):
        return f"{gave}, {other}"
    if not isinstance(found, nn.Module):
        return f"{gave}, not a LightningModule: it must be one, or a torch.nn.Module for model=supervised"
    arguments = " ".join(f"model.network.{key}={value}" for key, value in settings.items() if value is not None)
    return (
        f"{gave}, a plain torch.nn.Module without a training_step; train it with: "
        f"model=supervised {arguments} model.loss._target_=torch.nn.CrossEntropyLoss (or the loss that it needs)"
    )


def no_data_module(found: Any, settings: Mapping[str, Any]) -> str:
    """Return why `found`, made by the config's `data`, is no LightningDataModule, and the right words to type."""
    target = settings.get("_target_")
    gave = f"data._target_={target} gave a {type(found).__name__}, not a LightningDataModule"
    if other := _other_lightning(found, "LightningDataModule"):
        return f"{gave}: {other}"
    if isinstance(found, Dataset) or hasattr(found, "__getitem__"):
        return f"{gave}; a data set is given with: data=dataset data.train._target_={target}"
    if isinstance(found, DataLoader):
        return f"{gave}; give its data set instead: data=dataset data.train._target_=THE_SET, batch_size stays an axis"
    return gave


def _other_lightning(found: Any, name: str) -> str | None:
    """Return the remedy where `found` is a class of the package that Lightning was before it was renamed."""
    if any(base.__name__ == name and base.__module__.startswith("pytorch_lightning") for base in type(found).__mro__):
        return (
            f"a {name} of pytorch_lightning, whose classes are not those of lightning.pytorch, which trains here: "
            "write `import lightning.pytorch as pl`"
        )
    return None


# The config's optimiser, for modules that leave `configure_optimizers` to us: its learning rate follows the batch.

FACTORS: dict[Scaling, Callable[[float], float]] = {
    "none": lambda _: 1.0,
    "linear": lambda ratio: ratio,
    "sqrt": math.sqrt,
}
"""The factor of the learning rate, by `lr_scaling`, from the ratio of the global batch to the base batch.

`linear`: P. Goyal et al., "Accurate, Large Minibatch SGD: Training ImageNet in 1 Hour" (2017), section 2.1: "when the
minibatch size is multiplied by k, multiply the learning rate by k". `sqrt`: A. Krizhevsky, "One weird trick for
parallelizing convolutional neural networks" (2014), section 5.1: multiply it by the square root of k, which keeps the
variance of the gradient's expectation.
"""


def scaled_lr(lr: float, scaling: Scaling, global_batch: int, base_batch: int | None) -> float:
    """Return the learning rate for a global batch, where `lr` is meant for one of `base_batch` samples."""
    if base_batch is None:
        raise InputError(
            f"optimizer.lr_scaling={scaling} needs optimizer.base_batch_size, the global batch that lr={lr} is for"
        )
    return lr * FACTORS[scaling](global_batch / base_batch)


def warmed_up(warmup_steps: int) -> Callable[[int], float]:
    """Return the share of the learning rate at optimiser step i (from 0): (i + 1) / warmup_steps, at most 1.

    The ramp is the linear one of Goyal et al. (section 2.2), who let it begin at the unscaled rate. Here it begins near
    zero, so that it means the same with every scaling.
    """
    return lambda step: min(1.0, (step + 1) / warmup_steps)


def scales(config: CellConfig) -> bool:
    """Return whether the learning rate of the config's optimiser follows the global batch."""
    return (config.learning_rate.lr_scaling or "none") != "none"


def configure(module: nn.Module, config: CellConfig, accumulated: Callable[[], int] = lambda: 1) -> Any:
    """Return what `configure_optimizers` returns for the config's `optimizer`: one over all trainable parameters.

    `accumulated` returns how many batches an optimiser step will hold; it is asked only where the rate follows that.
    With `warmup_steps` the optimiser comes with a schedule that is stepped after every optimiser step. Raises
    InputError for a setting that means nothing, Unsupported for a variant of the optimiser that this device or torch
    does not have.
    """
    settings = {key: value for key, value in (config.optimizer or {}).items() if key not in LearningRate.model_fields}
    rate = config.learning_rate
    scaling, warmup = rate.lr_scaling or "none", rate.warmup_steps or 0
    if scaling != "none":
        if "lr" not in settings:
            raise InputError(f"optimizer.lr_scaling={scaling} scales optimizer.lr, which is not set")
        global_batch = config.samples_per_step * accumulated()
        settings["lr"] = scaled_lr(float(settings["lr"]), scaling, global_batch, rate.base_batch_size)
    optimizer = _made(settings, [parameter for parameter in module.parameters() if parameter.requires_grad])
    if warmup < 1:
        return optimizer
    schedule = LambdaLR(optimizer, warmed_up(warmup))
    return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def _made(settings: dict[str, Any], parameters: list[nn.Parameter]) -> Optimizer:
    if settings.get("fused") and settings.get("foreach"):
        raise Unsupported("optimizer.fused and optimizer.foreach exclude each other: torch runs one of the two")
    make: Callable[..., Optimizer] = instantiate({"_convert_": "all", **settings, "_partial_": True})
    try:
        return make(parameters)
    except RuntimeError as error:
        if "fused" in str(error):
            raise Unsupported(f"optimizer.fused=true is not possible here: {error}") from error
        raise


# The arguments that a target takes, those included that it hands on to the class above it.


def parameters_of(target: Callable[..., Any]) -> Mapping[str, Parameter]:
    """Return the parameters of `target` by name; `**others: Unpack[SomeTypedDict]` counts as that dict's keys.

    Raises ValueError for a class of an extension, which has no signature to read.
    """
    return {parameter.name: parameter for parameter in _each(target)}


def _each(target: Callable[..., Any]) -> Iterator[Parameter]:
    for parameter in inspect.signature(target).parameters.values():
        keys = _unpacked(target, parameter.name) if parameter.kind is Parameter.VAR_KEYWORD else None
        if keys is None:
            yield parameter
        else:
            yield from (Parameter(key, Parameter.KEYWORD_ONLY, default=None) for key in keys)


def _unpacked(target: Callable[..., Any], name: str) -> list[str] | None:
    function: Any = target.__init__ if inspect.isclass(target) else target
    try:
        hint = inspect.get_annotations(function, eval_str=True).get(name)
    except (NameError, AttributeError, TypeError):  # a name imported for type checkers alone
        return None
    return list(get_args(hint)[0].__annotations__) if get_origin(hint) is Unpack else None


def make_importable(folder: str | None = None) -> None:
    """Put the working directory (or `folder`) on the import path, so that the user's own modules are found there."""
    path = folder or str(Path.cwd())
    if path not in sys.path:
        sys.path.insert(0, path)


def build_module(
    config: CellConfig, axes: Collection[str] = (), accumulated: Callable[[], int] = lambda: 1
) -> pl.LightningModule:
    """Return the LightningModule that `config.model` names, with the config's optimiser where it brings none.

    `axes` are the keys that the sweep varies. `accumulated` returns how many batches an optimiser step will hold, and
    is asked when the optimiser is made. Raises InputError where the target is no LightningModule or does not take the
    given arguments. Raises Unsupported where the sweep varies an optimiser that the module does not use. Errors of
    the user's code pass through.
    """
    settings = dict(config.model)
    if brings_own_data(config) and "batch_size" in arguments_of(settings) and "batch_size" not in settings:
        settings["batch_size"] = config.batch_size
    module = instance(settings, "model")
    if not isinstance(module, pl.LightningModule):
        raise InputError(no_module(module, config.model))
    if leaves_optimizer_to_us(module):
        _give_optimizer(module, config, accumulated)
    elif any(axis.split(".")[0] == "optimizer" for axis in axes):
        raise Unsupported(
            f"the sweep varies `optimizer`, but {type(module).__name__} defines configure_optimizers, so every value "
            "would measure the same: take `optimizer` out of the grid, or remove the method"
        )
    return module


def leaves_optimizer_to_us(module: pl.LightningModule) -> bool:
    """Return whether the module's class does not define `configure_optimizers`; where it does, it has precedence."""
    return type(module).configure_optimizers is pl.LightningModule.configure_optimizers


def _give_optimizer(module: pl.LightningModule, config: CellConfig, accumulated: Callable[[], int]) -> None:
    if not config.optimizer:
        raise InputError(
            f"{type(module).__name__} defines no configure_optimizers, and the config has no optimizer: "
            "choose one, e.g. optimizer=sgd, or define the method"
        )
    module.configure_optimizers = lambda: configure(module, config, accumulated)  # type: ignore[method-assign]


def build_data(config: CellConfig, seed: int, device: torch.device | None = None) -> pl.LightningDataModule:
    """Return the LightningDataModule that `config.data` names.

    It is given `batch_size` (per rank) as an argument or, where it takes none, as the attribute of that name. Data that
    divides the batch of all ranks among them is given that one, where the config has it in `data.batch_size`. `seed`
    and `device` go only to targets that name them. Raises InputError where the target is no LightningDataModule or
    does not take the given arguments.
    """
    settings = dict(config.data)
    batch_size = global_batch_of(config) or config.batch_size
    if settings.pop("batch_size", batch_size) != batch_size:
        raise InputError("data.batch_size is set in the config: remove it, the axis is the top-level batch_size")
    parameters = arguments_of(settings)
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    if "batch_size" in parameters or takes_any:
        settings["batch_size"] = batch_size
    for name, value in (("seed", seed), ("device", device)):
        if name in parameters and name not in settings and value is not None:
            settings[name] = value
    data = instance(settings, "data")
    if not isinstance(data, pl.LightningDataModule):
        raise InputError(no_data_module(data, config.data))
    if "batch_size" not in settings and not isinstance(data, ModuleData):
        _set_batch_size(data, batch_size)
    return data


def _set_batch_size(data: pl.LightningDataModule, batch_size: int) -> None:
    """Set the attribute or hyperparameter `batch_size` if there is one, as Lightning's batch size finder does.

    Otherwise the batches stay as they are; a run whose first batch has another size is refused.
    """
    if hasattr(data, "batch_size"):
        data.batch_size = batch_size
    if "batch_size" in data.hparams:
        data.hparams["batch_size"] = batch_size


def prepare_once(config: CellConfig) -> None:
    """Call `prepare_data` of the data and, where it has one, of the module. Raises the errors of the user's code."""
    build_data(config, seed=config.seed, device=torch.device("cpu")).prepare_data()
    target = get_object(config.model_target)
    if getattr(target, "prepare_data", None) not in (None, pl.LightningModule.prepare_data):
        build_module(config).prepare_data()


def arguments_of(settings: Mapping[str, Any]) -> Mapping[str, inspect.Parameter]:
    """Return the arguments of a config's `_target_` by name; any may be given to one whose signature is unreadable."""
    try:
        return parameters_of(get_object(str(settings["_target_"])))
    except ValueError:  # a class of an extension, which has no signature to read
        return {"settings": inspect.Parameter("settings", inspect.Parameter.VAR_KEYWORD)}


_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def instance(settings: dict[str, Any], place: str) -> Any:
    """Return the object of a config's `_target_`. Raises InputError for arguments, with the key below `place`."""
    _check_arguments(settings, place)
    for key, node in _nested(settings, place):
        with suppress(ImportError, TypeError, HydraException):  # no class at all, which Hydra says with the whole key
            _check_arguments(node, key, within=str(settings.get("_target_")))
    return instantiate(converted(settings))


def converted(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return a config whose `_target_`s get their arguments as Hydra gives them: a mapping as a DictConfig, and so on.

    Classes of accelsweep's take plain mappings and lists, unless `_convert_` says something else.
    """
    if "_convert_" in settings or not _is_ours(settings):
        return dict(settings)  # what stands below inherits it
    build = settings.get("_recursive_", True)
    return {"_convert_": "all", **{key: _converted(value) if build else value for key, value in settings.items()}}


def _converted(value: Any) -> Any:
    if isinstance(value, Mapping):
        if "_target_" not in value:
            return {key: _converted(item) for key, item in value.items()}
        return converted(value) if _is_ours(value) else {"_convert_": "none", **value}
    return [_converted(item) for item in value] if isinstance(value, list | tuple) else value


def _is_ours(settings: Mapping[str, Any]) -> bool:
    return str(settings.get("_target_", OUR_PACKAGE)).startswith(OUR_PACKAGE)


def _nested(settings: Any, place: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the key and the config of each `_target_` below another one that Hydra builds together with it."""
    if isinstance(settings, Mapping):
        items: Iterable[tuple[Any, Any]] = settings.items() if settings.get("_recursive_", True) else ()
    else:
        items = enumerate(settings) if isinstance(settings, list | tuple) else ()
    for key, value in items:
        if isinstance(value, Mapping) and "_target_" in value:
            yield f"{place}.{key}", value
        yield from _nested(value, f"{place}.{key}")


def _check_arguments(settings: Mapping[str, Any], place: str, within: str | None = None) -> None:
    """Refuse unknown and missing arguments of the target, and name the key to change.

    `within` is the target that this one is built for, where it is an argument of another one.
    """
    target, parameters = settings.get("_target_"), arguments_of(settings)
    kinds = {parameter.kind for parameter in parameters.values()}
    any_name = inspect.Parameter.VAR_KEYWORD in kinds
    needed = [name for name, each in parameters.items() if each.default is each.empty and each.kind not in _VARIADIC]
    refuse_arguments(settings, place, Arguments(str(target), tuple(parameters), tuple(needed), any_name), within)


# The `fake loader`: training on one batch that is on the device already, the ceiling for every input pipeline.


class _Again(IterableDataset[Any]):
    def __init__(self, batch: Any, batch_size: int | None) -> None:
        self._batch, self.batch_size = batch, batch_size

    def __iter__(self) -> Iterator[Any]:
        while True:
            yield self._batch


def build_training_data(
    config: CellConfig,
    seed: int,
    device: torch.device,
    module: pl.LightningModule,
    kept: pl.LightningDataModule | None = None,
) -> pl.LightningDataModule:
    """Return the training data of `module`: the config's data, behind a fake loader if the config asks for one.

    A search for the largest batch repeats rows where the data has too few for a batch. `kept` is the data of an earlier
    module, to be used again.
    """
    if kept is None:
        data = build_data(config, seed, device)
    else:
        data = kept
        vars(data).pop("train_dataloader", None)  # what was put around it for the earlier module
    if isinstance(data, ModuleData):
        data.serve(module)
    if config.task == "memory_frontier":
        repeat_rows(data, config.batch_size)
    if config.measure.fake_loader:
        _put_on(device, data)
    if isinstance(module, Distillation):
        show_ahead(data, module)
    return data


def _put_on(device: torch.device, data: pl.LightningDataModule) -> None:
    real = data.train_dataloader

    def train_dataloader() -> DataLoader[Any]:
        loader = real()
        batch = move_data_to_device(next(iter(loader)), device)
        return loader_of(_Again(batch, stated_size(loader)))

    data.train_dataloader = train_dataloader  # type: ignore[method-assign]
