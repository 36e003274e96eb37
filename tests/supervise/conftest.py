"""What tests of this room share: a real supervisor with misbehaving ranks, and the document that it gives a rank."""

from __future__ import annotations

import pytest
from one_rank import CONFIG

from accelsweep.core.plans import Run
from accelsweep.rank.spec import RunSpec


@pytest.fixture
def spec(tmp_path):
    def make(seed=1, axes=None, **changes):
        config = {**CONFIG, **changes}
        return RunSpec(
            sweep="s",
            block="b",
            run=Run.of("0123456789ab", 0, seed),
            position=0,
            attempt=1,
            config=config,
            axes=axes or {},
            world_size=config["devices"] * config["num_nodes"],
            attempt_folder=str(tmp_path),
        )

    return make
