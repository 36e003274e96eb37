"""Recurrent networks on text: the LSTM language model of benchmarks, and an embedding + BiLSTM text classifier.

The language model is that of S. Shi et al., arXiv 1608.07249 (2016). It has two layers of 256 units over a vocabulary
of 10 000 (6.2 M parameters), on sequences of 32 (LSTM-32) or 64 tokens (LSTM-64). The classifier has the layers and
sizes of Keras's example "Bidirectional LSTM on IMDB" (F. Chollet, 2020): 2.76 M parameters.
"""

from __future__ import annotations

from typing import Unpack

from torch import Tensor, nn

from accelsweep.workloads.building.classifier import Classifier
from accelsweep.workloads.building.network_module import Execution


class LSTMLanguageModel(Classifier):
    """Embedding, `layers` LSTM layers and a linear layer: at each token, logits of the next one."""

    def __init__(
        self, vocabulary: int = 10_000, hidden: int = 256, layers: int = 2, **execution: Unpack[Execution]
    ) -> None:
        """`hidden` is the number of units of every layer, the embedding included."""
        super().__init__(_Recurrent(vocabulary, hidden, hidden, layers, False, vocabulary), **execution)


class BiLSTMTextClassifier(Classifier):
    """Embedding, `layers` bidirectional LSTM layers, the last state of both directions, a linear layer."""

    def __init__(
        self,
        vocabulary: int = 20_000,
        embedding: int = 128,
        hidden: int = 64,
        layers: int = 2,
        classes: int = 2,
        **execution: Unpack[Execution],
    ) -> None:
        """`hidden` is the number of units of each direction."""
        super().__init__(_Recurrent(vocabulary, embedding, hidden, layers, True, classes), **execution)


class _Recurrent(nn.Module):
    """Tokens (samples, sequence) to logits: of every token, or of the whole text where both directions are read."""

    def __init__(
        self, vocabulary: int, embedding: int, hidden: int, layers: int, whole_text: bool, classes: int
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, embedding)
        self.lstm = nn.LSTM(embedding, hidden, layers, batch_first=True, bidirectional=whole_text)
        self.output = nn.Linear(2 * hidden if whole_text else hidden, classes)
        self.whole_text = whole_text

    def forward(self, tokens: Tensor) -> Tensor:
        every, (last, _) = self.lstm(self.embedding(tokens))
        logits: Tensor = self.output(last[-2:].transpose(0, 1).flatten(1) if self.whole_text else every)
        return logits
