"""Claims that an experiment puts to the test: figures that somebody states, with their source.

An experiment states them under `report.claims`. They steer the report only and change nothing that is measured.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

from pydantic import Field, field_validator

from accelsweep.core.documents import Frozen

Words = Annotated[str, Field(min_length=1)]
Selection = Annotated[dict[str, Any], Field(min_length=1)]


class ClaimVerdict(StrEnum):
    """What the interval of a measured ratio says of a claimed one. A claim that cannot be tested is never dropped."""

    agrees = "agrees"
    more = "more than claimed"
    less = "less than claimed"
    undecided = "undecided"
    not_testable = "not testable here"


class Claim(Frozen):
    """A stated ratio: the `metric` of `cell` is `claimed` times that of `against`. Both are named by config values.

    `claim` says it in words and `source` where it was read. A measured ratio within `tolerance` of the claimed one (0.1
    is 10 %) agrees with it. `differs` says why the two may differ, whatever comes out.
    """

    id: Words
    claim: Words
    source: Words
    claimed: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    cell: Selection
    against: Selection
    metric: Words = "samples_per_second"
    tolerance: Annotated[float, Field(gt=0, lt=1)] = 0.1
    differs: str | None = None


class ReportSettings(Frozen):
    """The `report` key of a config."""

    claims: tuple[Claim, ...] = ()

    @field_validator("claims")
    @classmethod
    def _distinct(cls, claims: tuple[Claim, ...]) -> tuple[Claim, ...]:
        ids = [claim.id for claim in claims]
        twice = next((name for name in ids if ids.count(name) > 1), None)
        if twice is not None:
            raise ValueError(f"two claims have the id {twice!r}; each needs one of its own")
        return claims
