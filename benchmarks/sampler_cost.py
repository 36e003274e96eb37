"""Show what sampling the machine during a run costs: its own processor time, and its effect on a compute-bound step.

    python benchmarks/sampler_cost.py [--blocks 20] [--seconds 2]

Matrix products on all cores take turns, with a sampler beside them and without. A block is a window of each, in random
order; the interval is that of the ratio of their rates over all blocks. The sampler reads every 0.25 s, as by default.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time
from pathlib import Path

import torch
from one_run import interval

from accelsweep.config.sweep_options import Limits
from accelsweep.executor.device_lease import NO_LEASE
from accelsweep.executor.sampler import Sampler, read_samples

SIZE = 512


def products_per_second(seconds: float) -> float:
    """Multiply matrices on all cores for so long, and return how many per second."""
    matrix, count, began = torch.ones(SIZE, SIZE), 0, time.perf_counter()
    while (now := time.perf_counter()) < began + seconds:
        matrix = torch.mm(matrix, matrix).clamp_(max=1.0)
        count += 1
    return count / (now - began)


def main(arguments: list[str]) -> int:
    """Print the sampler's processor time and the ratio of the rates."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--blocks", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=2.0, help="length of a window")
    options = parser.parse_args(arguments)
    every, ratios, cores = Limits().sample_seconds, [], []
    products_per_second(options.seconds)
    with tempfile.TemporaryDirectory() as folder, Sampler() as sampler:
        for _ in range(options.blocks):
            rates = {}
            for sampled in random.sample((True, False), 2):
                with sampler.sample(Path(folder), every if sampled else None, "cpu", NO_LEASE) as watch:
                    watch({0: os.getpid()})
                    rates[sampled] = products_per_second(options.seconds)
            samples = read_samples(Path(folder))
            assert samples.span is not None, "a window has several readings"
            cores.append((samples.cpu_seconds or 0.0) / (samples.span[1] - samples.span[0]))
            ratios.append(rates[True] / rates[False])
    share, lowest, highest = (100 * value for value in interval(cores, 0.95))
    sys.stdout.write(
        f"sampler: {share:.2f} % of a core ({lowest:.2f} to {highest:.2f}), {len(samples.rows)} readings a window\n"
    )
    ratio, low, high = interval(ratios, 0.95)
    sys.stdout.write(f"rate with / without: {ratio:.4f} (95 % {low:.4f} to {high:.4f}), {options.blocks} blocks\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
