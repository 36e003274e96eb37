"""The names of runs and of sweeps where several sweeps are merged, joined and taken apart in one place."""

from __future__ import annotations

import pytest

from accelsweep.records.plan import MergedName


@pytest.mark.parametrize(
    ("text", "parts"), [("one/3f2a-r0", ("one", "3f2a-r0")), ("3f2a-r0", ("", "3f2a-r0")), ("", ("", ""))]
)
def test_a_name_among_merged_sweeps_comes_apart_and_together_again(text: str, parts: tuple[str, str]) -> None:
    assert MergedName.of(text) == parts
    assert str(MergedName(*parts)) == text
