"""A wrong value is reported with its key, its value, the range that the model declares, and the file."""

from __future__ import annotations

from typing import Annotated

import pytest
from pydantic import BaseModel, Field

from accelsweep.config.site import Site
from accelsweep.config.sweep_options import Analysis, BlockOptions, Limits
from accelsweep.config.value_errors import describe_bounds, validated
from accelsweep.errors import InputError


def refusal(model: type[BaseModel], value: object, where: str = "") -> str:
    with pytest.raises(InputError) as caught:
        validated(model, value, where, lambda key: f"the file of {key}")
    return str(caught.value)


@pytest.mark.parametrize(
    ("model", "where", "value", "sentence"),
    [
        (Limits, "limits", {"run_seconds": 0.0}, "limits.run_seconds=0.0: must be more than 0"),
        (Limits, "limits", {"block_seconds": -1}, "limits.block_seconds=-1: must be more than 0, or null"),
        (Limits, "limits", {"retries": -1}, "limits.retries=-1: must be at least 0"),
        (Analysis, "analysis", {"threshold": 1.0}, "analysis.threshold=1.0: must be at least 0 and less than 1"),
        (Analysis, "analysis", {"confidence": 95}, "analysis.confidence=95: must be more than 0 and less than 1"),
        (BlockOptions, "block", {"size": 0}, "block.size=0: must be at least 1, or null"),
        (
            Site,
            "site",
            {"name": "x", "slurm": {"cpus_per_gpu": 0}},
            "site.slurm.cpus_per_gpu=0: must be at least 1",
        ),
        (
            Site,
            "site",
            {"name": "x", "slurm": {"max_jobs": 0}},
            "site.slurm.max_jobs=0: must be at least 1, or null",
        ),
    ],
)
def test_a_number_out_of_range_is_named_with_its_range_and_its_file(model, where, value, sentence) -> None:
    key = sentence.partition("=")[0]
    assert refusal(model, value, where) == f"{sentence}; look in the file of {key}"


def test_bounds_are_read_from_any_kind_of_annotation() -> None:
    assert describe_bounds(Annotated[float, Field(gt=0, lt=1)]) == "more than 0 and less than 1"
    assert describe_bounds(Annotated[int, Field(ge=1)] | None) == "at least 1, or null"
    assert describe_bounds(Annotated[int | None, Field(le=5)]) == "at most 5, or null"
    assert describe_bounds(int) == ""


class Inner(BaseModel):
    """A bounded number."""

    low: Annotated[int, Field(ge=3)] = 3


class Outer(BaseModel):
    """A mapping of models."""

    many: dict[str, Inner]


def test_a_number_in_a_mapping_of_models_has_its_range_too() -> None:
    assert "many.a.low=2: must be at least 3; look in" in refusal(Outer, {"many": {"a": {"low": 2}}})


def test_an_unknown_key_in_a_mapping_of_models_gets_the_nearest_name() -> None:
    with pytest.raises(InputError, match=r"unknown key 'many\.a\.lo' \(did you mean 'low'\?\)"):
        validated(Outer, {"many": {"a": {"lo": 2}}}, "", lambda _key: "there", extra="forbid")
