"""Ranks that train side by side and share nothing: the control of data parallelism (`trainer=side_by_side`)."""

from __future__ import annotations

from lightning.pytorch.strategies import DDPStrategy, StrategyRegistry

SIDE_BY_SIDE = "side_by_side"
"""Its name in `trainer.strategy`."""


class SideBySide(DDPStrategy):
    """DDP's processes without DDP: no gradient is exchanged, so that each rank trains a module of its own.

    The ranks begin and end the window together, as under DDP. Each still reads its own part of the data.
    """

    def configure_ddp(self) -> None:
        """Leave the module as it is, where DDP wraps it to exchange gradients."""


def register() -> None:
    """Let Lightning know the strategy by its name."""
    StrategyRegistry.register(SIDE_BY_SIDE, SideBySide, "ranks that exchange nothing", override=True)
