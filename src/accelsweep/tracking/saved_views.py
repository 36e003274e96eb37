"""The experiment's first view in MLflow's UI: saved views that open sorted by speed-up, and a note with the answer.

A saved view is a tag of the experiment, `mlflow.sharedViewState.<key>`, which MLflow's page has read since 3.15.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

from accelsweep.config.setting import axes_in_words
from accelsweep.json_documents import sha256_text
from accelsweep.records.estimates import Estimate
from accelsweep.records.findings import CellFinding, Findings
from accelsweep.records.metrics import MEMORY_METRICS
from accelsweep.significant_digits import ratio_words
from accelsweep.tracking.mlflow_run import NOTE, plain
from accelsweep.tracking.repeat_runs import doubt_codes
from accelsweep.tracking.store import FIRST_NOTE, Store
from accelsweep.tracking.sweep_snapshot import Snapshot

# The format of a saved view of MLflow's page of runs, as MLflow 3.15 to 3.17 read it.


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


SETTINGS_VIEW = "accelsweep-1"

REPEATS_VIEW = "accelsweep-2"

_TAG = "mlflow.sharedViewState."

_NOTE_DIGEST = "accelsweep.note"

_MOST_ROWS = 20

PROJECTED_TAG = "accelsweep.projected"
"""The experiment's tag for devices that were not measured; the report among the artifacts has their table."""

_LONGEST_SENTENCE = 900

_LONGEST_TABLE = 3500


def link(experiment_id: str, view: str | None = SETTINGS_VIEW, *, charts: bool = False) -> str:
    """Return the address of a view, or of the plain list, to be put behind the server's own: `/#/experiments/1/...`."""
    shown = f"&viewStateShareKey={view}" if view else ""
    shown += "&compareRunsMode=CHART" if charts else ""
    return f"/#/experiments/{experiment_id}/runs?workflowType=machine_learning{shown}"


def show_first(store: Store, snapshot: Snapshot) -> None:
    """Bring about the experiment's views and its note; a note that somebody wrote in its place is left alone."""
    wanted = _views(snapshot)
    note = _note(store.experiment_id, snapshot.findings)
    wanted |= _projected(snapshot.findings)
    if _is_ours(store.tags):
        wanted |= {NOTE: note, _NOTE_DIGEST: sha256_text(note)}
    for key, value in wanted.items():
        if store.tags.get(key) != value:
            store.client.set_experiment_tag(store.experiment_id, key, value)


def _projected(findings: Findings | None) -> dict[str, str]:
    """Return the tag that names projections: never a metric, and never a tag of a measured run."""
    found = findings.elsewhere if findings else None
    if found is None:
        return {}
    words = [f"{one.name} ({one.form}): {one.rate.words} samples/s" for one in found.devices if one.rate is not None]
    said = f"projected, not measured: {'; '.join(words)}" if words else found.reason or "no device could be projected"
    return {PROJECTED_TAG: said[:_LONGEST_TABLE]}


def _is_ours(tags: Mapping[str, str]) -> bool:
    note = tags.get(NOTE, FIRST_NOTE)
    return note == FIRST_NOTE or sha256_text(note) == tags.get(_NOTE_DIGEST)


def _views(snapshot: Snapshot) -> dict[str, str]:
    findings = snapshot.findings
    rate = findings.rate_metric if findings else Findings.model_fields["rate_metric"].default
    memory = _memory(findings)
    views = {
        SETTINGS_VIEW: ("1 Settings: which is fastest, and how sure", _settings(snapshot.manifest.axes, rate, memory)),
        REPEATS_VIEW: ("2 Repeats: curves and spread", _repeats(rate)),
    }
    return {f"{_TAG}{key}": packed(name, state, snapshot.planned) for key, (name, state) in views.items()}


def _memory(findings: Findings | None) -> str:
    cells = findings.cells if findings else ()
    known = {name for cell in cells for name, summary in cell.metrics.items() if summary.median is not None}
    return next((name for name in MEMORY_METRICS if name in known), MEMORY_METRICS[-1])


def _metric_column(name: str) -> str:
    return f"metrics.`{name}`"


def _tag_column(name: str) -> str:
    return f"tags.`{name}`"


def _settings(axes: Sequence[str], rate: str, memory: str) -> dict[str, Any]:
    """Return the view of cells, the fastest first, and charts that compare them."""
    columns = [_metric_column(name) for name in ("speedup", "speedup_low", "speedup_high")]
    columns += [
        _tag_column("verdict"),
        _tag_column("doubts"),
        _metric_column(rate),
        _tag_column("quality_verdict"),
        _metric_column("quality"),
    ]
    columns += [_metric_column(memory)]
    charts = [
        bar("answer", "speedup", "speed-up"),
        bar("answer", "speedup_low", "speed-up, lower end of the interval"),
        bar("answer", rate, rate),
        scatter("price", memory, rate),
        scatter("price", rate, "quality"),
        parallel("settings", axes, "speedup"),
    ]
    sections = {"answer": "Speed-up", "price": "Its price", "settings": "By setting"}
    table = {
        "searchFilter": "tags.kind = 'cell'",
        "orderByKey": _metric_column("speedup"),
        "selectedColumns": columns,
        "columnOrder": columns,
        "columnWidths": {
            "attributes.`Run Name`": 300,
            "runDateAndNestInfo": 60,
            **dict.fromkeys(columns[:3], 95),
            _tag_column("verdict"): 95,
            _tag_column("doubts"): 180,
            _metric_column(rate): 140,
            _tag_column("quality_verdict"): 140,
        },
    }
    return page(table, sections, charts)


def _repeats(rate: str) -> dict[str, Any]:
    """Return the view of repeats: their curves, and the spread of each cell's rates."""
    columns = [_metric_column(rate), _tag_column("doubts"), _tag_column("repeat"), _tag_column("block")]
    charts = [
        line("steps", "curve/samples_per_second", "samples per second, step by step"),
        line("steps", "curve/train_loss", "training loss"),
        bar("repeats", rate, "rate of every repeat"),
    ]
    table = {
        "searchFilter": "tags.kind = 'run'",
        "orderByKey": "attributes.`start_time`",
        "selectedColumns": columns,
        "columnOrder": columns,
        "columnWidths": {},
    }
    return page(table, {"steps": "Steps over time", "repeats": "Repeats"}, charts)


def _note(experiment_id: str, findings: Findings | None) -> str:
    """Return the note above the runs: the headline first, since the page shows one line of a folded note."""
    if findings is None:
        return FIRST_NOTE
    links = " · ".join(
        f"[{name}]({address[1:]})"
        for name, address in {
            "which setting is fastest": link(experiment_id),
            "charts": link(experiment_id, charts=True),
            "repeats": link(experiment_id, REPEATS_VIEW, charts=True),
        }.items()
    )
    compared = [(cell, cell.ratio) for cell in findings.cells if cell.ratio is not None]
    compared.sort(key=lambda pair: -pair[1].value)
    rows = [_row(cell, ratio) for cell, ratio in compared[:_MOST_ROWS]]
    if len(compared) > _MOST_ROWS:
        rows.append(f"| and {len(compared) - _MOST_ROWS} more | | | |")
    table = ["| setting | speed-up | verdict | doubts |", "|---|---|---|---|", *rows] if rows else []
    return "\n".join(
        [
            plain(findings.recommendation.sentence, _LONGEST_SENTENCE),
            "",
            links,
            "",
            plain("\n".join(table), _LONGEST_TABLE),
        ]
    )


def _row(cell: CellFinding, ratio: Estimate) -> str:
    words = [
        axes_in_words(cell.axes),
        ratio_words(ratio.value, ratio.low, ratio.high),
        str(cell.verdict),
        doubt_codes(cell.doubts),
    ]
    return "| " + " | ".join(word.replace("|", "·") for word in words) + " |"
