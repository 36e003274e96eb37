"""`accelsweep profile`: wrong settings are refused in words, and a real profile leaves the records as they were."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys

import pytest

from accelsweep.cli.runs import resolve_setting
from accelsweep.errors import InputError, NewerFile
from accelsweep.features.profile.command import profile_settings
from accelsweep.features.profile.model import SettingProfile, profiles_folder
from accelsweep.records.plan import Block, Manifest

BASELINE = "devices=1,batch_size=32,precision=32-true"


def refused(folder, *settings):
    with pytest.raises(InputError) as refusal:
        profile_settings(folder.home, folder.name, settings, 3, None)
    assert not profiles_folder(folder).exists()
    return str(refusal.value)


def test_a_setting_is_named_by_its_words_its_values_or_its_beginning(example_sweep):
    (setting,) = [
        setting
        for setting in Manifest.read(example_sweep.manifest).settings
        if setting.axes == {"devices": 1, "batch_size": 32, "precision": "32-true"}
    ]
    for typed in (setting.name, setting.name[:6], BASELINE, "precision=32-true batch_size=32 devices=1"):
        assert resolve_setting(example_sweep, typed) == setting.name


def test_a_wrong_setting_is_refused_with_the_nearest_one(example_sweep):
    name = Manifest.read(example_sweep.manifest).settings[0].name
    assert f"did you mean '{name}'?" in refused(example_sweep, f"{name[:-1]}#")
    assert "matches several settings" in refused(example_sweep, "batch_size=32")
    assert "one setting, or two different ones" in refused(example_sweep, BASELINE, BASELINE)


def test_a_setting_that_cannot_run_is_refused_with_its_reason(example_sweep):
    ruled_out = next(setting for setting in Manifest.read(example_sweep.manifest).settings if setting.unsupported)
    assert "16-mixed is not available on a CPU" in refused(example_sweep, ruled_out.name)


def test_a_setting_without_a_measured_run_is_refused(example_sweep):
    for path in example_sweep.root.glob("runs/*/record.json"):
        path.unlink()
    assert "was not measured" in refused(example_sweep, BASELINE)


@pytest.mark.parametrize("changes", [{"task": "kernels"}, {"task": "inference", "serving": {"generator": "loadgen"}}])
def test_a_task_without_steps_of_a_model_is_refused(example_sweep, changes):
    setting = resolve_setting(example_sweep, BASELINE)
    for planned in Manifest.read(example_sweep.manifest).blocks:
        path = example_sweep.block(planned.name)
        raw = Block.read(path).model_dump(mode="json")
        raw["configs"][setting] |= changes
        Block.model_validate(raw).write(path)
    assert "has no steps to profile" in refused(example_sweep, BASELINE)


def test_a_setting_is_found_beside_a_damaged_block(example_sweep):
    """The loop stopped at the first block that could not be read, also for settings of the blocks behind it."""
    first, *_ = Manifest.read(example_sweep.manifest).blocks
    example_sweep.block(first.name).write_text("{")
    for path in example_sweep.root.glob("runs/*/record.json"):
        path.unlink()
    assert "was not measured" in refused(example_sweep, BASELINE)


def test_a_sweep_of_a_later_version_is_refused(example_sweep):
    text = example_sweep.manifest.read_text()
    example_sweep.manifest.write_text(text.replace('"format":1,"version":"', '"format":9,"version":"9', 1))
    with pytest.raises(NewerFile, match="install accelsweep 9"):
        profile_settings(example_sweep.home, example_sweep.name, [BASELINE], 3, None)


@pytest.mark.real
def test_a_profile_is_kept_beside_the_records_and_shown_by_the_report(example_sweep):
    """One rank of the shipped network on digits, in an interpreter of its own."""
    before = {path: path.read_bytes() for path in example_sweep.root.glob("runs/*/record.json")}
    command = [sys.executable, "-m", "accelsweep", "profile", "example", BASELINE, "--steps", "3", "--json"]
    done = subprocess.run(command, cwd=example_sweep.home, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    told = json.loads(done.stdout)
    assert list(told)[:3] == ["accelsweep", "format", "version"]
    (setting,) = told["settings"]
    assert setting["cost"] == pytest.approx(
        setting["profiled_step_seconds"] / setting["measured_step_seconds"], rel=0.01
    )
    place = example_sweep.home / setting["folder"]
    kept = SettingProfile.read(place / "profile.json")
    assert (kept.setting, kept.profile.steps, kept.ranks) == (setting["setting"], 3, 1)
    assert any("convolution" in row.name for row in kept.profile.operators)
    assert any(row.form == "Conv2d" and row.part == "backward" for row in kept.profile.modules)
    assert json.loads(gzip.decompress((place / "trace.json.gz").read_bytes()))["traceEvents"]
    page = (example_sweep.report / "index.html").read_text()
    assert f'href="../../{setting["folder"]}/trace.json.gz"' in page
    assert "A closer look" in (example_sweep.report / "report.md").read_text()
    assert {path: path.read_bytes() for path in before} == before
    assert [path.name for path in profiles_folder(example_sweep).iterdir()] == [kept.setting]
