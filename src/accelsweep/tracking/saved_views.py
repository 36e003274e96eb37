"""The experiment's page in MLflow: saved views, sorted by speed-up, and a note with the headline.

A saved view is an experiment tag, `mlflow.sharedViewState.KEY`, in an internal format of MLflow's run page. This module
writes the format that MLflow 3.15 to 3.17 read.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

from accelsweep import registry
from accelsweep.config.setting import label
from accelsweep.plain_json import sha256_text
from accelsweep.records.estimates import Estimate
from accelsweep.records.findings import Findings, Recommendation, SettingFinding
from accelsweep.significant_digits import format_ratio
from accelsweep.tracking.links import REPEATS_VIEW, SETTINGS_VIEW, view_path
from accelsweep.tracking.mlflow_run import NOTE_TAG, storable_text
from accelsweep.tracking.repeat_runs import doubt_codes, memory_column
from accelsweep.tracking.setting_notes import memory_metric
from accelsweep.tracking.snapshot import Snapshot
from accelsweep.tracking.store import DEFAULT_NOTE, Store

_VIEW_TAG = "mlflow.sharedViewState."
_RUN_NAME, _CREATED = "attributes.`Run Name`", "runDateAndNestInfo"  # MLflow's names of columns that cannot be hidden
_NOTE_DIGEST_TAG = "accelsweep.note"
_MAX_ROWS = 20
_MAX_SENTENCE_CHARACTERS = 900
_MAX_TABLE_CHARACTERS = 3500


def update_experiment_page(store: Store, snapshot: Snapshot, report_link: str | None = None) -> None:
    """Write the experiment's saved views, and its note, with `report_link`, unless the user replaced it."""
    note = _note(store.experiment_id, snapshot.findings, report_link)
    tags = _view_tags(snapshot)
    if snapshot.findings is not None:
        for experiment_tags in registry.loaded("experiment_tags"):
            tags |= experiment_tags(snapshot.findings)
    current = store.tags.get(NOTE_TAG, DEFAULT_NOTE)
    if current == DEFAULT_NOTE or sha256_text(current) == store.tags.get(_NOTE_DIGEST_TAG):
        tags |= {NOTE_TAG: note, _NOTE_DIGEST_TAG: sha256_text(note)}
    for key, value in tags.items():
        if store.tags.get(key) != value:
            store.client.set_experiment_tag(store.experiment_id, key, value)


def _note(experiment_id: str, findings: Findings | None, report_link: str | None) -> str:
    """Return the experiment's note. A collapsed note shows only its first line: the headline and the report's link."""
    if findings is None:
        return DEFAULT_NOTE
    links = {
        "which setting is fastest": view_path(experiment_id),
        "charts": view_path(experiment_id, charts=True),
        "repeats": view_path(experiment_id, REPEATS_VIEW, charts=True),
    }
    compared = [(setting, setting.ratio) for setting in findings.settings if setting.ratio is not None]
    compared.sort(key=lambda pair: -pair[1].value)
    parts = [
        *_headline(findings.recommendation, report_link),
        " · ".join(f"[{name}]({path.removeprefix('/')})" for name, path in links.items()),
        _table([_row(setting, ratio) for setting, ratio in compared]),
    ]
    return "\n\n".join(filter(None, parts))


def _headline(recommendation: Recommendation, report_link: str | None) -> tuple[str, str]:
    """Return the headline with the link to the report, and what qualifies it."""
    sentence = storable_text(recommendation.sentence, _MAX_SENTENCE_CHARACTERS)
    headline = f"{recommendation.headline}."
    first, details = (headline, sentence[len(headline) :]) if sentence.startswith(headline) else (sentence, "")
    link = f" [Open the report]({report_link})" if report_link else ""
    return f"**{first}**{link}", details.strip()


def _table(rows: Sequence[str]) -> str:
    """Return a Markdown table of as many rows as fit, followed by the number of omitted rows; "" if no row fits."""
    for count in range(min(len(rows), _MAX_ROWS), 0, -1):
        more = [f"| and {len(rows) - count} more | | | |"] if count < len(rows) else []
        table = "\n".join(["| setting | speed-up | verdict | doubts |", "|---|---|---|---|", *rows[:count], *more])
        if len(table) <= _MAX_TABLE_CHARACTERS:
            return storable_text(table, _MAX_TABLE_CHARACTERS)
    return ""


def _row(setting: SettingFinding, ratio: Estimate) -> str:
    columns = [
        label(setting.axes),
        format_ratio(ratio.value, ratio.low, ratio.high),
        str(setting.verdict),
        doubt_codes(setting.doubts),
    ]
    return "| " + " | ".join(text.replace("|", "·") for text in columns) + " |"


def _view_tags(snapshot: Snapshot) -> dict[str, str]:
    findings = snapshot.findings
    rate = findings.rate_metric if findings else Findings.model_fields["rate_metric"].default
    memory = memory_metric(findings) if findings else None
    settings_view = _settings_view(snapshot.manifest.axes, rate, memory_column(memory or "peak"))
    views = {
        SETTINGS_VIEW: ("1 Settings: which is fastest, and how sure", settings_view),
        REPEATS_VIEW: ("2 Repeats: curves and spread", _repeats_view(rate)),
    }
    return {f"{_VIEW_TAG}{key}": _encode(name, state, snapshot.planned) for key, (name, state) in views.items()}


def _encode(name: str, state: Mapping[str, Any], created: int) -> str:
    """Return a view's tag value. `created` is in milliseconds since 1970."""
    packed = base64.b64encode(zlib.compress(json.dumps(state, sort_keys=True).encode(), 9)).decode()
    return json.dumps({"name": name, "createdAt": created, "updatedAt": created, "state": f"deflate;{packed}"})


def _settings_view(axes: Sequence[str], rate: str, memory: str) -> dict[str, Any]:
    """Return the settings view, fastest first, with comparison charts."""
    widths = {
        _metric("speedup"): 95,
        _tag("interval"): 118,
        _tag("verdict"): 90,
        _metric("quality"): 85,
        _metric(memory): 140,
        _tag("doubts"): 78,
        _metric(rate): 160,
        _tag("quality_verdict"): 140,
    }
    columns = list(widths)
    charts = [
        _bar("answer", "speedup", "speed-up"),
        _bar("answer", "speedup_low", "speed-up, lower end of the interval"),
        _bar("answer", rate, rate),
        _bar("price", memory, memory),
        _scatter("price", memory, rate),
        _scatter("price", rate, "quality"),
        _chart(
            "PARALLEL",
            "settings",
            displayName="settings and speed-up",
            selectedParams=list(axes),
            selectedMetrics=["speedup"],
            showAllRuns=False,
        ),
    ]
    return _page_state(
        "tags.kind = 'setting'",
        _metric("speedup"),
        columns,
        {_RUN_NAME: 265, _CREATED: 80, **widths},
        {"answer": "Speed-up", "price": "Its price", "settings": "By setting"},
        charts,
    )


def _repeats_view(rate: str) -> dict[str, Any]:
    """Return the view of the repeats, with their curves and the spread of each setting's rates."""
    charts = [
        _line("curve/samples_per_second", "samples per second, step by step"),
        _line("curve/train_loss", "training loss"),
        _bar("repeats", rate, "rate, mean of a setting's repeats"),
    ]
    columns = [_metric(rate), _tag("doubts"), _tag("repeat"), _tag("block")]
    sections = {"steps": "Steps over time", "repeats": "Repeats"}
    by_setting = {"aggregateFunction": "average", "groupByKeys": [{"mode": "tag", "groupByData": "setting"}]}
    state = _page_state("tags.kind = 'run'", "attributes.`start_time`", columns, {}, sections, charts)
    return state | {"groupBy": by_setting}


def _page_state(
    search: str,
    order_by: str,
    columns: Sequence[str],
    widths: Mapping[str, int],
    sections: Mapping[str, str],
    charts: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    """Return the complete state of MLflow's run page: if a key is missing, the page keeps its previous value."""
    return {
        "searchFilter": search,
        "orderByKey": order_by,
        "orderByAsc": False,
        "selectedColumns": columns,
        "columnOrder": list(widths) or columns,
        "columnWidths": widths,
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


def _metric(name: str) -> str:
    return f"metrics.`{name}`"


def _tag(name: str) -> str:
    return f"tags.`{name}`"


def _chart(kind: str, section: str, **fields: Any) -> dict[str, Any]:
    common = {"runsCountToCompare": 50, "deleted": False, "isGenerated": False}
    return {"type": kind, "metricSectionId": section, **common, **fields}


def _bar(section: str, metric: str, name: str) -> dict[str, Any]:
    return _chart("BAR", section, metricKey=metric, displayName=name)


def _scatter(section: str, x: str, y: str) -> dict[str, Any]:
    axes = {"xaxis": {"key": x, "type": "METRIC"}, "yaxis": {"key": y, "type": "METRIC"}}
    return _chart("SCATTER", section, displayName=f"{y} against {x}", **axes)


def _line(metric: str, name: str) -> dict[str, Any]:
    return _chart(
        "LINE",
        "steps",
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
