"""The ranges of all numbers that a user states, as types, and a text that says something.

`plan.refusals.wording` words a refusal.
Those of a site may come as text from the environment (`${oc.env:MINUTES}`). Those of a setting and of prices are
strict, because a setting is named by its values as they stand.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, AllowInfNan, Field, Strict, ValidationError

LEAST_MEM_MB = 1500
"""Memory below which a job cannot start: its two Snakemakes were seen to die below 600 MB, torch comes on top."""


def _enough_memory(mem_mb: int) -> int:
    if mem_mb < LEAST_MEM_MB:
        raise ValueError(
            f"must be at least {LEAST_MEM_MB} (each job runs two Snakemakes and a supervisor beside its runs), or null"
        )
    return mem_mb


NonEmpty = Annotated[str, Field(min_length=1)]

AtLeast0 = Annotated[int, Field(ge=0)]
AtLeast1 = Annotated[int, Field(ge=1)]
JobMemory = Annotated[int, AfterValidator(_enough_memory)]
NotNegative = Annotated[float, Field(ge=0)]
Positive = Annotated[float, Field(gt=0)]
Share = Annotated[float, Field(gt=0, lt=1)]
ShareFrom0 = Annotated[float, Field(ge=0, lt=1)]

Natural = Annotated[AtLeast0, Strict()]
Count = Annotated[AtLeast1, Strict()]
Amount = Annotated[NotNegative, AllowInfNan(False), Strict()]
StrictShare = Annotated[Share, Strict()]
StrictShareFrom0 = Annotated[ShareFrom0, Strict()]


def first_wrong(error: ValidationError) -> str:
    """Return the first wrong value of a file as `place: what is wrong there`."""
    first = error.errors()[0]
    place = ".".join(map(str, first["loc"]))
    said = first["msg"].removeprefix("Value error, ")
    return f"{place}: {said}" if place else said
