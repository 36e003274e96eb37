"""A training script with the layout of a common Hydra and Lightning template."""

import os
import sys
from pathlib import Path

import hydra
import lightning as L
from omegaconf import DictConfig

ROOT = next(folder for folder in Path(__file__).resolve().parents if (folder / ".project-root").exists())
os.environ["PROJECT_ROOT"] = str(ROOT)
sys.path.insert(0, str(ROOT))


def train(cfg: DictConfig) -> dict:
    if cfg.get("seed"):
        L.seed_everything(cfg.seed, workers=True)
    datamodule = hydra.utils.instantiate(cfg.data)
    model = hydra.utils.instantiate(cfg.model)
    callbacks = [hydra.utils.instantiate(callback) for callback in (cfg.get("callbacks") or {}).values()]
    trainer = hydra.utils.instantiate(cfg.trainer, callbacks=callbacks)
    if cfg.get("train"):
        trainer.fit(model=model, datamodule=datamodule, ckpt_path=cfg.get("ckpt_path"))
    if cfg.get("test"):
        trainer.test(model=model, datamodule=datamodule, ckpt_path=trainer.checkpoint_callback.best_model_path or None)
    return dict(trainer.callback_metrics)


@hydra.main(version_base="1.3", config_path="../configs", config_name="train.yaml")
def main(cfg: DictConfig):
    try:
        metrics = train(cfg)
    except Exception as error:
        print(f"training failed: {error}")
        raise
    finally:
        print(f"Output dir: {cfg.paths.output_dir}")
    return metrics.get(cfg.get("optimized_metric"))


if __name__ == "__main__":
    main()
