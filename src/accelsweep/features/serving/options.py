"""The options under `serving`, and the settings that they cause the plan to reject."""

from __future__ import annotations

import importlib.util
from typing import Literal

from pydantic import BaseModel, ConfigDict

from accelsweep.config.site import Site
from accelsweep.config.value_errors import FileOf
from accelsweep.errors import InputError
from accelsweep.json_documents import Amount, Count, StrictShare
from accelsweep.run_config import SettingConfig


class Serving(BaseModel):
    """How queries are served with `measure.scenario=server`. Times are in milliseconds.

    The share `latency_percentile` of the queries must be answered within `latency_ms`. A batch waits at most
    `max_wait_ms` for more queries. `workers` share the rank's CPU threads. `generator` selects the load generator for
    the other scenarios: only our own, or LoadGen as well.
    """

    model_config = ConfigDict(frozen=True)

    latency_ms: Amount = 50.0
    latency_percentile: StrictShare = 0.99
    max_wait_ms: Amount = 0.0
    workers: Count = 1
    generator: Literal["own", "loadgen"] = "own"


class ServingOptions(BaseModel):
    """The feature's top-level keys in a setting's config."""

    serving: Serving | None = None


def serving_of(config: SettingConfig) -> Serving | None:
    """Return a setting's options under `serving`, or None."""
    return ServingOptions.model_validate(config.raw).serving


def loadgen_install_command() -> str | None:
    """Return the command that installs MLPerf's load generator; None if it is installed."""
    return None if importlib.util.find_spec("mlperf_loadgen") else "pip install accelsweep[serving]"


def check(config: SettingConfig, file_of: FileOf) -> None:  # noqa: ARG001 - no file is named
    """Raise InputError if queries are to run under load without a latency bound."""
    if config.task_name == "serving" and serving_of(config) is None:
        raise InputError(
            "measure.scenario=server needs a latency bound: add serving=default, and set serving.latency_ms"
        )


def unsupported(config: SettingConfig, site: Site) -> str | None:
    """Return why queries cannot be served, or None. Checks for LoadGen only if this machine runs the measurements."""
    if config.num_nodes > 1:
        return f"measure.scenario=server supports one node, not {config.num_nodes}: increase devices instead"
    serving = serving_of(config)
    if serving is not None and serving.latency_ms == 0:
        return "serving.latency_ms=0: must be more than 0"
    remedy = loadgen_install_command() if site.probe else None
    return None if remedy is None else f"measure.scenario=server needs MLPerf's LoadGen: {remedy}"
