"""The answer of `accelsweep advise`."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from accelsweep.cli.json_output import Answer
from accelsweep.core.derived.advised import Offer, Tier


class AdviseAnswer(Answer):
    """`accelsweep advise NAME --json`: hardware for one training, ranked. Projected numbers have keys of their own."""

    kind: ClassVar[str] = "advise"

    sweep: str = Field(description="the sweep's name")
    epochs: float = Field(description="passes over the data that were asked for")
    samples: float = Field(description="samples of one of them")
    deadline_hours: float | None = Field(description="the deadline in hours")
    budget_usd: float | None = Field(description="the budget in USD")
    headline: str = Field(description="the answer in words")
    tier: Tier | None = Field(description="the least hardware that surely keeps to the bounds")
    choice: int | None = Field(
        description="the place in `offers` of the cheapest that surely keeps to the bounds, from 0"
    )
    offers: tuple[Offer, ...] = Field(description="every way to do the training, ranked; all projections are of 90 %")
    changes: tuple[str, ...] = Field(description="what would change the choice")
    next_steps: tuple[str, ...] = Field(description="what to measure to be sure")
    monthly: tuple[str, ...] = Field(description="from how many hours a month another way to pay is cheaper")
    assumptions: tuple[str, ...] = Field(description="what all numbers rest on")
