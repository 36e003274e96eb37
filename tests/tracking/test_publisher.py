"""What users find in MLflow after publishing, in a SQLite file and on a real server."""

from __future__ import annotations

import getpass
import math
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from stores import BOTH_STORES, BOTH_STORES_AT_LENGTH

from accelsweep.config.schema import checked_config
from accelsweep.config.setting import label
from accelsweep.metrics import Metric
from accelsweep.records.layout import SweepFolder
from accelsweep.records.plan import Manifest
from accelsweep.records.run_record import Record
from accelsweep.results import Outcome
from accelsweep.tracking.mlflow_run import epoch_ms
from accelsweep.tracking.publisher import publish

pytestmark = pytest.mark.real

Published = tuple[SweepFolder, str]
ReadStore = Callable[[SweepFolder, str], dict[str, dict[str, Any]]]
BASELINE = "batch 32, 32-bit, 1 device"


def record_of(folder: SweepFolder, **axes: Any) -> Record:
    """Return the first record with this outcome and these values of the swept keys."""
    outcome = axes.pop("outcome", Outcome.measured)
    records = (Record.read(path) for path in sorted(folder.root.glob("runs/*/record.json")))
    return next(record for record in records if record.outcome is outcome and axes.items() <= record.axes.items())


def search(folder: SweepFolder, uri: str, query: str) -> list[Any]:
    """Return the active runs that this query finds in the UI's search field."""
    from mlflow import MlflowClient

    client = MlflowClient(uri)
    return list(client.search_runs([client.get_experiment_by_name(folder.name).experiment_id], query))


def remeasure(folder: SweepFolder, record: Record, **changes: Any) -> Record:
    """Replace a record by one of a later attempt."""
    newer = record.model_copy(update={"attempt": 2, "finished_at": "2026-02-01T00:00:09+00:00"} | changes)
    newer.write(folder.record(record.run))
    return newer


def test_a_setting_is_a_parent_run_and_each_repeat_a_child_with_its_status_and_times(
    published: Published, read_store: ReadStore
) -> None:
    sweep, uri = published
    runs = read_store(sweep, uri)
    manifest = Manifest.read(sweep.manifest)
    names = {key: run["name"] for key, run in runs.items() if not key.startswith("report:")}
    assert names[f"setting:{manifest.baseline}"] == BASELINE
    assert len(set(names.values())) == len(names)
    full_names = {runs[f"setting:{setting.name}"]["tags"]["setting"] for setting in manifest.settings}
    assert full_names >= {"batch 32, 32-bit, 1 device"}
    statuses = {}
    for run in manifest.wanted_runs():
        if sweep.record(run).exists():
            record, stored = Record.read(sweep.record(run)), runs[f"run:{run}"]
            statuses[record.outcome.value] = stored["status"]
            assert stored["parent"] == f"setting:{record.setting}"
            assert (stored["started"], stored["ended"]) == (
                epoch_ms(record.started_at),
                epoch_ms(record.finished_at),
            )
    assert statuses == {
        "measured": "FINISHED",
        "out_of_memory": "FAILED",
        "diverged": "FAILED",
        "crashed": "FAILED",
        "timed_out": "KILLED",
    }
    (missing,) = (run for run in manifest.wanted_runs() if f"run:{run}" not in runs)
    assert runs[f"setting:{missing.rpartition('-r')[0]}"]["status"] == "KILLED", "one of its repeats was not run"


def test_runs_are_found_by_param_metric_and_tag(published: Published) -> None:
    sweep, uri = published
    fast = search(sweep, uri, "params.batch_size = '128' and metrics.samples_per_second > 9000 and tags.kind = 'run'")
    assert {run.data.params["batch_size"] for run in fast} == {"128"}
    assert all(run.data.metrics["samples_per_second"] > 9000 for run in fast)
    assert len(fast) == 4
    (crashed,) = search(sweep, uri, "tags.outcome = 'crashed' and tags.kind = 'run'")
    assert "RuntimeError: <script>" in crashed.data.tags["reason"]
    assert len(search(sweep, uri, "tags.kind = 'setting'")) == 8
    assert len(search(sweep, uri, "tags.doubts LIKE '%busy_cpu%' and tags.kind = 'run'")) == 2
    assert len(search(sweep, uri, "params.`effective.strategy` = 'ddp'")) == 6
    assert {run.data.tags["hardware"] for run in fast} == {"Intel Xeon (example) x1"}
    assert {run.data.tags["quality_metric"] for run in fast} == {"val_accuracy"}


def test_a_measured_run_has_its_metrics_curves_artifacts_and_data(
    published: Published, read_store: ReadStore, tmp_path: Path
) -> None:
    sweep, uri = published
    record = record_of(sweep, devices=2, batch_size=32)
    stored = read_store(sweep, uri)[f"run:{record.run}"]
    for name, metric in record.metrics.items():
        if metric.value is None:
            assert name not in stored["metrics"], "an unknown value is never a number"
            assert metric.reason in stored["tags"]["mlflow.note.content"]
        else:
            assert stored["metrics"][name] == [(0, metric.value, epoch_ms(record.finished_at))]
    rates = stored["metrics"]["curve/samples_per_second"]
    assert [step for step, _, _ in rates] == list(range(5, 45))
    assert stored["data"] == ["Digits"]
    assert stored["artifacts"] == ["record.json", "run.log", "steps.parquet"]
    (run,) = search(sweep, uri, f"tags.run = '{record.run}'")
    from mlflow.artifacts import download_artifacts

    (tmp_path / "artifacts").mkdir()
    downloaded = download_artifacts(run_id=run.info.run_id, tracking_uri=uri, dst_path=str(tmp_path / "artifacts"))
    assert Record.read(Path(downloaded) / "record.json") == record
    assert (Path(downloaded) / "steps.parquet").read_bytes() == sweep.steps(record.run).read_bytes()


def test_a_setting_has_the_aggregates_of_the_findings_and_no_others(
    published: Published, read_store: ReadStore
) -> None:
    sweep, uri = published
    manifest = Manifest.read(sweep.manifest)
    setting = read_store(sweep, uri)[f"setting:{manifest.baseline}"]
    latest = {name: points[-1][1] for name, points in setting["metrics"].items()}
    assert latest == {
        "samples_per_second": 100.0,
        "samples_per_second_low": 90.0,
        "samples_per_second_high": pytest.approx(110.0),
        "speedup": 1.5,
        "speedup_low": 1.35,
        "speedup_high": pytest.approx(1.65),
        "quality": 0.95,
        "quality_low": pytest.approx(0.855),
        "quality_high": pytest.approx(1.045),
        "quality_difference": 0.01,
        "quality_difference_low": pytest.approx(0.009),
        "quality_difference_high": pytest.approx(0.011),
        "usd_per_epoch": 0.5,
        "usd_per_epoch_low": pytest.approx(0.45),
        "usd_per_epoch_high": pytest.approx(0.55),
        "memory_gib": 0.04657,
        "host_pss_bytes": 5e7,
        "runs_planned": 3,
        "runs_finished": 3,
        "runs_measured": 3,
    }
    assert {name: setting["tags"][name] for name in ("verdict", "doubts", "quality_verdict", "baseline")} == {
        "verdict": "faster",
        "doubts": "busy_cpu",
        "quality_verdict": "quality: undecided",
        "baseline": "yes",
    }
    assert setting["params"] == {"devices": "1", "batch_size": "32", "precision": "32-true"}
    assert setting["artifacts"] == ["config.yaml"], "this report has no table of settings"
    assert "`energy_joules`: RAPL is not readable here" in setting["tags"]["mlflow.note.content"]


def test_tags_hold_model_data_versions_commit_and_the_rules_of_the_verdict(published: Published) -> None:
    sweep, uri = published
    record = record_of(sweep, devices=2, batch_size=32)
    expected = {
        "setting": label(record.axes),
        "setting_id": record.setting,
        "model": record.config.model_target,
        "data": record.config.data_target,
        "torch": record.fingerprint.software["torch"],
        "mlflow.source.git.commit": record.git["commit"],
        "mlflow.source.git.dirty": "false",
    }
    assert None not in expected.values()
    for kind in ("setting", "run"):
        for run in search(sweep, uri, f"tags.kind = '{kind}' and tags.setting_id = '{record.setting}'"):
            assert {name: run.data.tags[name] for name in expected} == expected
    for setting in search(sweep, uri, f"tags.kind = 'setting' and tags.setting_id = '{record.setting}'"):
        assert (setting.data.tags["confidence"], setting.data.tags["threshold"]) == ("0.95", "0.02")


def test_aggregates_follow_the_findings_and_become_nan_when_they_are_withdrawn(
    copied_with_findings: Published, with_findings: Callable[..., Any]
) -> None:
    sweep, uri = copied_with_findings
    baseline = f"setting:{Manifest.read(sweep.manifest).baseline}"
    for rate in (200.0, 100.0):
        with_findings(sweep, rate=rate)
        publish(sweep, uri)
        (setting,) = search(sweep, uri, f"tags.`accelsweep.key` = '{baseline}'")
        assert setting.data.metrics["samples_per_second"] == rate
    with_findings(sweep, rate=None)
    publish(sweep, uri)
    (setting,) = search(sweep, uri, f"tags.`accelsweep.key` = '{baseline}'")
    assert math.isnan(setting.data.metrics["samples_per_second"])
    assert setting.data.tags["verdict"] == "not measured"


def test_the_report_run_holds_report_plan_records_and_constraints(published: Published) -> None:
    from mlflow import MlflowClient

    sweep, uri = published
    (report,) = search(sweep, uri, "tags.kind = 'report'")
    assert report.info.run_name == "report (revision 1)"
    assert report.data.tags["recommendation"] == "Train on 2 devices."
    client = MlflowClient(uri)
    paths = {
        item.path for folder in ("", "report", "plan") for item in client.list_artifacts(report.info.run_id, folder)
    }
    assert paths >= {
        "report/index.html",
        "report/figures",
        "plan/manifest.json",
        "plan/constraints.txt",
        "findings.json",
    }


def artifacts(client: Any, run_id: str, folder: str = "") -> set[str]:
    """Return the paths of all artifact files of a run."""
    items = client.list_artifacts(run_id, folder)
    nested = [artifacts(client, run_id, item.path) for item in items if item.is_dir]
    return {item.path for item in items if not item.is_dir}.union(*nested)


@BOTH_STORES
def test_a_new_report_replaces_the_files_of_the_old_one_and_leaves_other_files_alone(
    small_sweep: SweepFolder, uri: str, with_findings: Callable[..., Any]
) -> None:
    from mlflow import MlflowClient

    with_findings(small_sweep)
    (small_sweep.report / "claims.csv").write_text("claim\n")
    (small_sweep.report / "series-one.svg").write_text("the page links to it")
    (small_sweep.report / "report.md").write_text("the page contains all of it")
    publish(small_sweep, uri)
    (report,) = search(small_sweep, uri, "tags.kind = 'report'")
    client, run_id = MlflowClient(uri), report.info.run_id
    before = artifacts(client, run_id)
    assert {"report/claims.csv", "report/figures/rate.csv", "report/series-one.svg"} <= before
    assert "report/report.md" not in before
    client.log_text(run_id, "what we decided", "notes.txt")
    shutil.rmtree(small_sweep.report / "figures")
    (small_sweep.report / "claims.csv").unlink()
    (small_sweep.report / "settings.csv").write_text("setting\n")
    publish(small_sweep, uri)
    obsolete, new = {"report/claims.csv", "report/figures/rate.csv"}, {"report/settings.csv", "notes.txt"}
    assert artifacts(client, run_id) == (before - obsolete) | new


@BOTH_STORES_AT_LENGTH
def test_publishing_twice_writes_nothing(small_sweep: SweepFolder, uri: str, with_findings: Callable[..., Any]) -> None:
    with_findings(small_sweep)
    assert publish(small_sweep, uri).written == 20
    assert publish(small_sweep, uri).written == 0


@BOTH_STORES_AT_LENGTH
def test_a_repeat_measured_again_replaces_the_old_run_which_can_be_restored(
    sweep: SweepFolder, uri: str, read_store: ReadStore
) -> None:
    from mlflow import MlflowClient
    from mlflow.entities import ViewType

    publish(sweep, uri)
    record = record_of(sweep, outcome=Outcome.crashed)
    changed = checked_config({**record.config.raw, "x": 1})
    newer = remeasure(sweep, record, outcome=Outcome.timed_out, reason="still running", config=changed)
    publish(sweep, uri)
    stored = read_store(sweep, uri)[f"run:{record.run}"]
    assert (stored["status"], stored["tags"]["attempt"], stored["params"]["x"]) == ("KILLED", "2", "1")
    assert stored["ended"] == epoch_ms(newer.finished_at)
    client = MlflowClient(uri)
    experiment = client.get_experiment_by_name(sweep.name)
    (old,) = client.search_runs([experiment.experiment_id], run_view_type=ViewType.DELETED_ONLY)
    assert old.data.tags["outcome"] == "crashed"


def test_a_damaged_record_is_reported_and_all_others_are_published(
    small_sweep: SweepFolder, uri: str, read_store: ReadStore
) -> None:
    record = record_of(small_sweep, devices=2)
    path = small_sweep.record(record.run)
    path.write_bytes(path.read_bytes()[:-20])
    assert f"left out: {path}" in str(publish(small_sweep, uri))
    assert len([key for key in read_store(small_sweep, uri) if key.startswith("run:")]) == 7


@pytest.mark.parametrize("has_checksum", [True, False], ids=["wrong checksum", "no checksum and no parquet"])
def test_damaged_steps_only_remove_the_curves(copied: Published, read_store: ReadStore, has_checksum: bool) -> None:
    sweep, uri = copied
    record = remeasure(sweep, record_of(sweep, devices=2), steps_sha256="0" * 64 if has_checksum else None)
    if not has_checksum:
        sweep.steps(record.run).write_bytes(b"no parquet")
    publish(sweep, uri)
    stored = read_store(sweep, uri)[f"run:{record.run}"]
    assert "samples_per_second" in stored["metrics"]
    assert not any(name.startswith("curve/") for name in stored["metrics"])
    assert ("steps.parquet" in stored["artifacts"]) == (not has_checksum)
    assert ("steps.parquet: its contents do not match" in stored["tags"]["mlflow.note.content"]) == has_checksum


@BOTH_STORES
def test_hostile_names_and_values_are_published_in_a_form_that_mlflow_accepts(
    small_sweep: SweepFolder, uri: str, read_store: ReadStore
) -> None:
    record = record_of(small_sweep, devices=2)
    hostile = {
        "a//b": 1, "../up": 2, "größe@x": 3, "k" * 400: 4, "empty": "", "long": "x" * 9000, "list": [1, None],
        "half": "\ud800", "store": "http://me:secret@host/x", "curly{}": "<script>", "curly[]": "'quote'",
    }  # fmt: skip
    metrics = record.metrics | {"logged.train//lö ss": Metric(value=1.5, unit="1")}
    remeasure(small_sweep, record, metrics=metrics)
    manifest = Manifest.read(small_sweep.manifest)
    settings = [setting.model_copy(update={"axes": setting.axes | hostile}) for setting in manifest.settings]
    manifest.model_copy(update={"settings": tuple(settings)}).write(small_sweep.manifest)
    publish(small_sweep, uri)
    stored = read_store(small_sweep, uri)[f"run:{record.run}"]
    assert stored["params"]["a/b"] == "1"
    assert stored["params"]["up"] == "2"
    assert stored["params"]["gr__e_x"] == "3"
    assert stored["params"]["list"] == "[1,null]"
    assert stored["params"]["store"] == "http://***@host/x"
    assert {stored["params"]["curly__"], *(v for n, v in stored["params"].items() if n.startswith("curly__-"))} == {
        "<script>",
        "'quote'",
    }
    assert len(stored["params"]["long"]) == 6000
    assert stored["params"]["long"].endswith("(9000 characters; full text in record.json)")
    assert stored["metrics"]["logged.train/l_ ss"][0][1] == 1.5


@pytest.mark.long  # tracking/test_store.py finds the experiments; only here both are filled
def test_another_sweep_of_the_same_name_on_a_server_gets_its_own_experiment(
    sweep: SweepFolder, server: str, tmp_path: Path
) -> None:
    other = SweepFolder(tmp_path / "elsewhere", sweep.name)
    shutil.copytree(sweep.root, other.root)  # before it has a mark: a copy with the mark is the same sweep
    publish(sweep, server)
    for run in Manifest.read(other.manifest).wanted_runs():
        if other.record(run).exists():
            remeasure(other, Record.read(other.record(run)))
    result = publish(other, server)
    assert (result.experiment, result.finished) == (f"{sweep.name}-{getpass.getuser()}", 23)
    assert f"in MLflow experiment '{result.experiment}'" in str(result)
    assert publish(sweep, server).written == 0


def test_an_experiment_deleted_in_the_ui_is_restored(copied: Published, read_store: ReadStore) -> None:
    from mlflow import MlflowClient

    sweep, uri = copied
    client = MlflowClient(uri)
    client.delete_experiment(client.get_experiment_by_name(sweep.name).experiment_id)
    publish(sweep, uri)
    assert len(read_store(sweep, uri)) == 34


@pytest.mark.timeout(300)
def test_a_fifo_in_place_of_a_log_or_a_figure_is_skipped(small_sweep: SweepFolder, uri: str) -> None:
    """MLflow would block on a FIFO, and fill the disk from a device."""
    log = next(small_sweep.root.glob("runs/*/record.json")).with_name("run.log")
    log.unlink(missing_ok=True)
    os.mkfifo(log)
    small_sweep.report.mkdir(parents=True, exist_ok=True)
    (small_sweep.report / "index.html").write_text("a page")
    os.mkfifo(small_sweep.report / "speedup.csv")
    assert publish(small_sweep, uri).finished > 0
    files = {path.name for path in (small_sweep.home / "mlartifacts").rglob("report/*")}
    assert files == {"index.html"}
