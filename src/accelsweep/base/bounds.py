"""The ranges of the numbers that steer a sweep, as types; `plan.refusals.wording` words a refusal."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

LEAST_MEM_MB = 1500
"""Memory below which a job cannot start: its two Snakemakes were seen to die below 600 MB, torch comes on top."""


def _enough_memory(mem_mb: int) -> int:
    if mem_mb < LEAST_MEM_MB:
        raise ValueError(
            f"must be at least {LEAST_MEM_MB} (each job runs two Snakemakes and a supervisor beside its runs), or null"
        )
    return mem_mb


AtLeast0 = Annotated[int, Field(ge=0)]
AtLeast1 = Annotated[int, Field(ge=1)]
JobMemory = Annotated[int, AfterValidator(_enough_memory)]
NotNegative = Annotated[float, Field(ge=0)]
Positive = Annotated[float, Field(gt=0)]
Share = Annotated[float, Field(gt=0, lt=1)]
ShareFrom0 = Annotated[float, Field(ge=0, lt=1)]
