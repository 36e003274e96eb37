"""Language models and a text classifier: a transformer with GPT-2's architecture, and recurrent networks.

GPT-2 with 12 layers of width 768 has 124.4 M parameters; input and output embeddings are shared. Source: A. Radford et
al., "Language Models are Unsupervised Multitask Learners" (2019), and the published weights: pre-norm blocks, learned
positions, the tanh form of GELU, and residual projections with a smaller initialisation.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from accelsweep.workloads.lightning_modules import Classifier


class GPT2(Classifier):
    """Maps tokens (samples, sequence) to the logits of the next token (samples, sequence, vocabulary)."""

    def __init__(
        self,
        vocabulary: int = 50_257,
        context: int = 1024,
        width: int = 768,
        layers: int = 12,
        heads: int = 12,
        dropout: float = 0.0,
    ) -> None:
        """`context` is the maximum sequence length; `width` must be a multiple of `heads`."""
        super().__init__(_Transformer(vocabulary, context, width, layers, heads, dropout))


class _Transformer(nn.Module):
    def __init__(self, vocabulary: int, context: int, width: int, layers: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(context, width)
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.Sequential(*(TransformerBlock(width, heads, dropout) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        self.output = nn.Linear(width, vocabulary, bias=False)
        self.output.weight = self.tokens.weight
        self.apply(_initialize)
        for name, parameter in self.named_parameters():
            if name.endswith(("attention.output.weight", "feed_forward.2.weight")):
                nn.init.normal_(parameter, std=0.02 / (2 * layers) ** 0.5)

    def forward(self, tokens: Tensor) -> Tensor:
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        hidden = self.dropout(self.tokens(tokens) + self.positions(positions))
        logits: Tensor = self.output(self.norm(self.blocks(hidden)))
        return logits


def _initialize(module: nn.Module) -> None:
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=0.02)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)


class TransformerBlock(nn.Module):
    """Pre-norm attention and a feed-forward layer of four times the width, each with a residual connection."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        """Inputs and outputs have shape (samples, sequence, width)."""
        super().__init__()
        self.attention_norm = nn.LayerNorm(width)
        self.attention = CausalSelfAttention(width, heads, dropout)
        self.feed_forward_norm = nn.LayerNorm(width)
        self.feed_forward = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"), nn.Linear(4 * width, width), nn.Dropout(dropout)
        )

    def forward(self, hidden: Tensor) -> Tensor:
        """Return (samples, sequence, width)."""
        hidden = hidden + self.attention(self.attention_norm(hidden))
        outputs: Tensor = hidden + self.feed_forward(self.feed_forward_norm(hidden))
        return outputs


class CausalSelfAttention(nn.Module):
    """Each token attends to itself and earlier tokens, using torch's fused scaled_dot_product_attention."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        """Raises ValueError if `width` is not a multiple of `heads`."""
        super().__init__()
        if width % heads:
            raise ValueError(f"model.width={width} is not a multiple of model.heads={heads}")
        self.heads, self.dropout = heads, dropout
        self.queries_keys_values = nn.Linear(width, 3 * width)
        self.output = nn.Linear(width, width)

    def forward(self, hidden: Tensor) -> Tensor:
        """Return (samples, sequence, width)."""
        by_head = self.queries_keys_values(hidden).unflatten(2, (3, self.heads, -1))
        queries, keys, values = by_head.permute(2, 0, 3, 1, 4)
        dropout = self.dropout if self.training else 0.0
        attended = functional.scaled_dot_product_attention(queries, keys, values, dropout_p=dropout, is_causal=True)
        outputs: Tensor = functional.dropout(self.output(attended.transpose(1, 2).flatten(2)), dropout)
        return outputs


class LSTMLanguageModel(Classifier):
    """An embedding, `layers` LSTM layers, and a linear layer that computes the next-token logits at each position."""

    def __init__(self, vocabulary: int = 10_000, hidden: int = 256, layers: int = 2) -> None:
        """`hidden` is the number of units in every layer, including the embedding."""
        super().__init__(_LSTM(vocabulary, hidden, hidden, layers, False, vocabulary))


class BiLSTMTextClassifier(Classifier):
    """An embedding, `layers` bidirectional LSTM layers, and a linear layer on the final states of both directions."""

    def __init__(
        self,
        vocabulary: int = 20_000,
        embedding: int = 128,
        hidden: int = 64,
        layers: int = 2,
        classes: int = 2,
    ) -> None:
        """`hidden` is the number of units per direction."""
        super().__init__(_LSTM(vocabulary, embedding, hidden, layers, True, classes))


class _LSTM(nn.Module):
    """Maps tokens (samples, sequence) to logits: one set per text if bidirectional, otherwise one set per token."""

    def __init__(
        self, vocabulary: int, embedding: int, hidden: int, layers: int, bidirectional: bool, classes: int
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, embedding)
        self.lstm = nn.LSTM(embedding, hidden, layers, batch_first=True, bidirectional=bidirectional)
        self.output = nn.Linear(2 * hidden if bidirectional else hidden, classes)

    def forward(self, tokens: Tensor) -> Tensor:
        outputs, (last_states, _) = self.lstm(self.embedding(tokens))
        if self.lstm.bidirectional:
            outputs = last_states[-2:].transpose(0, 1).flatten(1)
        logits: Tensor = self.output(outputs)
        return logits
