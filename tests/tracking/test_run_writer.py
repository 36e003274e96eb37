"""What a publisher changes in runs that the store has already: names, params, tags and obsolete files."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from mlflow import MlflowClient
from stores import BOTH_STORES, whole

from accelsweep.records.layout import SweepFolder
from accelsweep.records.plan import Manifest
from accelsweep.tracking import publisher
from accelsweep.tracking.mlflow_run import KEY_TAG, MlflowRun
from accelsweep.tracking.published_state import up_to_date
from accelsweep.tracking.publisher import publish
from accelsweep.tracking.run_writer import RunWriter
from accelsweep.tracking.setting_runs import UNSUPPORTED_KEY
from accelsweep.tracking.store import connect

pytestmark = pytest.mark.real

ReadStore = Callable[[SweepFolder, str], dict[str, dict[str, Any]]]


def sweep_one_more_key(sweep: SweepFolder) -> None:
    """Write a second revision of the plan that also sweeps the model's width, so far always 16."""
    manifest = Manifest.read(sweep.manifest)
    settings = tuple(
        setting.model_copy(update={"axes": setting.axes | {"model.width": 16}}) for setting in manifest.settings
    )
    changes = {"revision": 2, "axes": (*manifest.axes, "model.width"), "settings": settings}
    manifest.model_copy(update=changes).write(sweep.manifest)


def run_ids(sweep: SweepFolder, uri: str) -> dict[str, str]:
    """Return the ids of the sweep's runs in the store by their keys."""
    client = MlflowClient(uri)
    experiment = client.get_experiment_by_name(sweep.name)
    return {run.data.tags[KEY_TAG]: run.info.run_id for run in client.search_runs([experiment.experiment_id])}


def running_setting(**tags: str) -> MlflowRun:
    return MlflowRun("setting:a", "a", "a", f"digest of {sorted(tags.items())}", "RUNNING", 0, None, tags)


def test_a_key_that_is_swept_later_is_added_to_the_names_and_params_of_published_runs(
    copied: tuple[SweepFolder, str], read_store: ReadStore
) -> None:
    sweep, uri = copied
    before = run_ids(sweep, uri)
    sweep_one_more_key(sweep)
    assert not up_to_date(sweep, uri)
    publish(sweep, uri)
    assert run_ids(sweep, uri) == before, "no run was replaced"
    runs = dict(read_store(sweep, uri))
    del runs[UNSUPPORTED_KEY]
    for key, run in runs.items():
        assert run["params"]["model.width"] == "16", key
        assert run["name"].endswith("width=16"), "the new key comes last"
        assert run["name"].startswith(f"#{key[-1]} " if key.startswith("run:") else "batch ")
    assert publish(sweep, uri).written == 0
    assert up_to_date(sweep, uri)


def test_a_new_layout_version_updates_the_published_runs_in_place(
    copied: tuple[SweepFolder, str], read_store: ReadStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep, uri = copied
    before, expected = run_ids(sweep, uri), whole(read_store(sweep, uri))
    client = MlflowClient(uri)
    repeats = [run_id for key, run_id in before.items() if key.startswith("run:")]
    for run_id in repeats:
        client.update_run(run_id, name="a name of the old layout")
        client.set_tag(run_id, "obsolete", "yes")
    monkeypatch.setattr("accelsweep.tracking.snapshot._LAYOUT_VERSION", 1000)
    assert not up_to_date(sweep, uri)
    assert publish(sweep, uri).written == len(repeats)
    after = whole(read_store(sweep, uri))
    for runs in (expected, after):
        for run in runs.values():
            run["tags"].pop("accelsweep.published", None)
    assert (run_ids(sweep, uri), after) == (before, expected)
    assert publish(sweep, uri).written == 0


@BOTH_STORES
def test_an_obsolete_tag_is_deleted_once_however_often_the_run_changes(
    sweep: SweepFolder, uri: str, read_store: ReadStore
) -> None:
    store = connect(sweep, uri)
    writer = RunWriter(store, store.list_runs())
    writer.write(running_setting(outcome="measured"))
    writer.write(running_setting(outcomes="measured 1, crashed 1"))
    writer.write(running_setting(outcomes="measured 1, crashed 2"))
    tags = read_store(sweep, uri)["setting:a"]["tags"]
    assert (tags.get("outcome"), tags["outcomes"]) == (None, "measured 1, crashed 2")


def test_a_resumed_setting_is_running_although_a_publisher_died_while_marking_it_as_killed(
    sweep: SweepFolder, uri: str, read_store: ReadStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = connect(sweep, uri)
    RunWriter(store, store.list_runs()).write(running_setting(kind="setting"))

    def die(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(store.client, "set_terminated", die)
    writer = RunWriter(store, store.list_runs())
    with pytest.raises(KeyboardInterrupt):
        writer.kill_abandoned(())
    RunWriter(store, store.list_runs()).write(running_setting(kind="setting"))
    run = read_store(sweep, uri)["setting:a"]
    assert (run["status"], run["tags"].get("outcome")) == ("RUNNING", None)


def test_a_report_that_changes_while_the_publisher_ends_is_published_next_time(
    small_sweep: SweepFolder, uri: str, with_findings: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    with_findings(small_sweep)
    publish_snapshot = publisher.publish_snapshot

    def then_change_the_report(writer: RunWriter, *rest: Any) -> None:
        publish_snapshot(writer, *rest)
        if not writer.written:
            (small_sweep.report / "index.html").write_text("a newer report", "utf-8")

    monkeypatch.setattr(publisher, "publish_snapshot", then_change_the_report)
    publish(small_sweep, uri)
    assert not up_to_date(small_sweep, uri)
