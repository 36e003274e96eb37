"""The format of a saved view of MLflow's page of runs, as MLflow 3.15 to 3.17 read it.

A saved view is JSON whose `state` holds the page's table and charts, compressed. The format belongs to the page and is
no API: tests/browser opens such views in the real page.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping, Sequence
from typing import Any


def packed(name: str, state: Mapping[str, Any], created: int) -> str:
    """Return the tag's value for a view of this name and state. `created` is in milliseconds since 1970."""
    text = json.dumps(state, sort_keys=True).encode()
    packed = "deflate;" + base64.b64encode(zlib.compress(text, 9)).decode()
    return json.dumps({"name": name, "createdAt": created, "updatedAt": created, "state": packed})


def page(table: Mapping[str, Any], sections: Mapping[str, str], charts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the state of MLflow's page of runs, complete: a key that is left out keeps what the page showed before."""
    return {
        **table,
        "orderByAsc": False,
        "startTime": "ALL",
        "lifecycleFilter": "Active",
        "datasetsFilter": [],
        "modelVersionFilter": "All Runs",
        "runsHiddenMode": "SHOW_ALL",
        "runsHidden": [],
        "runsVisibilityMap": {},
        "runsExpanded": {},
        "runsPinned": [],
        "groupBy": None,
        "groupsExpanded": {},
        "viewMaximized": False,
        "runListHidden": False,
        "useGroupedValuesInCharts": True,
        "hideEmptyCharts": True,
        "autoRefreshEnabled": True,
        "globalLineChartConfig": {"xAxisKey": "step", "lineSmoothness": 0, "selectedXAxisMetricKey": ""},
        "compareRunSections": [
            {"uuid": key, "name": name, "display": True, "isReordered": True, "deleted": False, "isGenerated": False}
            for key, name in sections.items()
        ],
        "compareRunCharts": [{**chart, "uuid": f"chart-{number}"} for number, chart in enumerate(charts)],
        "isAccordionReordered": True,
    }


def _chart(kind: str, section: str, **fields: Any) -> dict[str, Any]:
    return {"type": kind, "metricSectionId": section, "runsCountToCompare": 50, "deleted": False} | {
        "isGenerated": False,
        **fields,
    }


def bar(section: str, metric: str, name: str) -> dict[str, Any]:
    """Return a chart with a bar for each run."""
    return _chart("BAR", section, metricKey=metric, displayName=name)


def scatter(section: str, across: str, up: str) -> dict[str, Any]:
    """Return a chart with a point for each run, of two metrics."""
    axes = {"xaxis": {"key": across, "type": "METRIC"}, "yaxis": {"key": up, "type": "METRIC"}}
    return _chart("SCATTER", section, displayName=f"{up} against {across}", **axes)


def parallel(section: str, params: Sequence[str], metric: str) -> dict[str, Any]:
    """Return a chart with a line for each run, from its params to a metric."""
    chosen = {"selectedParams": list(params), "selectedMetrics": [metric], "showAllRuns": False}
    return _chart("PARALLEL", section, displayName="settings and speed-up", **chosen)


def line(section: str, metric: str, name: str) -> dict[str, Any]:
    """Return a chart with a curve for each run, over its steps."""
    return _chart(
        "LINE",
        section,
        metricKey=metric,
        selectedMetricKeys=[metric],
        displayName=name,
        lineSmoothness=0,
        xAxisKey="step",
        selectedXAxisMetricKey="",
        xAxisScaleType="linear",
        scaleType="linear",
        range={},
        yAxisKey="metric",
        yAxisExpressions=[],
        ignoreOutliers=False,
        useGlobalXaxisKey=False,
        useGlobalLineSmoothing=True,
    )
