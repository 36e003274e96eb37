"""A callback for the Trainer of `lightning.pytorch` that compares a training with what a sweep measured."""

from lightning.pytorch import Callback

from accelsweep.features.watch.trainer_callbacks import LightningWatching


class Watch(LightningWatching, Callback):
    """`Trainer(callbacks=[Watch("sweeps/NAME")])`."""
