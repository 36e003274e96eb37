"""A callback for the Trainer of Hugging Face's transformers that compares a training with what a sweep measured."""

from typing import Any

from transformers import TrainerCallback

from accelsweep.features.watch.trainer_callbacks import Watching


class Watch(Watching, TrainerCallback):
    """`Trainer(..., callbacks=[Watch("sweeps/NAME")])`. The ratio goes to the MLflow run that is open."""

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Start watching."""
        del args, state, control
        self._start()

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Say how the whole training compared."""
        del args, state, control
        self._close()
