"""From the config's `model`, `data` and `optimizer` to objects: ours and the user's alike, by `_target_`."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
from hydra.utils import get_object, instantiate

from accelsweep.core.errors import InputError


def make_importable(folder: str | None = None) -> None:
    """Put the working directory (or `folder`) on the import path, so that the user's own modules are found there."""
    path = folder or str(Path.cwd())
    if path not in sys.path:
        sys.path.insert(0, path)


def build_module(config: Mapping[str, Any]) -> pl.LightningModule:
    """Return the LightningModule that `config["model"]` names, with the config's optimiser where it brings none.

    Raises InputError where the target is no LightningModule, and whatever the user's code raises.
    """
    module = instantiate(dict(config["model"]), _convert_="all")
    if not isinstance(module, pl.LightningModule):
        raise InputError(
            f"model._target_={config['model'].get('_target_')} gave a {type(module).__name__}, not a LightningModule: "
            "wrap it in one that has a training_step"
        )
    if leaves_optimizer_to_us(module):
        _give_optimizer(module, config)
    return module


def leaves_optimizer_to_us(module: pl.LightningModule) -> bool:
    """Return whether the module's class does not define `configure_optimizers`; where it does, it has precedence."""
    return type(module).configure_optimizers is pl.LightningModule.configure_optimizers


def _give_optimizer(module: pl.LightningModule, config: Mapping[str, Any]) -> None:
    if not config.get("optimizer"):
        raise InputError(
            f"{type(module).__name__} defines no configure_optimizers, and the config has no optimizer: "
            "choose one, e.g. optimizer=sgd, or define the method"
        )
    make: Callable[[Any], Any] = instantiate({**config["optimizer"], "_partial_": True}, _convert_="all")

    def configure_optimizers() -> Any:
        return make([parameter for parameter in module.parameters() if parameter.requires_grad])

    module.configure_optimizers = configure_optimizers  # type: ignore[method-assign]


def build_data(config: Mapping[str, Any], seed: int) -> pl.LightningDataModule:
    """Return the LightningDataModule that `config["data"]` names, given `batch_size` (per rank) and, if taken, `seed`.

    Raises InputError where the target is no LightningDataModule or its signature takes no `batch_size`.
    """
    settings = dict(config["data"])
    target = str(settings.get("_target_"))
    accepts = _accepted(target)
    if "batch_size" in settings:
        raise InputError("data.batch_size is set in the config: remove it, the axis is the top-level batch_size")
    if not accepts("batch_size"):
        raise InputError(
            f"data._target_={target} takes no argument batch_size: add one to its __init__ and give it to its "
            "DataLoader, so that the axis batch_size reaches it"
        )
    settings["batch_size"] = config["batch_size"]
    if "seed" not in settings and accepts("seed", by_name=True):
        settings["seed"] = seed
    data = instantiate(settings, _convert_="all")
    if not isinstance(data, pl.LightningDataModule):
        raise InputError(f"data._target_={target} gave a {type(data).__name__}, not a LightningDataModule")
    return data


def _accepted(target: str) -> Callable[..., bool]:
    parameters = inspect.signature(get_object(target)).parameters
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())

    def accepts(name: str, by_name: bool = False) -> bool:
        return name in parameters or (takes_any and not by_name)

    return accepts
