"""Settings in MLflow: aggregates only where one value stands for all repeats, and a group for what cannot run."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import yaml

from accelsweep.analysis.analyse_sweep import analyse
from accelsweep.analysis.collect import collect
from accelsweep.records.estimates import Verdict
from accelsweep.records.findings import Findings, SettingFinding
from accelsweep.records.layout import SweepFolder
from accelsweep.records.plan import Manifest
from accelsweep.records.run_record import Record
from accelsweep.results import Outcome
from accelsweep.tracking.mlflow_run import NOTE_TAG
from accelsweep.tracking.publisher import publish
from accelsweep.tracking.setting_runs import (
    SETTINGS_TABLE,
    UNSUPPORTED_KEY,
    report_rows,
    setting_run,
    unsupported_group_run,
)
from accelsweep.tracking.snapshot import take_snapshot

ReadStore = Callable[[SweepFolder, str], dict[str, dict[str, Any]]]

COUNTS = {"runs_planned": 3.0, "runs_finished": 3.0, "runs_measured": 3.0}
REASON = "16-mixed is not available on a CPU; use bf16-mixed, or accelerator=cuda"


def move_a_repeat(sweep: SweepFolder, setting: str, host: str) -> tuple[SettingFinding, ...]:
    """Change the hardware of a setting's last repeat, analyse the sweep and return the setting's findings."""
    path = sweep.record(f"{setting}-r2")
    record = Record.read(path)
    fingerprint = replace(record.fingerprint, hardware={"host": host})
    record.model_copy(update={"fingerprint": fingerprint}).write(path)
    findings = analyse(collect(sweep), Manifest.read(sweep.manifest))
    findings.write(sweep.findings)
    return tuple(finding for finding in findings.settings if finding.setting == setting)


def latest_metrics(run: dict[str, Any]) -> dict[str, float]:
    return {name: points[-1][1] for name, points in run["metrics"].items() if not math.isnan(points[-1][1])}


@pytest.mark.real
def test_a_setting_that_ran_on_two_kinds_of_hardware_has_no_aggregates(
    copied: tuple[SweepFolder, str], read_store: ReadStore
) -> None:
    sweep, uri = copied
    manifest = Manifest.read(sweep.manifest)
    key = f"setting:{manifest.baseline}"
    analyse(collect(sweep), manifest).write(sweep.findings)
    publish(sweep, uri)
    assert latest_metrics(read_store(sweep, uri)[key]).items() > COUNTS.items()
    findings = move_a_repeat(sweep, str(manifest.baseline), "Another CPU")
    assert [finding.measured for finding in findings] == [1, 2]
    publish(sweep, uri)
    run = read_store(sweep, uri)[key]
    assert latest_metrics(run) == COUNTS
    assert run["tags"]["verdict"] == "run on 2 kinds of hardware"
    assert not {"verdict_reason", "quality_verdict"} & run["tags"].keys()
    assert run["tags"]["hardware"] == "Another CPU; Intel Xeon (example)"
    assert publish(sweep, uri).written == 0


@pytest.mark.real
def test_the_description_of_such_a_setting_lists_each_kind_with_rate_and_verdict(
    copied: tuple[SweepFolder, str], read_store: ReadStore
) -> None:
    sweep, uri = copied
    baseline = str(Manifest.read(sweep.manifest).baseline)
    move_a_repeat(sweep, baseline, "Another CPU")
    publish(sweep, uri)
    note = read_store(sweep, uri)[f"setting:{baseline}"]["tags"][NOTE_TAG].splitlines()
    findings = [finding for finding in Findings.read(sweep.findings).settings if finding.setting == baseline]
    assert note[0] == "This setting was run on 2 kinds of hardware, which the report compares."
    for line, finding in zip(note[2:4], findings, strict=True):
        assert line.startswith(f"* {finding.hardware}: ")
        assert line.endswith(f"; **{finding.verdict}**: {finding.verdict_reason}")
    assert "samples/s (no interval: " in note[2], "it was measured only once there"


@pytest.mark.real
def test_settings_that_the_plan_rejects_are_in_one_grey_group_that_starts_before_all_other_runs(
    published: tuple[SweepFolder, str], read_store: ReadStore
) -> None:
    sweep, uri = published
    runs = read_store(sweep, uri)
    group = runs[UNSUPPORTED_KEY]
    assert (group["name"], group["status"], group["parent"]) == ("cannot run here (2)", "FINISHED", None)
    assert group["tags"]["mlflow.runColor"] == "#8f8f8f"
    assert group["tags"][NOTE_TAG].endswith(f"* {REASON}: batch 32, 16-mixed, 1 device; batch 32, 16-mixed, 2 devices")
    assert group["started"] < min(run["started"] for key, run in runs.items() if key != UNSUPPORTED_KEY)
    for setting in Manifest.read(sweep.manifest).settings:
        if setting.unsupported:
            run = runs[f"setting:{setting.name}"]
            assert (run["status"], run["parent"]) == ("FINISHED", UNSUPPORTED_KEY)
            tags = run["tags"]
            assert (tags["kind"], tags["outcome"], tags["reason"]) == ("unsupported", "unsupported", REASON)


@pytest.mark.real
def test_a_setting_joins_the_group_when_all_repeats_are_unsupported_and_leaves_it_when_one_is_measured(
    copied: tuple[SweepFolder, str], read_store: ReadStore
) -> None:
    sweep, uri = copied
    setting = str(Manifest.read(sweep.manifest).baseline)
    records = {path: Record.read(path) for path in sweep.root.glob(f"runs/{setting}-r*/record.json")}
    unsupported = {"outcome": Outcome.unsupported, "reason": "this GPU has no bf16", "metrics": {}}
    for path, record in records.items():
        record.model_copy(update=unsupported).write(path)
    publish(sweep, uri)
    runs = read_store(sweep, uri)
    run, repeat = runs[f"setting:{setting}"], runs[f"run:{setting}-r0"]
    assert (run["parent"], run["status"]) == (UNSUPPORTED_KEY, "FINISHED")
    assert run["tags"]["reason"] == "this GPU has no bf16"
    assert (repeat["parent"], repeat["status"]) == (f"setting:{setting}", "FINISHED")
    assert runs[UNSUPPORTED_KEY]["name"] == "cannot run here (3)"
    for path, record in records.items():
        record.write(path)
    publish(sweep, uri)
    runs = read_store(sweep, uri)
    assert (runs[f"setting:{setting}"]["parent"], runs[f"setting:{setting}"]["tags"]["kind"]) == (None, "setting")
    assert runs[UNSUPPORTED_KEY]["name"] == "cannot run here (2)"
    assert publish(sweep, uri).written == 0


@pytest.mark.real
def test_an_empty_group_is_deleted(copied: tuple[SweepFolder, str], read_store: ReadStore) -> None:
    sweep, uri = copied
    manifest = Manifest.read(sweep.manifest)
    settings = tuple(setting.model_copy(update={"unsupported": None}) for setting in manifest.settings)
    manifest.model_copy(update={"settings": settings}).write(sweep.manifest)
    publish(sweep, uri)
    assert UNSUPPORTED_KEY not in read_store(sweep, uri)
    assert unsupported_group_run(take_snapshot(sweep)) is None


def test_the_description_of_the_group_lists_at_most_twenty_settings_per_reason(sweep: SweepFolder) -> None:
    manifest = Manifest.read(sweep.manifest)
    first = next(setting for setting in manifest.settings if setting.unsupported)
    many = tuple(first.model_copy(update={"name": f"{number:012x}", "axes": {"seed": number}}) for number in range(25))
    manifest.model_copy(update={"settings": (*manifest.settings, *many)}).write(sweep.manifest)
    group = unsupported_group_run(take_snapshot(sweep))
    assert group is not None
    assert group.name == "cannot run here (27)"
    assert group.tags[NOTE_TAG].endswith("; and 7 more")


def test_the_headline_is_logged_first_and_not_at_all_for_a_disturbed_setting(
    sweep: SweepFolder, with_findings: Callable[..., Findings]
) -> None:
    findings = with_findings(sweep)
    manifest = Manifest.read(sweep.manifest)
    setting = next(setting for setting in manifest.settings if setting.name == manifest.baseline)
    run = setting_run(take_snapshot(sweep), setting)
    assert run is not None
    assert list(run.metrics)[:4] == ["speedup", "samples_per_second", "quality", "memory_gib"]
    assert run.tags["interval"] == "1.3x to 1.7x"
    disturbed = [item.model_copy(update={"verdict": Verdict.disturbed}) for item in findings.settings]
    findings.model_copy(update={"settings": tuple(disturbed)}).write(sweep.findings)
    run = setting_run(take_snapshot(sweep), setting)
    assert run is not None
    assert run.metrics == {"host_pss_bytes": 5e7, "runs_measured": 3, "runs_planned": 3, "runs_finished": 3}
    assert run.tags["verdict"] == "disturbed"


def test_a_setting_whose_last_repeats_were_left_out_as_decided_is_finished(
    sweep: SweepFolder, with_findings: Callable[[SweepFolder], Findings]
) -> None:
    manifest, findings = Manifest.read(sweep.manifest), with_findings(sweep)
    setting = next(setting for setting in manifest.settings if setting.name == manifest.baseline)
    sweep.record(f"{setting.name}-r2").unlink()
    found = {}
    for why in (Outcome.not_run, Outcome.decided):
        outcomes = {Outcome.measured: 2, why: 1}
        changed = [
            item.model_copy(update={"outcomes": outcomes}) if item.setting == setting.name else item
            for item in findings.settings
        ]
        findings.model_copy(update={"settings": tuple(changed)}).write(sweep.findings)
        run = setting_run(take_snapshot(sweep), setting)
        found[why] = run and run.status
    assert found == {Outcome.not_run: "KILLED", Outcome.decided: "FINISHED"}


def test_a_setting_of_a_sweep_that_goes_on_has_no_metrics_yet(sweep: SweepFolder) -> None:
    """MLflow would keep their place before the headline's."""
    manifest = Manifest.read(sweep.manifest)
    setting = next(setting for setting in manifest.settings if setting.name == manifest.baseline)
    running, ended = (setting_run(take_snapshot(sweep, live=live), setting) for live in (True, False))
    assert running is not None
    assert ended is not None
    assert running.metrics == {}
    assert ended.metrics == {"runs_planned": 3, "runs_finished": 3}


def test_a_setting_has_its_config_with_the_values_in_effect_and_its_row_of_the_report(
    sweep: SweepFolder, with_findings: Callable[..., Findings]
) -> None:
    with_findings(sweep)
    baseline = str(Manifest.read(sweep.manifest).baseline)
    setting = next(setting for setting in Manifest.read(sweep.manifest).settings if setting.name == baseline)
    rows = [f"{baseline},Xeon,100.0,", "another,Xeon,50.0,", f"{baseline},EPYC,120.0,"]
    (sweep.report / SETTINGS_TABLE).write_text("\n".join(["setting,hardware,rate.value,reasons", *rows]), "utf-8")
    snapshot = take_snapshot(sweep)
    run = setting_run(snapshot, setting, None, report_rows(snapshot)[baseline])
    assert run is not None
    texts = {artifact.target: artifact.source for artifact in run.artifacts}
    assert texts["report_row.csv"] == f"column,Xeon,EPYC\nsetting,{baseline},{baseline}\nhardware,Xeon,EPYC\n" + (
        "rate.value,100.0,120.0\n"
    )
    record = Record.read(sweep.record(f"{baseline}-r0"))
    config = yaml.safe_load(str(texts["config.yaml"]))
    assert record.effective is not None
    assert config.pop("effective")["precision"] == record.effective.precision
    assert config == record.config.raw
    (sweep.report / SETTINGS_TABLE).write_text("setting,rate.value\n" + f"{baseline},101.0\n", "utf-8")
    changed = setting_run(snapshot, setting, None, report_rows(snapshot)[baseline])
    assert changed is not None
    assert changed.digest != run.digest, "a row that changes is sent again"
