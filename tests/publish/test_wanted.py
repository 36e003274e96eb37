"""Names, values and times in the form that MLflow takes, whatever a user calls things."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accelsweep.tracking.mlflow_run import metrics, milliseconds, params, plain, tags

ACCEPTED = re.compile(r"[\w./ -]{1,250}", re.ASCII)


@given(st.dictionaries(st.text(max_size=300), st.one_of(st.text(), st.integers(), st.booleans()), max_size=8))
def test_any_settings_become_as_many_params_with_names_that_mlflow_takes(settings: dict[str, object]) -> None:
    made = params(settings)
    assert len(made) == len(settings)
    for name, value in made.items():
        assert ACCEPTED.fullmatch(name)
        assert not name.startswith(("/", ".."))
        value.encode("utf-8")


def test_values_are_written_as_on_the_command_line() -> None:
    assert params({"a": True, "b": None, "c": 1.5, "d": "x", "e": [1, "y"]}) == {
        "a": "true",
        "b": "null",
        "c": "1.5",
        "d": "x",
        "e": '[1,"y"]',
    }


def test_numbers_that_are_unknown_or_not_finite_are_left_out() -> None:
    assert metrics({"a": 1.0, "b": None, "c": float("nan"), "d": float("inf"), "e": 0.0}) == {"a": 1.0, "e": 0.0}


def test_tags_without_a_value_are_left_out() -> None:
    assert tags({"a": None, "b": "", "c": 0}) == {"c": "0"}


def test_a_long_value_is_cut_with_a_note_of_its_length() -> None:
    cut = plain("x" * 6001)
    assert len(cut) == 5000
    assert cut.endswith("... (6001 characters; whole in record.json)")


@pytest.mark.parametrize(
    ("iso", "expected"),
    [("1970-01-01T00:00:01.500+00:00", 1500), ("1970-01-01T01:00:00+01:00", 0), ("1970-01-01T00:00:02Z", 2000)],
)
def test_times_become_milliseconds_since_1970(iso: str, expected: int) -> None:
    assert milliseconds(iso) == expected
