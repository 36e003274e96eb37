"""Train a small BERT on random tokens with Hugging Face's Trainer: the training that all instruments measure.

It knows nothing of accelsweep. With `--stopwatch`, the stopwatch of `loop_stopwatch.py` notes its steps. The
model's config is read from a folder, its weights are random, and nothing is downloaded.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForSequenceClassification, Trainer, TrainingArguments

EXAMPLES = 4096


class RandomTexts(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
    """Random tokens and classes, the same in every process."""

    def __init__(self, vocabulary: int, length: int) -> None:
        """Draw them."""
        draw = torch.Generator().manual_seed(1)
        self._tokens = torch.randint(1, vocabulary, (EXAMPLES, length), generator=draw)
        self._classes = torch.randint(0, 2, (EXAMPLES,), generator=draw)

    def __len__(self) -> int:
        """Return how many there are."""
        return EXAMPLES

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        """Return one example as the model takes it."""
        tokens = self._tokens[index]
        mask, types = torch.ones_like(tokens), torch.zeros_like(tokens)
        return {"input_ids": tokens, "attention_mask": mask, "token_type_ids": types, "labels": self._classes[index]}


def trainer(model: str, folder: str, batch_size: int, length: int) -> Trainer:
    """Return a Trainer that trains for longer than anybody measures."""
    torch.manual_seed(1)
    config = AutoConfig.from_pretrained(model)
    arguments = TrainingArguments(
        output_dir=folder,
        per_device_train_batch_size=batch_size,
        max_steps=1_000_000,
        use_cpu=not torch.cuda.is_available(),
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )
    classifier: Any = AutoModelForSequenceClassification
    return Trainer(
        model=classifier.from_config(config), args=arguments, train_dataset=RandomTexts(config.vocab_size, length)
    )


def main() -> None:
    """Train, or write the model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True, help="a folder with the model's config.json")
    parser.add_argument("--output_dir", required=True)
    parser.add_argument("--per_device_train_batch_size", type=int, default=16)
    parser.add_argument("--length", type=int, default=64, help="tokens per example")
    parser.add_argument("--stopwatch", action="store_true")
    parser.add_argument("--save", action="store_true", help="only write the untrained model to its folder")
    options = parser.parse_args()
    training = trainer(options.model, options.output_dir, options.per_device_train_batch_size, options.length)
    if options.save:
        training.save_model(options.model)
        return
    if options.stopwatch:
        sys.path.append(str(Path(__file__).resolve().parents[1]))
        training.add_callback(__import__("loop_stopwatch").callback())
    training.train()


if __name__ == "__main__":
    main()
