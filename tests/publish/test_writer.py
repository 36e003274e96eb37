"""What a publisher changes in runs that the store has already: names and params of a later plan, tags that go."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from mlflow import MlflowClient
from stores import BOTH_STORES

from accelsweep.json_documents import sha256_file
from accelsweep.records.layout import SweepFolder
from accelsweep.records.plan import Manifest
from accelsweep.tracking import publisher
from accelsweep.tracking.mlflow_run import KEY, PUBLISHED, SOURCE, Wanted
from accelsweep.tracking.publisher import publish
from accelsweep.tracking.run_upload import Writer
from accelsweep.tracking.setting_runs import GROUP_KEY
from accelsweep.tracking.store import connect
from accelsweep.tracking.sweep_snapshot import PublishedState, up_to_date

pytestmark = pytest.mark.real

ReadStore = Callable[[SweepFolder, str], dict[str, dict[str, Any]]]


def add_an_axis(sweep: SweepFolder) -> None:
    """Let the next revision of the plan sweep the model's width too, whose only value so far was 16."""
    manifest = Manifest.read(sweep.manifest)
    cells = tuple(cell.model_copy(update={"axes": cell.axes | {"model.width": 16}}) for cell in manifest.cells)
    changes = {"revision": 2, "axes": (*manifest.axes, "model.width"), "cells": cells}
    manifest.model_copy(update=changes).write(sweep.manifest)


def ids(sweep: SweepFolder, uri: str) -> dict[str, str]:
    """Return the ids of the sweep's runs in the store by their keys."""
    client = MlflowClient(uri)
    experiment = client.get_experiment_by_name(sweep.name)
    return {run.data.tags[KEY]: run.info.run_id for run in client.search_runs([experiment.experiment_id])}


def cell(name: str, *, status: str = "RUNNING", **tags: str) -> Wanted:
    """Return a cell's run with these tags."""
    digest = f"{name} {status} {sorted(tags.items())}"
    return Wanted(f"cell:{name}", name, name, digest, status, 0, None, tags)


def test_an_axis_that_is_swept_later_reaches_the_names_and_params_of_what_was_published_before(
    copied: tuple[SweepFolder, str], read_store: ReadStore
) -> None:
    sweep, uri = copied
    before = ids(sweep, uri)
    add_an_axis(sweep)
    assert not up_to_date(sweep, uri)
    publish(sweep, uri)
    assert ids(sweep, uri) == before, "no run is replaced by another one"
    held = dict(read_store(sweep, uri))
    del held[GROUP_KEY]  # it stands for no setting
    for key, entry in held.items():
        assert entry["params"]["model.width"] == "16", key
        name, _, repeat = entry["name"].partition(" #")
        assert "width" in name or len(entry["name"]) == 24, "the name begins with what it had, and is cut"
        assert repeat == (key[-1] if key.startswith("run:") else "")
    assert publish(sweep, uri).written == 0
    assert up_to_date(sweep, uri)


def test_a_store_that_an_earlier_version_filled_is_brought_up_to_date_in_place(
    copied: tuple[SweepFolder, str], read_store: ReadStore
) -> None:
    sweep, uri = copied
    before, expected = ids(sweep, uri), dict(read_store(sweep, uri))
    client = MlflowClient(uri)
    for key, run_id in before.items():
        if key.startswith("run:"):  # it marked a repeat as whole with the sum of its record alone
            client.update_run(run_id, name="a name without the axis")
            client.set_tag(run_id, PUBLISHED, client.get_run(run_id).data.tags[SOURCE])
    state = PublishedState.read(sweep.published)
    sums = {path.parent.name: sha256_file(path) for path in sweep.root.glob("runs/*/record.json")}
    stores = {address: copied.model_copy(update={"records": sums}) for address, copied in state.stores.items()}
    PublishedState(stores=stores).write(sweep.published)
    assert not up_to_date(sweep, uri)
    assert publish(sweep, uri).written == 23
    assert (ids(sweep, uri), dict(read_store(sweep, uri))) == (before, expected)
    assert publish(sweep, uri).written == 0


@BOTH_STORES
def test_a_tag_that_goes_is_deleted_once_however_often_the_run_changes(
    sweep: SweepFolder, uri: str, read_store: ReadStore
) -> None:
    store = connect(sweep, uri)
    writer = Writer(store, store.look())
    writer.bring_about(cell("a", outcome="measured"))
    writer.bring_about(cell("a", outcomes="measured 1, crashed 1"))
    writer.bring_about(cell("a", outcomes="measured 1, crashed 2"))
    tags = read_store(sweep, uri)["cell:a"]["tags"]
    assert (tags.get("outcome"), tags["outcomes"]) == (None, "measured 1, crashed 2")


def test_a_cell_that_is_resumed_is_running_though_a_publisher_was_killed_while_it_abandoned_it(
    sweep: SweepFolder, uri: str, read_store: ReadStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = connect(sweep, uri)
    Writer(store, store.look()).bring_about(cell("a", kind="cell"))

    def die(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(store.client, "set_terminated", die)
    writer = Writer(store, store.look())
    with pytest.raises(KeyboardInterrupt):
        writer.abandon(())
    Writer(store, store.look()).bring_about(cell("a", kind="cell"))
    entry = read_store(sweep, uri)["cell:a"]
    assert (entry["status"], entry["tags"].get("outcome")) == ("RUNNING", None)


def test_a_report_that_is_written_while_the_publisher_ends_is_published_next_time(
    sweep: SweepFolder, uri: str, with_findings: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    with_findings(sweep)
    bring_about_all = publisher.bring_about_all

    def then_write(writer: Writer, *rest: Any) -> None:
        bring_about_all(writer, *rest)
        if not writer.written:
            (sweep.report / "index.html").write_text("a newer report", "utf-8")

    monkeypatch.setattr(publisher, "bring_about_all", then_write)
    publish(sweep, uri)
    assert not up_to_date(sweep, uri)
