"""Hugging Face's Trainer with a small GPT-2 made from a config, on random tokens, with the options of its arguments."""

from dataclasses import dataclass

import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, HfArgumentParser, Trainer, TrainingArguments


@dataclass
class ModelArguments:
    layers: int = 2
    width: int = 64


class Tokens(Dataset):
    def __init__(self, rows):
        self.rows = torch.randint(0, 500, (rows, 64), generator=torch.Generator().manual_seed(rows))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, number):
        return {"input_ids": self.rows[number], "labels": self.rows[number]}


def main():
    model_arguments, arguments = HfArgumentParser((ModelArguments, TrainingArguments)).parse_args_into_dataclasses()
    config = GPT2Config(
        n_layer=model_arguments.layers, n_embd=model_arguments.width, n_head=2, n_positions=64, vocab_size=500
    )
    trainer = Trainer(GPT2LMHeadModel(config), arguments, train_dataset=Tokens(2000), eval_dataset=Tokens(200))
    trainer.train()
    print(trainer.evaluate())


if __name__ == "__main__":
    main()
