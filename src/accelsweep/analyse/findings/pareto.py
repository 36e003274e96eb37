"""The Pareto front: cells that no other cell beats in everything that was measured of all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from accelsweep.core.findings import CellFinding, Verdict
from accelsweep.core.metrics import MEMORY_METRICS


def candidates(cells: Sequence[CellFinding]) -> list[CellFinding]:
    """Return the cells that can be chosen: measured, and comparable with the baseline."""
    return [cell for cell in cells if cell.measured and cell.verdict not in (Verdict.refused, Verdict.not_measured)]


def objectives(cells: Sequence[CellFinding], quality_better: str | None) -> dict[str, list[float]]:
    """Return, per objective that all `cells` have a value for, the values with "smaller is better"; rates are negated.

    Energy counts only where all readings have the same scope, memory only where all have the same kind.
    """
    memory = memory_of_all(cells) or MEMORY_METRICS[0]
    sign = 1.0 if quality_better == "min" else -1.0
    found: dict[str, list[float | None]] = {
        "rate": [-cell.rate.value if cell.rate else None for cell in cells],
        money_of(cells): [cost_of(cell, money_of(cells)) for cell in cells],
        "joules_per_sample": [cost_of(cell, "joules_per_sample") for cell in cells],
        memory: [value_of(cell, memory) for cell in cells],
        "quality": [sign * cell.quality.value if cell.quality else None for cell in cells],
    }
    if not one_energy_scope(cells):
        del found["joules_per_sample"]
    whole = {name: [value for value in values if value is not None] for name, values in found.items()}
    return {name: values for name, values in whole.items() if values and len(values) == len(cells)}


def front(values: Mapping[str, Sequence[float]], count: int) -> list[int]:
    """Return the indices, out of `count`, that no other index beats: at least as small everywhere and smaller once."""
    points = [tuple(column[index] for column in values.values()) for index in range(count)]
    return [
        index
        for index, point in enumerate(points)
        if not any(other != point and all(o <= p for o, p in zip(other, point, strict=True)) for other in points)
    ]


def one_energy_scope(cells: Sequence[CellFinding]) -> bool:
    """Return whether these cells' joules may be compared: processors' packages and GPUs' boards may not."""
    return len({cell.metrics["energy_joules"].scope for cell in cells if "joules_per_sample" in cell.costs}) < 2


def money_of(cells: Sequence[CellFinding]) -> str:
    """Return the cost that cells are weighed by: of a result, where some have one, else of a million samples."""
    return "usd_per_result" if any("usd_per_result" in cell.costs for cell in cells) else "usd_per_million_samples"


def memory_of_all(cells: Sequence[CellFinding]) -> str | None:
    """Return the memory metric by which these cells are weighed: the first that all of them have, or None."""
    return next((name for name in MEMORY_METRICS if all(value_of(cell, name) is not None for cell in cells)), None)


def value_of(cell: CellFinding, metric: str) -> float | None:
    """Return the median of a cell's metric, or None."""
    return cell.metrics[metric].median if metric in cell.metrics else None


def cost_of(cell: CellFinding, name: str) -> float | None:
    """Return one of a cell's costs, or None."""
    return cell.costs[name].value if name in cell.costs else None
