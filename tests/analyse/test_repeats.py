"""The repeats that a report states are those that its ratios rest on, however the plan came to its blocks."""

from __future__ import annotations

import random
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest

from accelsweep.analysis.analyse_sweep import analyse
from accelsweep.analysis.merge_sweeps import Part, analyse_together, merge
from accelsweep.analysis.power import smallest_visible_effect
from accelsweep.config.sweep_options import Settings
from accelsweep.records.findings import Findings
from accelsweep.records.plan import PlannedBlock
from accelsweep.schedulers.protocol import Resources

BASE, X, Y = ({"batch_size": size} for size in (32, 64, 128))
NOISE = 0.03


def _analysed(simulated: ModuleType, blocks: list[tuple[dict[str, Any], ...]], noise: float = NOISE) -> Findings:
    """Return the findings of these blocks; all cells are equally fast."""
    generator = random.Random(3)
    cells = list({simulated.name_of(axes): axes for block in blocks for axes in block}.values())
    rows = [
        simulated.make_run(axes, number, 1000.0 * (1.0 + generator.gauss(0, noise)))
        for number, block in enumerate(blocks)
        for axes in block
    ]
    planned = tuple(
        PlannedBlock(
            name=f"b{number}",
            runs=tuple(f"{simulated.name_of(axes)}-r{number}" for axes in block),
            resources=Resources(),
        )
        for number, block in enumerate(blocks)
    )
    manifest = simulated.make_manifest(cells, 3).model_copy(update={"blocks": planned})
    return analyse(rows, manifest)


def test_the_baseline_in_blocks_that_were_added_later_does_not_make_repeats_of_the_others(
    simulated: ModuleType,
) -> None:
    """Three repeats of x, then y joins the plan: six blocks, six runs of the baseline, three pairs for each ratio."""
    findings = _analysed(simulated, [(BASE, X)] * 3 + [(BASE, Y)] * 3)
    assert [cell.measured for cell in findings.cells] == [6, 3, 3]
    assert findings.repeats == 3
    assert [doubt.code for doubt in findings.doubts] == ["few_repeats"]
    assert findings.doubts[0].remedy.endswith("--add-repeats 2")
    assert "There are 3 repeats" in findings.recommendation.sentence


def test_what_is_advised_and_what_can_be_seen_rest_on_the_repeats_of_the_compared_cells(
    simulated: ModuleType,
) -> None:
    """Chunks of a layer and a design without chunks have the same number of pairs, so the same effect can be seen."""
    findings = _analysed(simulated, [(BASE, X)] * 3 + [(BASE, Y)] * 3)
    more = _analysed(simulated, [(BASE, X)] * 5 + [(BASE, Y)] * 5)
    assert (findings.repeats, more.repeats) == (3, 5)
    assert "few_repeats" not in [doubt.code for doubt in more.doubts]
    seen = [findings.smallest_visible_effect, more.smallest_visible_effect]
    assert seen[0] is not None
    assert seen[0] > smallest_visible_effect(6, NOISE, family=2)
    assert seen[1] == pytest.approx(smallest_visible_effect(5, NOISE, family=2), rel=0.5)


def test_the_row_with_the_fewest_repeats_counts_and_a_lone_baseline_its_own(simulated: ModuleType) -> None:
    assert _analysed(simulated, [(BASE, X, Y)] * 2 + [(BASE, X)] * 3).repeats == 2
    assert _analysed(simulated, [(BASE,)] * 4).repeats == 4


def _halves(simulated: ModuleType, there: dict[str, str]) -> list[Part]:
    """Return two sweeps of three equal blocks each, of which the second ran on `there`."""
    generator = random.Random(3)
    parts = []
    for name, hardware in (("a", {"host": "Xeon"}), ("b", there)):
        rows = [
            simulated.make_run(axes, block, 1000.0 * (1.0 + generator.gauss(0, NOISE)), hardware=hardware)
            for axes in (BASE, X)
            for block in range(3)
        ]
        parts.append(Part(name, rows, simulated.make_manifest([BASE, X], 3)))
    return parts


@pytest.mark.parametrize(("there", "repeats"), [({"host": "Xeon"}, 6), ({"host": "EPYC"}, 3)])
def test_sweeps_together_have_the_repeats_that_their_rows_have(
    simulated: ModuleType, there: dict[str, str], repeats: int
) -> None:
    """Equal sweeps are repeats of one another; on another machine every row has its own baseline and its own blocks."""
    findings = analyse_together("a+b", _halves(simulated, there))
    assert findings.repeats == repeats
    assert {cell.speedup.ratio.count for cell in findings.cells if cell.speedup} == {repeats}
    assert ("few_repeats" in [doubt.code for doubt in findings.doubts]) is (repeats < 5)


def test_sweeps_that_are_repeats_of_one_another_share_what_is_to_be_added(
    simulated: ModuleType,
) -> None:
    parts = [
        replace(part, manifest=part.manifest.model_copy(update={"settings": Settings(repeats=3, repeats_most=1000)}))
        for part in _halves(simulated, {"host": "Xeon"})
    ]
    whole = analyse(*merge("a+b", parts)).recommendation.settle
    shared = analyse_together("a+b", parts).recommendation.settle
    assert whole is not None
    assert shared is not None
    added = [int(line.rpartition(" ")[2]) for line in shared.splitlines()]
    assert len(added) == 2
    assert int(whole.rpartition(" ")[2]) <= sum(added) <= int(whole.rpartition(" ")[2]) + 1


def test_the_noise_is_that_of_the_pairs_and_a_baseline_is_no_pair_of_itself(simulated: ModuleType) -> None:
    """100 sweeps of one comparison: the effect that they can show follows from the noise that was put in.

    The standard deviation of five values is 6 % too small on average; with the self-pair it would be a third too small.
    """
    effects = [
        smallest_visible_effect(5, NOISE / factor, family=1, threshold=0.02) or 0.0 for factor in (1.0, 2.0**0.5)
    ]
    shown = []
    for seed in range(100):
        generator = random.Random(seed)
        rows = [
            simulated.make_run(axes, block, 1000.0 * (1.0 + generator.gauss(0, NOISE)))
            for axes in (BASE, X)
            for block in range(5)
        ]
        found = analyse(rows, simulated.make_manifest([BASE, X], 5))
        shown.append(found.smallest_visible_effect or 0.0)
    middle = sum(shown) / len(shown)
    assert effects[1] < 0.9 * effects[0]
    assert middle == pytest.approx(effects[0], rel=0.08)
