"""The causes as stored in the findings."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from accelsweep.json_documents import Frozen
from accelsweep.records.estimates import Verdict
from accelsweep.records.findings import Section


class Cause(StrEnum):
    """What keeps a setting from being faster than its baseline, in the order in which causes are looked for."""

    recompiling = "graphs were compiled within the window"
    emulated = "the CPU emulates this number format"
    few_cores = "there are too few CPU cores"
    waiting_for_data = "it waits for data"
    copying_batches = "it copies batches to the device"
    all_reduce = "it exchanges gradients"
    small_kernels = "its kernels are too small"
    loop_overhead = "the loop around the model takes the time"
    same_arithmetic = "the device multiplies no faster in this format"
    casts = "it converts between number formats"
    slower_operators = "operators became slower"
    other_operations = "most of the time is not spent in matrix products"
    tf32_baseline = "the baseline uses TF32"
    power_limit = "the device is at its power limit"
    matrix_products = "most of the time is spent in matrix products"
    already_busy = "the baseline keeps the device busy already"


class Explanation(Frozen):
    """A comparison that did not end with "faster", and why."""

    setting: str = Field(description="the setting's ID")
    label: str = Field(description="the setting's label")
    hardware: str | None = Field(description="the hardware it was measured on")
    against: str = Field(description="the baseline's ID")
    changed: tuple[str, ...] = Field(description="the keys in which the two settings differ")
    verdict: Verdict = Field(description="the comparison's verdict: slower or same")
    cause: Cause | None = Field(description="the cause; null if nothing conclusive was measured")
    evidence: str = Field(description="the numbers that show it, or what could show more")


class WhyNotFaster(Section):
    """The explanations of a sweep's comparisons, in the order of the settings."""

    explanations: tuple[Explanation, ...]
