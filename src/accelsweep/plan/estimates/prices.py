"""The price of an hour of a cell at a site, which has its devices."""

from __future__ import annotations

from accelsweep.core.cells.config import CellConfig
from accelsweep.core.planned.prices import Prices
from accelsweep.core.planned.settings import Site
from accelsweep.machine.prices import usd_per_hour_on
from accelsweep.plan.nodes import serving


def usd_per_hour(prices: Prices, config: CellConfig, site: Site) -> float | None:
    """Return the price of an hour of a cell with this config at `site` in USD, or None if no price is given for it."""
    models = [device.model for device in serving(config, site).inventory if device.accelerator == config.accelerator]
    return usd_per_hour_on(prices, config, models)
