"""Objects made of the config's `model`, `data` and `optimizer`: ours and the user's alike, by `_target_`."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from hydra.errors import HydraException
from hydra.utils import get_object, instantiate

from accelsweep.base.errors import InputError, Unsupported
from accelsweep.core.cells.arguments import OUR_PACKAGE, Arguments, refuse_arguments
from accelsweep.core.cells.cell import brings_own_data
from accelsweep.core.cells.config import CellConfig, global_batch_of
from accelsweep.workloads.building import foreign, optimizer
from accelsweep.workloads.building.signatures import parameters_of
from accelsweep.workloads.module_data import ModuleData


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
        raise InputError(foreign.no_module(module, config.model))
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
    module.configure_optimizers = lambda: optimizer.configure(module, config, accumulated)  # type: ignore[method-assign]


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
        raise InputError(foreign.no_data_module(data, config.data))
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
