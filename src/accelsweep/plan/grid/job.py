"""One job of the grid as it is composed, for `--cfg job` to print."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from accelsweep.plan.grid.compose import Composer
from accelsweep.plan.grid.own import with_own_targets


def composed_yaml(home: Path, overrides: Sequence[str]) -> str:
    """Return the composed config: YAML, interpolations unresolved, one value per key. Raises InputError."""
    composer = Composer.of(home, overrides)
    config = composer.compose(with_own_targets(composer, overrides))
    ours: list[Any] = [key for key in config if key != "hydra"]
    return OmegaConf.to_yaml(OmegaConf.masked_copy(config, ours))
