"""Evaluates a checkpoint."""

import hydra
from lightning import Trainer


@hydra.main(version_base="1.3", config_path="../configs", config_name="train.yaml")
def main(cfg):
    Trainer().test(hydra.utils.instantiate(cfg.model), hydra.utils.instantiate(cfg.data), ckpt_path=cfg.ckpt_path)


if __name__ == "__main__":
    main()
