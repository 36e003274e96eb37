"""The stand-in for the Trainer that a LightningModule finds in the raw loop. It has the ranks, and nothing else.

Some modules need more: a hook that only Lightning calls, or a fact that only a Trainer has. They are refused with that
name. Otherwise they would be trained differently than they ask for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.core.hooks import ModelHooks
from lightning.pytorch.utilities.signature_utils import is_param_in_hook_signature

from accelsweep.base.errors import Unsupported
from accelsweep.rank.loops.run_trainer import ScratchLogger
from accelsweep.rank.process import RankPlace
from accelsweep.rank.spec import RunSpec

_ELSEWHERE = ("on_test_", "on_predict_", "on_validation_model_", "configure_model", "configure_sharded_model")
"""Hooks that belong to no training, or that the raw loop calls."""

_LOOPS_OWN = (
    "backward",
    "configure_callbacks",
    "configure_gradient_clipping",
    "lr_scheduler_step",
    "optimizer_step",
    "optimizer_zero_grad",
)
"""Methods of a module that replace the raw loop's own work."""

HOOKS = (*(name for name in vars(ModelHooks) if not name.startswith(("_", *_ELSEWHERE))), *_LOOPS_OWN)
"""Methods that a module may define and the raw loop does not call."""


class NoTrainer:
    """The `self.trainer` of the raw loop: the ranks, a logger that keeps nothing, and a refusal for everything else."""

    def __init__(self, owner: object, module: pl.LightningModule, place: RankPlace, spec: RunSpec, what: str) -> None:
        """`owner` is the module or the data that has it; `what` is `loop=raw`, or the task without a Trainer."""
        self._owner, self._what = type(owner).__name__, what
        self.lightning_module = module
        self.world_size, self.num_nodes, self.num_devices = place.size, spec.config.num_nodes, place.local_size
        self.global_rank, self.local_rank, self.node_rank = place.rank, place.local_rank, place.rank // place.local_size
        self.is_global_zero = place.rank == 0
        self.logger = ScratchLogger(spec.scratch())
        self.loggers = [self.logger]

    @property
    def log_dir(self) -> str:
        """The scratch folder of the run."""
        return self.logger.log_dir

    def __getattr__(self, name: str) -> Any:
        """Refuse. Names that Python itself looks for raise AttributeError."""
        if name.startswith("_"):
            raise AttributeError(name)
        remedy = ": use loop=lightning" if self._what == "loop=raw" else ""
        raise Unsupported(f"{self._what} has no Trainer, but {self._owner} reads self.trainer.{name}{remedy}")


def numbered(step: Callable[..., Any]) -> Callable[[Any, int], Any]:
    """Return a module's `step` as a function of the batch and its number, which the module need not take."""
    if is_param_in_hook_signature(step, "batch_idx", min_args=2):
        return step
    return lambda batch, _: step(batch)


def refuse_hooks(module: pl.LightningModule) -> None:
    """Raise Unsupported where `module` defines a hook that only Lightning's loop calls."""
    for name in HOOKS:
        if getattr(type(module), name) is not getattr(pl.LightningModule, name):
            raise Unsupported(f"loop=raw calls no {name}, which {type(module).__name__} defines: use loop=lightning")


def do_without_trainer(
    module: pl.LightningModule, data: pl.LightningDataModule, place: RankPlace, spec: RunSpec, what: str = "loop=raw"
) -> None:
    """Give both a `NoTrainer`."""
    module.trainer = NoTrainer(module, module, place, spec, what)  # type: ignore[assignment]
    data.trainer = NoTrainer(data, module, place, spec, what)  # type: ignore[assignment]
