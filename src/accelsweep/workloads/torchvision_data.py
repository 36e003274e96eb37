"""Pictures with classes from any data set of torchvision: MNIST, CIFAR10, ImageFolder, ... as you have them on disk.

torchvision is an extra, because a build that does not match torch's breaks `import lightning.pytorch`. Only its classes
that give (picture, class) are used, and none of its transforms.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

import torch
from hydra.utils import get_class
from torch import Tensor

from accelsweep.base.errors import InputError, nearest
from accelsweep.workloads.loading.finite import Delivery, FiniteData
from accelsweep.workloads.loading.pictures import picture_bytes
from accelsweep.workloads.loading.rows import Items, Rows


class TorchvisionData(FiniteData):
    """A set of pictures; with placement=resident or `in_memory` each is read once, otherwise again in each pass."""

    def __init__(
        self,
        dataset: str = "CIFAR10",
        root: str = "datasets",
        training: Mapping[str, Any] | None = None,
        validation: Mapping[str, Any] | None = None,
        download: bool = False,
        image_size: int | None = None,
        channels: int = 3,
        in_memory: bool = False,
        **delivery: Unpack[Delivery],
    ) -> None:
        """`dataset` is a class of torchvision.datasets, or the import path of one that is like them.

        `training` and `validation` are its arguments after `root`; validation None holds out some training rows.
        """
        super().__init__(**delivery)
        self._dataset, self._root, self._download = dataset, root, download
        self._training, self._validation = dict(training or {}), validation
        self._image_size, self._channels, self._in_memory = image_size, channels, in_memory

    def prepare_data(self) -> None:
        """Download what is missing, if `download` says so."""
        if self._download:
            for arguments in (self._training, self._validation):
                if arguments is not None:
                    self._class()(self._root, **arguments, download=True)

    def read(self) -> tuple[Rows, Rows]:
        """Open the files. Raises InputError where torchvision or the class is missing, and the errors of the class."""
        if self._validation is None:
            return self.split(self._rows(self._training))
        return self._rows(self._training), self._rows(self._validation)

    def _rows(self, arguments: Mapping[str, Any]) -> Rows:
        items = Items(self._class()(self._root, **arguments), self._converted)
        return items.in_memory() if self._in_memory else items

    def _converted(self, item: Any) -> tuple[Tensor, Tensor]:
        picture, target = item
        return picture_bytes(picture, self._channels, self._image_size), torch.tensor(int(target))

    def _class(self) -> Any:
        if "." in self._dataset:
            return get_class(self._dataset)
        try:
            from torchvision import datasets
        except (ImportError, RuntimeError) as error:
            raise InputError(
                f"data=torchvision needs a torchvision that matches this torch {torch.__version__}, and there is none "
                f"({error}): install accelsweep's extra `torchvision`, or take data=huggingface"
            ) from error
        if not hasattr(datasets, self._dataset):
            near = nearest(self._dataset, dir(datasets))
            raise InputError(f"data.dataset={self._dataset} is no class of torchvision.datasets{near}")
        return getattr(datasets, self._dataset)
