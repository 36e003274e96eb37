"""Settings in an order: over devices, over batch sizes, and along a ladder."""

from __future__ import annotations

from enum import StrEnum

from accelsweep.base.documents import Frozen
from accelsweep.core.findings.numbers import Estimate, Verdict


class ScalingPoint(Frozen):
    """A cell against the same cell on the fewest devices: `efficiency` is the speed-up over the device ratio.

    It is None where no device was added: ranks on one processor share its cores, one machine is cut into more parts.
    """

    series: str
    kind: str
    cell: str
    devices: int
    speedup: Estimate
    efficiency: Estimate | None


class LawForm(StrEnum):
    """The conclusion from a scaling law's intervals: which of its two numbers are told apart from 0, or why none is."""

    ideal = "not told apart from ideal scaling"
    amdahl = "Amdahl's law"
    universal = "universal law"
    beyond = "better than ideal scaling"
    undecided = "undecided"
    disturbed = "disturbed"


class DeviceCount(Frozen):
    """A whole number of devices by a law, with its interval; None where the law has no such end."""

    value: int | None
    low: int | None
    high: int | None


class ScalingLaw(Frozen):
    """Gunther's universal scalability law of a scaling series: rate = n / (1 + s (n - 1) + k n (n - 1)), times one's.

    `contention` is s, `coherency` is k, `devices` are the numbers of devices that were measured. `pays` is the last
    device that adds at least half of what one alone does. `peak` is the number beyond which the rate falls. Both are
    None, with the `reason`, where `form` forbids to conclude. `misfit` is the largest relative distance of a mean rate
    from the law, and `speedups` are the law's own, over the fewest of the `devices`.
    """

    series: str
    kind: str
    devices: tuple[int, ...]
    form: LawForm
    contention: Estimate
    coherency: Estimate
    misfit: float
    speedups: tuple[float, ...]
    pays: DeviceCount | None = None
    peak: DeviceCount | None = None
    reason: str = ""


class BatchCurve(Frozen):
    """Cells that differ in batch size only, smallest first: where the rate stops to grow, and where memory ends.

    `knee` is the cell with the smallest batch that reaches 95 % of the series' best rate; `largest_measured` and
    `smallest_out_of_memory` are batch sizes per device. All three are None where the series does not show them.
    """

    series: str
    hardware: str | None
    cells: tuple[str, ...]
    knee: str | None
    largest_measured: int | None
    smallest_out_of_memory: int | None


class Rung(Frozen):
    """One rung of a ladder: the rate with it, and its gain over the last measured rung and over the first one.

    `ladder` says which other axes' values all of its rungs share; `step` is the axis' value. A rung that was not
    measured has no rate, and `reason` says why. `before` is the rung that `gain` is over, None for the first.
    """

    ladder: str
    hardware: str | None
    step: str
    cell: str
    rate: Estimate | None
    before: str | None
    gain: Estimate | None
    verdict: Verdict
    total: Estimate | None
    total_verdict: Verdict
    reason: str
