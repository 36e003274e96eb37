"""Every doubt that the package raises has a few plain words beside its code."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from accelsweep.core.doubt_words import WORDS, in_words
from accelsweep.core.record import Doubt

ROOT = Path(__file__).resolve().parents[2]


def test_each_doubt_that_is_raised_has_words_and_no_other_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "docs" / "generate"))
    raised = {one.code for one in importlib.import_module("doubts").raised()}
    assert raised == WORDS.keys()


def test_a_doubt_of_a_later_version_is_told_by_its_code() -> None:
    assert in_words(Doubt(code="new_thing", message="m", remedy="r")) == "new thing"
