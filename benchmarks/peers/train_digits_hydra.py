"""The training of `train_digits.py` with a Hydra config: `python train_digits_hydra.py --multirun batch_size=32,64`."""

from __future__ import annotations

import hydra
from omegaconf import DictConfig
from train_digits import train


@hydra.main(version_base=None, config_path=".", config_name="train_digits")
def main(config: DictConfig) -> None:
    """Train as the config says."""
    train(config.batch_size, config.precision, config.seed, config.steps)


if __name__ == "__main__":
    main()
