"""A user's git repository: a module, its experiment, and commits that change them."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

MODULE = """\
import lightning.pytorch as pl
import torch
from torch.utils.data import DataLoader, TensorDataset

class Toy(pl.LightningModule):
    def __init__(self, width=4):
        super().__init__()
        self.layer = torch.nn.Linear(4, width)

    def training_step(self, batch, batch_idx):
        return self.layer(batch[0]).pow(2).mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)

class ToyData(pl.LightningDataModule):
    def __init__(self, batch_size):
        super().__init__()
        self.batch_size = batch_size

    def train_dataloader(self):
        return DataLoader(TensorDataset(torch.randn(512, 4)), batch_size=self.batch_size, drop_last=True)
"""

EXPERIMENT = """\
# @package _global_
defaults: [{override /model: own}, {override /data: own}]
model: {_target_: toy.Toy}
data: {_target_: toy.ToyData}
accelerator: cpu
threads: 1
repeats: 2
measure: {warmup_steps: 3, min_steps: 10, max_steps: 40, min_seconds: 0.05, quality_samples: null, probe_steps: null}
"""

FILES = {
    "toy.py": MODULE,
    "conf/experiment/toy.yaml": EXPERIMENT,
    ".gitignore": "sweeps/\nreports/\nmlflow.db\nignored.txt\n__pycache__/\n",
}


def git(folder: Path, *arguments: str) -> str:
    """Run git with a user name configured; return its output."""
    options = ["-c", "user.name=N", "-c", "user.email=n@example.org", "-c", "protocol.file.allow=always"]
    done = subprocess.run(["git", *options, *arguments], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def write(folder: Path, files: Mapping[str, str]) -> None:
    """Write files below `folder`."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def commit(folder: Path, files: Mapping[str, str], message: str = "change") -> str:
    """Write `files` and commit everything; return the commit."""
    write(folder, files)
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--allow-empty", "--message", message)
    return git(folder, "rev-parse", "HEAD")


def repository(folder: Path, *changes: Mapping[str, str]) -> Path:
    """Create a repository: a commit with `FILES`, then one for each of the `changes`."""
    folder.mkdir(parents=True, exist_ok=True)
    git(folder, "init", "--quiet", "--initial-branch=main")
    for files in (FILES, *changes):
        commit(folder, files)
    return folder
