"""Measure a step of `text_classifier.py` with pyperf, which calls a function that makes so many steps by hand.

`instruments.py` passes the model, the batch and the length, followed by pyperf's own options.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import pyperf
import torch
from text_classifier import trainer

_trainings: list[tuple[Any, Any]] = []
"""The Trainer and its endless batches, made at the first call: only pyperf's worker needs them."""


def _endless(training: Any) -> Any:
    while True:
        yield from training.get_train_dataloader()


def steps(count: int, options: argparse.Namespace) -> float:
    """Return the seconds that so many steps take, with the Trainer's data, model and optimiser, without its loop."""
    if not _trainings:
        made: Any = trainer(options.model, options.output_dir, options.batch_size, options.length)
        made.create_optimizer_and_scheduler(made.args.max_steps)
        made.model.train()
        _trainings.append((made, _endless(made)))
    training, batches = _trainings[0]
    begin = time.perf_counter()
    for _ in range(count):
        training.model(**next(batches)).loss.backward()
        torch.nn.utils.clip_grad_norm_(training.model.parameters(), training.args.max_grad_norm)
        training.optimizer.step()
        training.lr_scheduler.step()
        training.model.zero_grad()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - begin


def _arguments(command: list[str], options: argparse.Namespace) -> None:
    for name in ("model", "output_dir", "batch_size", "length"):
        command += [f"--{name}", str(getattr(options, name))]


def main() -> None:
    """Let pyperf measure."""
    runner = pyperf.Runner(add_cmdline_args=_arguments)
    for name in ("model", "output_dir"):
        runner.argparser.add_argument(f"--{name}", required=True)
    for name in ("batch_size", "length"):
        runner.argparser.add_argument(f"--{name}", type=int, required=True)
    options = runner.parse_args()
    runner.bench_time_func("step", steps, options)


if __name__ == "__main__":
    main()
