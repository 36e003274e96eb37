"""The headline is an answer of at most twelve words, however long the setting's name is."""

from __future__ import annotations

from types import ModuleType

import pytest

from accelsweep.analysis.analyse_sweep import analyse
from accelsweep.analysis.headline import MOST_WORDS, between, faster, short_name
from accelsweep.config.setting import axes_in_words
from accelsweep.records.estimates import Estimate, Speedup
from accelsweep.records.findings import CellFinding

LONG = {"accelerator": "cpu", "devices": 2, "precision": "32-true", "batch_size": 64} | {
    f"model.key{number}": number for number in range(20)
}


def finding(simulated: ModuleType, axes: dict[str, object]) -> CellFinding:
    """Return the finding of one setting with these axes."""
    rows = [simulated.make_run(axes, block, 1000.0 + block) for block in range(3)]
    return analyse(rows, simulated.make_manifest([axes], 3)).cells[0]


def sped_up(cell: CellFinding, value: float, low: float, high: float) -> CellFinding:
    ratio = Estimate(value=value, low=low, high=high, unit="1", confidence=0.95, count=3)
    return cell.model_copy(update={"speedup": Speedup(ratio=ratio, paired=True)})


@pytest.mark.parametrize(
    ("axes", "name"),
    [
        (
            {"accelerator": "cpu", "devices": 1, "precision": "32-true", "batch_size": 128},
            "32-bit, 1 process, batch 128",
        ),
        ({"accelerator": "cuda", "devices": 4, "precision": "bf16-mixed"}, "bf16-mixed, 4 GPUs"),
        ({"devices": 2, "model.width": 64}, "2 devices, model.width=64"),
        ({"accelerator": "mps"}, "1 Apple GPU"),
        ({}, "the only setting"),
    ],
)
def test_a_setting_has_a_name_in_prose(axes: dict[str, object], name: str) -> None:
    assert axes_in_words(axes) == name


def test_a_name_of_many_axes_is_cut_to_what_fits_and_says_so(simulated: ModuleType) -> None:
    cell = sped_up(finding(simulated, LONG), 2.1, 2.0, 2.2)
    words = faster(cell, None)
    assert len(words.split()) <= MOST_WORDS
    assert words.startswith("32-bit, 2 processes, batch 64")
    assert words.endswith(" more is 2.1x faster")


def test_a_long_name_is_told_by_what_differs_from_the_baseline(simulated: ModuleType) -> None:
    other = finding(simulated, LONG | {"batch_size": 32})
    assert short_name(finding(simulated, LONG), other, 9) == "batch 64"


def test_an_interval_that_says_nothing_gives_no_number(simulated: ModuleType) -> None:
    cell = sped_up(finding(simulated, {"batch_size": 64}), 30.0, 2.9, 327.0)
    assert faster(cell, None) == "batch 64 is faster, by how much is not known"
    assert between(cell.speedup.ratio, cell) == "How much faster is not known yet, against batch 64."
