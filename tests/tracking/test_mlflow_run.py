"""Names, values and times in a form that MLflow accepts, whatever users call things."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accelsweep.tracking.mlflow_run import epoch_ms, storable_text, to_metrics, to_params, to_tags

ACCEPTED = re.compile(r"[\w./ -]{1,250}", re.ASCII)


@given(st.dictionaries(st.text(max_size=300), st.one_of(st.text(), st.integers(), st.booleans()), max_size=8))
def test_any_config_values_become_as_many_params_with_valid_names(values: dict[str, object]) -> None:
    params = to_params(values)
    assert len(params) == len(values)
    for name, value in params.items():
        assert ACCEPTED.fullmatch(name)
        assert not name.startswith(("/", ".."))
        value.encode("utf-8")


def test_params_are_written_as_on_the_command_line() -> None:
    assert to_params({"a": True, "b": None, "c": 1.5, "d": "x", "e": [1, "y"]}) == {
        "a": "true",
        "b": "null",
        "c": "1.5",
        "d": "x",
        "e": '[1,"y"]',
    }


def test_metrics_that_are_unknown_or_not_finite_are_left_out() -> None:
    assert to_metrics({"a": 1.0, "b": None, "c": float("nan"), "d": float("inf"), "e": 0.0}) == {"a": 1.0, "e": 0.0}


def test_tags_without_a_value_are_left_out() -> None:
    assert to_tags({"a": None, "b": "", "c": 0}) == {"c": "0"}


def test_a_long_value_is_truncated_with_a_note_of_its_length() -> None:
    text = storable_text("x" * 6001)
    assert len(text) == 5000
    assert text.endswith("... (6001 characters; full text in record.json)")


@pytest.mark.parametrize(
    ("iso", "expected"),
    [("1970-01-01T00:00:01.500+00:00", 1500), ("1970-01-01T01:00:00+01:00", 0), ("1970-01-01T00:00:02Z", 2000)],
)
def test_times_become_milliseconds_since_1970(iso: str, expected: int) -> None:
    assert epoch_ms(iso) == expected
