"""Settings that cannot run are one grey group in MLflow, found out by the plan or by their repeats."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from mlflow import MlflowClient

from accelsweep.records.layout import SweepFolder
from accelsweep.records.plan import Manifest
from accelsweep.records.run_record import Outcome, Record
from accelsweep.tracking.mlflow_run import NOTE, PARENT, PUBLISHED
from accelsweep.tracking.publisher import publish
from accelsweep.tracking.setting_runs import GROUP_KEY, group_run
from accelsweep.tracking.store import connect
from accelsweep.tracking.sweep_snapshot import take, up_to_date

pytestmark = pytest.mark.real

ReadStore = Callable[[SweepFolder, str], dict[str, dict[str, Any]]]
WHY = "16-mixed is not available on a CPU; use bf16-mixed, or accelerator=cuda"


def planned(sweep: SweepFolder) -> list[str]:
    """Return the keys of the settings that the plan calls unsupported."""
    return [f"cell:{cell.name}" for cell in Manifest.read(sweep.manifest).cells if cell.unsupported]


def end_all(sweep: SweepFolder, cell: str, outcome: Outcome, reason: str | None) -> None:
    """Let each repeat of a setting have ended so."""
    for path in sweep.root.glob(f"runs/{cell}-r*/record.json"):
        Record.read(path).model_copy(update={"outcome": outcome, "reason": reason, "metrics": {}}).write(path)


def test_settings_that_the_plan_refuses_lie_in_one_grey_group_that_began_before_all_others(
    published: tuple[SweepFolder, str], read_store: ReadStore
) -> None:
    sweep, uri = published
    held = read_store(sweep, uri)
    group = held[GROUP_KEY]
    assert (group["name"], group["status"], group["parent"]) == ("cannot run here (2)", "FINISHED", None)
    assert group["tags"]["mlflow.runColor"] == "#8f8f8f"
    assert group["tags"][NOTE].endswith(f"* {WHY}: 16-mixed, 1 device, batch 32; 16-mixed, 2 devices, batch 32")
    assert group["started"] < min(entry["started"] for key, entry in held.items() if key != GROUP_KEY)
    for key in planned(sweep):
        tags = held[key]["tags"]
        assert (held[key]["status"], held[key]["parent"]) == ("FINISHED", GROUP_KEY)
        assert (tags["kind"], tags["outcome"], tags["reason"]) == ("unsupported", "unsupported", WHY)


def test_a_copy_of_an_earlier_form_with_failed_settings_at_the_top_is_brought_to_this_one(
    sweep: SweepFolder, uri: str, read_store: ReadStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as earlier:
        earlier.setattr("accelsweep.tracking.sweep_snapshot._FORM", 3)
        publish(sweep, uri)
    client, held = MlflowClient(uri), connect(sweep, uri).look()
    for key in planned(sweep):
        (entry,) = held[key]
        client.set_terminated(entry.run_id, status="FAILED")
        client.delete_tag(entry.run_id, PARENT)
        client.set_tag(entry.run_id, "kind", "cell")
        client.set_tag(entry.run_id, PUBLISHED, "an earlier form's")
    client.delete_run(held[GROUP_KEY][0].run_id)
    assert not up_to_date(sweep, uri)
    assert publish(sweep, uri).written == 26, "23 repeats, two settings and their group"
    now = read_store(sweep, uri)
    for key in planned(sweep):
        assert (now[key]["status"], now[key]["parent"]) == ("FINISHED", GROUP_KEY)
        assert now[key]["tags"]["kind"] == "unsupported"
    assert up_to_date(sweep, uri)


def test_a_setting_whose_repeats_were_all_unsupported_joins_the_group_and_leaves_it_when_one_is_measured(
    copied: tuple[SweepFolder, str], read_store: ReadStore
) -> None:
    sweep, uri = copied
    cell = str(Manifest.read(sweep.manifest).baseline)
    before = {path: Record.read(path) for path in sweep.root.glob(f"runs/{cell}-r*/record.json")}
    end_all(sweep, cell, Outcome.unsupported, "this GPU has no bf16")
    publish(sweep, uri)
    held = read_store(sweep, uri)
    assert (held[f"cell:{cell}"]["parent"], held[f"cell:{cell}"]["status"]) == (GROUP_KEY, "FINISHED")
    assert held[f"cell:{cell}"]["tags"]["reason"] == "this GPU has no bf16"
    assert (held[f"run:{cell}-r0"]["parent"], held[f"run:{cell}-r0"]["status"]) == (f"cell:{cell}", "FINISHED")
    assert held[GROUP_KEY]["name"] == "cannot run here (3)"
    for path, record in before.items():
        record.write(path)
    publish(sweep, uri)
    held = read_store(sweep, uri)
    assert (held[f"cell:{cell}"]["parent"], held[f"cell:{cell}"]["tags"]["kind"]) == (None, "cell")
    assert held[GROUP_KEY]["name"] == "cannot run here (2)"
    assert publish(sweep, uri).written == 0


def test_a_group_that_has_become_empty_is_deleted(copied: tuple[SweepFolder, str], read_store: ReadStore) -> None:
    sweep, uri = copied
    manifest = Manifest.read(sweep.manifest)
    cells = tuple(cell.model_copy(update={"unsupported": None}) for cell in manifest.cells)
    manifest.model_copy(update={"cells": cells}).write(sweep.manifest)
    publish(sweep, uri)
    assert GROUP_KEY not in read_store(sweep, uri)
    assert group_run(take(sweep)) is None


def test_the_description_of_the_group_names_at_most_twenty_settings_a_reason(sweep: SweepFolder) -> None:
    manifest = Manifest.read(sweep.manifest)
    (some, *_) = (cell for cell in manifest.cells if cell.unsupported)
    many = tuple(some.model_copy(update={"name": f"{number:012x}", "axes": {"seed": number}}) for number in range(25))
    manifest.model_copy(update={"cells": (*manifest.cells, *many)}).write(sweep.manifest)
    wanted = group_run(take(sweep))
    assert wanted is not None
    assert wanted.name == "cannot run here (27)"
    assert wanted.tags[NOTE].endswith("; and 7 more")
