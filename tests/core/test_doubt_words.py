"""Every doubt that the package raises has a few plain words beside its code."""

from __future__ import annotations

import pytest

from accelsweep.records.run_record import DOUBT_DESCRIPTIONS, doubt_description
from accelsweep.results import Doubt


@pytest.mark.usefixtures("generators")
def test_each_doubt_that_is_raised_has_words_and_no_other_has() -> None:
    import doubts

    assert {one.code for one in doubts.raised()} == DOUBT_DESCRIPTIONS.keys()


def test_a_doubt_of_a_later_version_is_told_by_its_code() -> None:
    assert doubt_description(Doubt(code="new_thing", message="m", remedy="r")) == "new thing"
