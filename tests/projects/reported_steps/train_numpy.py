"""Linear regression by hand, without torch: accelsweep sees no optimiser, so the loop reports its steps."""

import argparse

import accelsweep
import numpy as np


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--epochs", type=int, default=200)
    options = parser.parse_args()
    random = np.random.default_rng(0)
    points = random.normal(size=(20_000, 64))
    targets = points @ random.normal(size=64)
    weights = np.zeros(64)
    for _ in range(options.epochs):
        order = random.permutation(len(points))
        size = options.batch_size
        for rows in accelsweep.steps(order[start : start + size] for start in range(0, len(points), size)):
            errors = points[rows] @ weights - targets[rows]
            weights -= 0.01 * points[rows].T @ errors / len(rows)
            accelsweep.samples(len(rows))
    accelsweep.quality(float(np.square(points @ weights - targets).mean()))


if __name__ == "__main__":
    main()
