"""A callback for the Trainer of `pytorch_lightning` that compares a training with what a sweep measured."""

from pytorch_lightning import Callback

from accelsweep.features.watch.trainer_callbacks import LightningWatching


class Watch(LightningWatching, Callback):
    """`Trainer(callbacks=[Watch("sweeps/NAME")])`."""
