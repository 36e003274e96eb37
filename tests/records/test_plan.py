"""Names of runs in merged findings."""

from __future__ import annotations

import pytest

from accelsweep.records.plan import MergedName


@pytest.mark.parametrize(
    ("text", "parts"), [("one/3f2a-r0", ("one", "3f2a-r0")), ("3f2a-r0", ("", "3f2a-r0")), ("", ("", ""))]
)
def test_a_merged_name_is_parsed_and_formatted_again(text: str, parts: tuple[str, str]) -> None:
    assert MergedName.of(text) == parts
    assert str(MergedName(*parts)) == text
