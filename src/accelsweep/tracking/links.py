"""Addresses of pages in MLflow's UI, relative to the server's URL.

Without `workflowType`, MLflow shows the navigation of its GenAI pages, or opens an experiment's traces.
"""

from __future__ import annotations

from accelsweep.records.layout import PAGE

SETTINGS_VIEW = "accelsweep-1"
REPEATS_VIEW = "accelsweep-2"

EXPERIMENTS_PATH = "/#/experiments?workflowType=machine_learning"
"""The list of experiments."""


def view_path(experiment_id: str, view: str = SETTINGS_VIEW, *, charts: bool = False) -> str:
    """Return the path of an experiment's runs in a saved view: `/#/experiments/1/runs?...`."""
    mode = "&compareRunsMode=CHART" if charts else ""
    return f"/#/experiments/{experiment_id}/runs?workflowType=machine_learning&viewStateShareKey={view}{mode}"


def report_path(experiment_id: str, report_run_id: str) -> str:
    """Return the path at which the report's page opens in the artifact viewer."""
    place = f"/#/experiments/{experiment_id}/runs/{report_run_id}/artifacts/report/{PAGE}"
    return f"{place}?workflowType=machine_learning"
