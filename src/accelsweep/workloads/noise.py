"""Random images, vectors, tokens and texts of any shape: made once, before training, and never zeros.

Zeros are compressed, skipped or multiplied with less power: they run up to 10 % too fast. Noise that is made anew for
every batch would be measured with the model, and is often slower than it. The targets are random too, so only speed
means anything here; the validation set is some of the training rows.
"""

from __future__ import annotations

from math import prod
from typing import Unpack

import torch
from torch import Tensor

from accelsweep.workloads.loading.finite import VALIDATION_BATCH, Delivery, FiniteData
from accelsweep.workloads.loading.rows import Rows, Tensors
from accelsweep.workloads.loading.stream import rank_and_size

MOST_BYTES = 256 * 2**20
"""The largest memory of the inputs of a set without a chosen size; but each rank has two batches at least."""

MOST_SAMPLES = 8192
"""The most samples of such a set, if that makes two batches for each rank."""


class Noise(FiniteData):
    """A random set. `shape` is that of one input as the module gets it, in numbers of `item_bytes`."""

    def __init__(
        self,
        shape: tuple[int, ...],
        item_bytes: int,
        samples: int | None,
        epoch_samples: int | None,
        **delivery: Unpack[Delivery],
    ) -> None:
        """`samples` None: as many as fit. `epoch_samples` is the size of the real set that this one stands for."""
        super().__init__(**delivery)
        self._shape, self._stands_for = shape, samples if epoch_samples is None else epoch_samples
        fitting = min(MOST_SAMPLES, MOST_BYTES // (prod(shape) * item_bytes))
        self._samples = max(fitting, 2 * self.batch_size * rank_and_size()[1]) if samples is None else samples

    @property
    def epoch_samples(self) -> int | None:
        """Samples of the set that this one stands for; None where the config names none."""
        return self._stands_for

    def read(self) -> tuple[Rows, Rows]:
        """Draw the set from the run's seed. Without folds some of the training rows are the validation set."""
        rows = Tensors(*self.drawn(self._samples, torch.Generator().manual_seed(self.seed)))
        if self._folds is not None:
            return self.split(rows)
        return rows, rows.subset(torch.arange(min(len(rows), VALIDATION_BATCH)))

    def drawn(self, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return `count` inputs and targets."""
        raise NotImplementedError(f"{type(self).__name__} does not say what its noise is")


class RandomImages(Noise):
    """Images (channels, image_size, image_size) of random bytes, none of them zero."""

    def __init__(
        self,
        image_size: int = 32,
        channels: int = 3,
        classes: int = 10,
        samples: int | None = None,
        epoch_samples: int | None = None,
        **delivery: Unpack[Delivery],
    ) -> None:
        """`image_size` is the side of a square image in pixels."""
        super().__init__((channels, image_size, image_size), 4, samples, epoch_samples, **delivery)
        self._classes = classes

    def drawn(self, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return images (count, channels, image_size, image_size) in uint8 and classes (count,)."""
        images = torch.randint(1, 256, (count, *self._shape), dtype=torch.uint8, generator=generator)
        return images, torch.randint(self._classes, (count,), generator=generator)


class RandomVectors(Noise):
    """Vectors (features,) of normally distributed numbers."""

    def __init__(
        self,
        features: int = 26752,
        classes: int = 26752,
        samples: int | None = None,
        epoch_samples: int | None = None,
        **delivery: Unpack[Delivery],
    ) -> None:
        """The defaults fit FCN-5 and FCN-8."""
        super().__init__((features,), 4, samples, epoch_samples, **delivery)
        self._classes = classes

    def drawn(self, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return vectors (count, features) in float32 and classes (count,)."""
        vectors = torch.randn((count, *self._shape), generator=generator)
        return vectors, torch.randint(self._classes, (count,), generator=generator)


class RandomTokens(Noise):
    """Sequences of tokens for a language model: the target of each token is the next one."""

    def __init__(
        self,
        sequence: int = 32,
        vocabulary: int = 10_000,
        samples: int | None = None,
        epoch_samples: int | None = None,
        **delivery: Unpack[Delivery],
    ) -> None:
        """`sequence` is the number of tokens of a sample."""
        super().__init__((sequence,), 8, samples, epoch_samples, **delivery)
        self._vocabulary = vocabulary

    def drawn(self, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return tokens and next tokens, both (count, sequence) in int64."""
        tokens = torch.randint(self._vocabulary, (count, self._shape[0] + 1), generator=generator)
        return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()


class RandomText(Noise):
    """Texts of `sequence` tokens, each with one class."""

    def __init__(
        self,
        sequence: int = 200,
        vocabulary: int = 20_000,
        classes: int = 2,
        samples: int | None = None,
        epoch_samples: int | None = None,
        **delivery: Unpack[Delivery],
    ) -> None:
        """The defaults fit the text classifier."""
        super().__init__((sequence,), 8, samples, epoch_samples, **delivery)
        self._vocabulary, self._classes = vocabulary, classes

    def drawn(self, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return tokens (count, sequence) and classes (count,), both in int64."""
        tokens = torch.randint(self._vocabulary, (count, *self._shape), generator=generator)
        return tokens, torch.randint(self._classes, (count,), generator=generator)
