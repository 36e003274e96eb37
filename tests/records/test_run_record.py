"""Every doubt that the package raises has a description."""

from __future__ import annotations

import pytest

from accelsweep.records.run_record import DOUBT_DESCRIPTIONS, doubt_description
from accelsweep.results import Doubt


@pytest.mark.usefixtures("generators")
def test_exactly_the_doubts_that_are_raised_have_descriptions() -> None:
    import doubts

    assert {one.code for one in doubts.raised()} == DOUBT_DESCRIPTIONS.keys()


def test_an_unknown_doubt_is_described_by_its_code() -> None:
    assert doubt_description(Doubt(code="new_thing", message="m", remedy="r")) == "new thing"
