"""Measure the training of `text_classifier.py`'s model with optimum-benchmark, which makes its own data and Trainer.

    python by_optimum_benchmark.py MODEL BATCH_SIZE LENGTH WARMUP STEPS

Prints samples per second, from the mean latency of the steps after the warm-up. The throughput that version 0.6.0
reports for a training is the samples of all steps divided by the time of one.
"""

from __future__ import annotations

import sys
import tempfile

import torch
from optimum_benchmark import Benchmark, BenchmarkConfig, ProcessConfig, PyTorchConfig, TrainingConfig


def main(model: str, batch_size: int, length: int, warmup: int, steps: int) -> None:
    """Measure in a process of its own, which is optimum-benchmark's default."""
    with tempfile.TemporaryDirectory() as folder:
        backend = PyTorchConfig(
            model=model,
            task="text-classification",
            library="transformers",
            model_type="bert",
            device="cuda" if torch.cuda.is_available() else "cpu",
            intra_op_num_threads=torch.get_num_threads(),
        )
        scenario = TrainingConfig(
            max_steps=warmup + steps,
            warmup_steps=warmup,
            dataset_shapes={"dataset_size": 4096, "sequence_length": length},
            training_arguments={
                "per_device_train_batch_size": batch_size,
                "output_dir": folder,
                "disable_tqdm": True,
            },
        )
        config = BenchmarkConfig(name="training", launcher=ProcessConfig(), scenario=scenario, backend=backend)
        report = Benchmark.launch(config)
    print(f"\nrate {batch_size / report.train.latency.mean}")


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
