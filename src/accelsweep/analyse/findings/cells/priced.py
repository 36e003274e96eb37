"""The cost of a run, as metrics of the run: claims may name them like metrics that were measured.

They are not in the record. They follow from it and from the prices of the plan, which may change without a new run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from accelsweep.analysis.costs import EPOCH_SAMPLES, PRICED_SAMPLES, RESULTS
from accelsweep.analysis.run_results import CellRuns, Reading, RunRow
from accelsweep.config.prices import Prices, usd_per_hour_on
from accelsweep.significant_digits import SECONDS_PER_HOUR

PRICED: Mapping[str, str] = {
    "usd_per_hour": "USD/h",
    "usd_per_million_samples": "USD",
    "usd_per_epoch": "USD",
    "usd_per_result": "USD",
}
"""The metrics that prices add, with their units."""


def priced(group: CellRuns, prices: Prices) -> CellRuns:
    """Return the same runs with the metrics in `PRICED`; where there is none, it has the reason."""
    models = group.effective.device_names if group.effective else ()
    config = None if prices.unusable is not None else group.config
    rent = None if config is None else usd_per_hour_on(prices, config, models)
    return replace(group, runs=tuple(replace(run, metrics={**run.metrics, **_costs(run, rent)}) for run in group.runs))


def _costs(run: RunRow, rent: float | None) -> dict[str, Reading]:
    if rent is None:
        return {name: Reading(None, unit, "no price is given for its devices") for name, unit in PRICED.items()}
    rate, results, epoch = (run.value(name) for name in ("samples_per_second", RESULTS, EPOCH_SAMPLES))
    per_sample = rent / SECONDS_PER_HOUR / rate if rate else None
    values: dict[str, float | str] = {
        "usd_per_hour": rent,
        "usd_per_million_samples": per_sample * PRICED_SAMPLES if per_sample else "samples_per_second was not measured",
        "usd_per_epoch": per_sample * epoch if per_sample and epoch else "the size of the training data is not known",
        "usd_per_result": rent / results if results else "the run did not train to a target, or missed it",
    }
    return {name: _reading(value, PRICED[name]) for name, value in values.items()}


def _reading(value: float | str, unit: str) -> Reading:
    if isinstance(value, str):
        return Reading(None, unit, value)
    return Reading(value, unit, provenance="a price over a measured rate")
