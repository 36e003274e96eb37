"""What MLflow's page of the experiment shows first: two saved views, and a note unless the user wrote another one."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Callable
from typing import Any

import pytest
from mlflow import MlflowClient

from accelsweep.records.layout import SweepFolder
from accelsweep.tracking.mlflow_run import NOTE_TAG
from accelsweep.tracking.publisher import publish
from accelsweep.tracking.saved_views import _table

pytestmark = pytest.mark.real

Published = tuple[SweepFolder, str]
VIEW_TAG = "mlflow.sharedViewState."


def experiment_tags(sweep: SweepFolder, uri: str) -> dict[str, str]:
    experiment = MlflowClient(uri).get_experiment_by_name(sweep.name)
    assert experiment is not None
    return dict(experiment.tags)


def report_address(sweep: SweepFolder, uri: str) -> str:
    """Return the address of the report's page in MLflow, behind the #."""
    experiment = MlflowClient(uri).get_experiment_by_name(sweep.name)
    assert experiment is not None
    (run,) = MlflowClient(uri).search_runs([experiment.experiment_id], "tags.kind = 'report'")
    place = f"/experiments/{experiment.experiment_id}/runs/{run.info.run_id}/artifacts/report/index.html"
    return f"{place}?workflowType=machine_learning"


def page_state(tag: str) -> dict[str, Any]:
    """Return the state of the page in a view's tag, unpacked as the page does it."""
    kind, _, packed = json.loads(tag)["state"].partition(";")
    assert kind == "deflate"
    state: dict[str, Any] = json.loads(zlib.decompress(base64.b64decode(packed)))
    return state


def test_the_first_view_sorts_settings_by_speed_up_and_the_second_has_repeats(published: Published) -> None:
    sweep, uri = published
    tags = experiment_tags(sweep, uri)
    views = {key.removeprefix(VIEW_TAG): value for key, value in tags.items() if key.startswith(VIEW_TAG)}
    settings, repeats = (page_state(views[f"accelsweep-{number}"]) for number in (1, 2))
    assert settings["searchFilter"] == "tags.kind = 'setting'"
    assert (settings["orderByKey"], settings["orderByAsc"]) == ("metrics.`speedup`", False)
    shown = ["metrics.`speedup`", "tags.`interval`", "tags.`verdict`", "metrics.`quality`", "metrics.`memory_gib`"]
    assert settings["selectedColumns"][:5] == shown
    (parallel,) = (chart for chart in settings["compareRunCharts"] if chart["type"] == "PARALLEL")
    assert parallel["selectedParams"] == ["devices", "batch_size", "precision"]
    assert repeats["searchFilter"] == "tags.kind = 'run'"
    assert repeats["groupBy"]["groupByKeys"] == [{"mode": "tag", "groupByData": "setting"}]
    assert all(len(value) < 5000 for value in views.values()), "MLflow's limit for tags of experiments"


def test_the_note_begins_with_the_headline_and_follows_it(
    copied_with_findings: Published, with_findings: Callable[..., Any]
) -> None:
    sweep, uri = copied_with_findings
    note = experiment_tags(sweep, uri)[NOTE_TAG]
    report = report_address(sweep, uri)
    assert note.splitlines()[0] == f"**Train on 2 devices.** [Open the report](#{report})"
    assert "1.5x [1.3, 1.7] | faster" in note
    assert "viewStateShareKey=accelsweep-1" in note
    with_findings(sweep, sentence="Stay with 1 device.")
    publish(sweep, uri)
    assert experiment_tags(sweep, uri)[NOTE_TAG].startswith(f"**Stay with 1 device.** [Open the report](#{report})\n")


def test_a_note_that_the_user_wrote_is_kept(copied_with_findings: Published, with_findings: Callable[..., Any]) -> None:
    sweep, uri = copied_with_findings
    experiment = MlflowClient(uri).get_experiment_by_name(sweep.name)
    assert experiment is not None
    MlflowClient(uri).set_experiment_tag(experiment.experiment_id, NOTE_TAG, "For the paper.")
    with_findings(sweep, sentence="Stay with 1 device.")
    publish(sweep, uri)
    assert experiment_tags(sweep, uri)[NOTE_TAG] == "For the paper."


def test_publishing_again_writes_no_tag_of_the_experiment(
    copied_with_findings: Published, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep, uri = copied_with_findings

    def fail(*_: object) -> None:
        pytest.fail("an unchanged tag was written")

    monkeypatch.setattr(MlflowClient, "set_experiment_tag", fail)
    assert publish(sweep, uri).written == 0


def test_a_table_that_is_too_long_for_a_note_loses_whole_rows_and_says_how_many() -> None:
    rows = [f"| {'x' * 400} {number} | 1.0x | faster | |" for number in range(12)]
    table = _table(rows)
    assert len(table) <= 3500
    *shown, last = table.split("\n")[2:]
    assert shown == rows[: len(shown)]
    assert 0 < len(shown) < 12
    assert last == f"| and {12 - len(shown)} more | | | |"
    assert _table([f"| {'x' * 4000} |"]) == _table([]) == ""
