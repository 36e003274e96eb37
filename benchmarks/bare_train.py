"""One point of a sweep written by hand, without accelsweep, in an interpreter of its own.

    python benchmarks/bare_train.py STEPS SEED

Same model, data, batch size and optimiser as the settings of overhead.py. Prints the seconds that training took.
"""

from __future__ import annotations

import sys
import time

import lightning.pytorch as pl
import torch

from accelsweep.workloads.datasets import Digits
from accelsweep.workloads.image_models import SmallCNN


class Clock(pl.Callback):
    """Reads the clock where training begins and ends."""

    def on_train_start(self, *_: object) -> None:
        """Begin."""
        self.started = time.perf_counter()

    def on_train_end(self, *_: object) -> None:
        """End."""
        self.seconds = time.perf_counter() - self.started


def main(steps: int, seed: int) -> None:
    """Train and print how long it took."""
    pl.seed_everything(seed, verbose=False)
    torch.set_num_threads(1)
    module = SmallCNN()
    module.configure_optimizers = lambda: torch.optim.SGD(module.parameters(), lr=0.05, momentum=0.9)  # type: ignore[method-assign]
    clock = Clock()
    trainer = pl.Trainer(
        accelerator="cpu",
        devices=1,
        max_steps=steps,
        limit_val_batches=0,
        callbacks=[clock],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(module, datamodule=Digits(batch_size=32))
    print(f"seconds {clock.seconds}")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
