"""Messages about a `_target_` that gave an unexpected object: its type, and the command that takes it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn
from torch.utils.data import DataLoader, Dataset


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
