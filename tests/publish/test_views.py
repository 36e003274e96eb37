"""What the experiment shows first: two saved views and a note with the answer, unless somebody wrote another note."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Callable
from typing import Any

import pytest
from mlflow import MlflowClient

from accelsweep.records.layout import SweepFolder
from accelsweep.tracking.mlflow_run import NOTE
from accelsweep.tracking.publisher import publish
from accelsweep.tracking.saved_views import link
from accelsweep.tracking.sweep_snapshot import copies, remember, up_to_date

pytestmark = pytest.mark.real

Published = tuple[SweepFolder, str]
VIEW = "mlflow.sharedViewState."


def tags(sweep: SweepFolder, uri: str) -> dict[str, str]:
    experiment = MlflowClient(uri).get_experiment_by_name(sweep.name)
    assert experiment is not None
    return dict(experiment.tags)


def state(value: str) -> dict[str, Any]:
    """Return the state of the page that a view's tag holds, as the page unpacks it."""
    kind, _, packed = json.loads(value)["state"].partition(";")
    assert kind == "deflate"
    unpacked: dict[str, Any] = json.loads(zlib.decompress(base64.b64decode(packed)))
    return unpacked


def test_the_first_view_has_settings_sorted_by_speed_up_and_the_second_has_repeats(
    published: Published,
) -> None:
    sweep, uri = published
    views = {key.removeprefix(VIEW): value for key, value in tags(sweep, uri).items() if key.startswith(VIEW)}
    settings, repeats = (state(views[f"accelsweep-{number}"]) for number in (1, 2))
    assert settings["searchFilter"] == "tags.kind = 'cell'"
    assert (settings["orderByKey"], settings["orderByAsc"]) == ("metrics.`speedup`", False)
    assert settings["selectedColumns"][3:5] == ["tags.`verdict`", "tags.`doubts`"]
    assert "metrics.`host_pss_bytes`" in settings["selectedColumns"]
    (parallel,) = (chart for chart in settings["compareRunCharts"] if chart["type"] == "PARALLEL")
    assert parallel["selectedParams"] == ["devices", "batch_size", "precision"]
    assert repeats["searchFilter"] == "tags.kind = 'run'"
    assert all(len(value) < 5000 for value in views.values()), "MLflow takes no longer tags of an experiment"


def test_the_note_begins_with_the_headline_and_follows_it(
    copied_with_findings: Published, with_findings: Callable[..., Any]
) -> None:
    sweep, uri = copied_with_findings
    note = tags(sweep, uri)[NOTE]
    assert note.startswith("Train on 2 devices.\n")
    assert "1.5x [1.3, 1.7] | faster" in note
    assert "viewStateShareKey=accelsweep-1" in note
    with_findings(sweep, sentence="Stay with 1 device.")
    publish(sweep, uri)
    assert tags(sweep, uri)[NOTE].startswith("Stay with 1 device.\n")


def test_a_note_that_somebody_wrote_stays(copied_with_findings: Published, with_findings: Callable[..., Any]) -> None:
    sweep, uri = copied_with_findings
    experiment = MlflowClient(uri).get_experiment_by_name(sweep.name)
    assert experiment is not None
    MlflowClient(uri).set_experiment_tag(experiment.experiment_id, NOTE, "For the paper.")
    with_findings(sweep, sentence="Stay with 1 device.")
    publish(sweep, uri)
    assert tags(sweep, uri)[NOTE] == "For the paper."


def test_a_copy_from_before_there_were_views_is_completed_and_linked_to_its_plain_list_until_then(
    copied_with_findings: Published,
) -> None:
    sweep, uri = copied_with_findings
    (copied,) = copies(sweep.home, uri).values()
    assert copied.views
    assert up_to_date(sweep, uri)
    remember(sweep, uri, copied.model_copy(update={"views": False}))
    assert not up_to_date(sweep, uri)
    publish(sweep, uri)
    assert up_to_date(sweep, uri)
    assert link("7", None) == "/#/experiments/7/runs?workflowType=machine_learning"


def test_publishing_again_leaves_the_views_as_they_are(
    copied_with_findings: Published, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep, uri = copied_with_findings

    def refuse(*_: object) -> None:
        pytest.fail("a tag was written that stands there already")

    monkeypatch.setattr(MlflowClient, "set_experiment_tag", refuse)
    assert publish(sweep, uri).written == 0
