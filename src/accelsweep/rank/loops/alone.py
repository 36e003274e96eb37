"""Ranks that train side by side and share nothing: the control of data parallelism (`trainer=alone`)."""

from __future__ import annotations

from lightning.pytorch.strategies import DDPStrategy


class Alone(DDPStrategy):
    """DDP's processes without DDP: no gradient is exchanged, so that each rank trains a module of its own.

    The ranks begin and end the window together, as under DDP. Each still reads its own part of the data.
    """

    def configure_ddp(self) -> None:
        """Leave the module as it is, where DDP wraps it to exchange gradients."""
