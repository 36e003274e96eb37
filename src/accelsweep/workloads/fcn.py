"""Fully connected networks with sigmoids: FCN-5 and FCN-8, the plainest of the deep-learning benchmarks.

Source: S. Shi et al., "Benchmarking State-of-the-Art Deep Learning Software Tools", arXiv 1608.07249 (2016). The number
counts the layers of units. FCN-5 is 26752-2048-2048-2048-26752 (118.0 M parameters). FCN-8 has six hidden layers (130.6
M). FCN-5 for MNIST is 784-2048-4096-1024-10 (14.2 M).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Unpack

from torch import nn

from accelsweep.workloads.building.classifier import Classifier
from accelsweep.workloads.building.network_module import Execution


class FCN(Classifier):
    """Linear layers with a sigmoid after each but the last, on vectors or flattened images."""

    def __init__(
        self,
        features: int = 26752,
        hidden: Sequence[int] = (2048, 2048, 2048),
        classes: int = 26752,
        **execution: Unpack[Execution],
    ) -> None:
        """`features` is the length of an input, `hidden` the units of each hidden layer."""
        sizes = [features, *hidden, classes]
        layers: list[nn.Module] = [nn.Flatten()]
        for incoming, outgoing in pairwise(sizes):
            layers += [nn.Linear(incoming, outgoing), nn.Sigmoid()]
        super().__init__(nn.Sequential(*layers[:-1]), **execution)
