"""Profiles beside the findings: the measured step stands next to the profiled one, and two profiles are subtracted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from accelsweep.analysis.analyse_sweep import analyse_folder
from accelsweep.analysis.collect import read_runs
from accelsweep.features.profile.model import (
    Profiles,
    SettingProfile,
    profile_folder,
)
from accelsweep.features.profile.report import differences, profiles_table
from accelsweep.features.profile.step_profile import ModuleTime, OperatorTime, StepProfile
from accelsweep.files import sha256_file
from accelsweep.records.findings import Findings
from accelsweep.records.layout import SweepFolder
from accelsweep.records.plan import Manifest
from accelsweep.records.run_record import Record
from accelsweep.report.report_tables import build_tables


def kept(folder: SweepFolder, setting: str, seconds: float, **changes: object) -> SettingProfile:
    """Keep an invented profile of a setting whose product takes so long in a step."""
    record = Record.read(folder.record(f"{setting}-r0"))
    place = profile_folder(folder, setting)
    place.mkdir(parents=True)
    (place / "trace.json.gz").write_bytes(b"a trace")
    found = StepProfile(
        warmup_steps=5,
        steps=10,
        step_seconds=2 * seconds,
        device="cpu",
        device_name="Intel Xeon (example)",
        operators=(
            OperatorTime(name="aten::addmm", calls=2, host_seconds=seconds),
            OperatorTime(name="aten::copy_", calls=1, host_seconds=0.001),
        ),
        modules=(ModuleTime(name="network.0", form="Linear", part="backward", calls=0, host_seconds=seconds),),
    )
    profile = SettingProfile.model_validate(
        {
            "sweep": folder.name,
            "setting": setting,
            "axes": record.axes,
            "block": record.block,
            "task": "train_throughput",
            "started_at": "2026-01-05T10:00:00.000+00:00",
            "ranks": 1,
            "profile": found,
            "fingerprint": record.fingerprint,
            "trace_sha256": sha256_file(place / "trace.json.gz"),
        }
        | changes
    )
    profile.write(place / "profile.json")
    return profile


@pytest.fixture
def two(example_sweep: SweepFolder) -> tuple[SweepFolder, str, str]:
    """The example sweep with the profiles of its baseline and of another setting that was measured."""
    manifest = Manifest.read(example_sweep.manifest)
    measured = [run.setting for run in read_runs(example_sweep, manifest) if run.value("step_seconds") is not None]
    baseline = manifest.baseline
    assert baseline is not None
    other = next(setting for setting in measured if setting != baseline)
    kept(example_sweep, other, 0.006)
    kept(example_sweep, baseline, 0.009)
    return example_sweep, baseline, other


def test_the_measured_step_stands_beside_the_profiled_one(two: tuple[SweepFolder, str, str]) -> None:
    folder, baseline, other = two
    first, second = analyse_folder(folder).section(Profiles).profiles
    assert (first.setting, second.setting, second.against) == (baseline, other, baseline)
    assert first.measured_step_seconds is not None
    assert first.cost == pytest.approx(0.018 / first.measured_step_seconds, rel=0.01)
    assert (first.changed, first.operator_differences) == (None, ())


def test_two_profiles_are_subtracted_part_by_part(two: tuple[SweepFolder, str, str]) -> None:
    folder, _, _ = two
    _, second = analyse_folder(folder).section(Profiles).profiles
    (product,) = second.operator_differences
    assert (product.name, product.after - product.before) == ("addmm", pytest.approx(-0.003))
    assert [one.name for one in second.module_differences] == ["network.0 backward"]


def test_a_part_that_only_one_has_differs_by_all_of_it_and_a_small_difference_is_none() -> None:
    found = differences({"addmm": 1.0, "copy": 0.1, "tanh": 0.001}, {"addmm": 1.0, "to copy": 0.2, "tanh": 0.002})
    assert [(one.name, one.before, one.after) for one in found] == [("to copy", 0.0, 0.2), ("copy", 0.1, 0.0)]


def test_sources_that_changed_since_are_told(two: tuple[SweepFolder, str, str]) -> None:
    folder, baseline, _ = two
    then = Record.read(folder.record(f"{baseline}-r0")).fingerprint
    now = replace(then, sources={"mine": "abc"})
    path = profile_folder(folder, baseline) / "profile.json"
    SettingProfile.read(path).model_copy(update={"fingerprint": now}).write(path)
    assert analyse_folder(folder).section(Profiles).profiles[0].changed == "sources of mine"


@pytest.mark.parametrize("damage", ["profile.json", "trace.json.gz"])
def test_a_damaged_profile_costs_no_report_and_is_named(two: tuple[SweepFolder, str, str], damage: str) -> None:
    folder, baseline, other = two
    (profile_folder(folder, baseline) / damage).write_bytes(b"{}")
    findings = analyse_folder(folder)
    assert [profile.setting for profile in findings.section(Profiles).profiles] == [other]
    (said,) = findings.section(Profiles).left_out
    assert said.startswith(f"sweeps/example/profiles/{baseline}/profile.json: ")
    assert said.endswith(f"; accelsweep profile example {baseline} recreates it")
    assert said in profiles_table(findings.section(Profiles)).caption
    (profile_folder(folder, other) / "trace.json.gz").unlink()
    assert "it has no trace.json.gz" in profiles_table(analyse_folder(folder).section(Profiles)).empty
    assert [table.name for table in build_tables(analyse_folder(folder)) if table.name == "profiles"] == ["profiles"]


def test_profiles_change_no_other_number_and_a_sweep_without_them_has_its_old_findings(
    two: tuple[SweepFolder, str, str], tmp_path: Path
) -> None:
    folder, _, _ = two
    with_them = analyse_folder(folder)
    without = with_them.model_copy(update={"sections": {}})
    assert with_them.section(Profiles) is not None
    assert without.model_copy(update={"sections": {"profile": with_them.section(Profiles)}}) != without
    with_them.write(tmp_path / "findings.json")
    assert Findings.read(tmp_path / "findings.json") == with_them
