"""The pilot's blocks alone decide how many follow, whatever the effects and however often one asks."""

from __future__ import annotations

import math
import random
from types import ModuleType
from typing import Any

from accelsweep.analysis.analyse_sweep import repeats_from_pilot
from accelsweep.analysis.power import Needed

CELLS = [{"batch_size": 2**power} for power in range(4)]
NOISE = 0.03


def _needed(
    simulated: ModuleType, blocks: int, noise: float = NOISE, factor: float = 1.0, cells: list[dict[str, Any]] = CELLS
) -> Needed | None:
    generator = random.Random(1)
    rows = [
        simulated.make_run(axes, block, 1000.0 * factor**number * math.exp(generator.gauss(0, noise)))
        for block in range(blocks)
        for number, axes in enumerate(cells)
    ]
    return repeats_from_pilot(rows, simulated.make_manifest(cells, blocks), 0.1, 20)


def test_a_noisier_pilot_asks_for_more_blocks(simulated: ModuleType) -> None:
    quiet, noisy = _needed(simulated, 3, 0.001), _needed(simulated, 3, 0.08)
    assert quiet is not None
    assert noisy is not None
    assert quiet.repeats == 5 < noisy.repeats


def test_effects_do_not_enter_the_answer(simulated: ModuleType) -> None:
    equal, far = _needed(simulated, 3), _needed(simulated, 3, factor=3.0)
    assert equal is not None
    assert far is not None
    assert math.isclose(equal.half_width, far.half_width, rel_tol=1e-9)


def test_asked_again_after_more_blocks_the_answer_stays(simulated: ModuleType) -> None:
    assert _needed(simulated, 7, 0.06) == _needed(simulated, 3, 0.06)


def test_two_cells_have_a_variance_of_their_own(simulated: ModuleType) -> None:
    needed = _needed(simulated, 3, cells=CELLS[:2])
    assert needed is not None
    assert needed.repeats >= 5


def test_before_3_blocks_and_without_any_spread_there_is_no_answer(simulated: ModuleType) -> None:
    assert _needed(simulated, 2) is None
    assert _needed(simulated, 3, noise=0.0) is None
