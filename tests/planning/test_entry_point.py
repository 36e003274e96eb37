"""Which training script a folder has, how it takes arguments, and who runs it: read from sources, nothing imported."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from environments import environment
from projects import copy_project

from accelsweep.errors import InputError
from accelsweep.planning.entry_point import measured_project, project_in, training_scripts


@pytest.fixture(autouse=True)
def _no_environment_is_active(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        monkeypatch.delenv(name, raising=False)


def project(home: Path, entry: str | None = None):
    found = project_in(home, entry)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("name", "command", "kind"),
    [
        ("hydra_template", ("src/train.py",), "hydra"),
        ("lightning_cli", ("train.py", "fit"), "lightning_cli"),
        ("script", ("train.py",), "script"),
    ],
)
def test_the_training_script_of_a_project_is_found(tmp_path, name, command, kind):
    found = project(copy_project(name, tmp_path))
    assert (found.entry.command, found.entry.kind, found.found) == (command, kind, True)
    assert found.python == sys.executable


def test_training_comes_before_evaluation_and_tests_are_no_candidates(tmp_path):
    copy_project("hydra_template", tmp_path)
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "train.py").write_text((tmp_path / "src" / "train.py").read_text())
    assert project(tmp_path).entry.name == "src/train.py"


def test_a_script_that_only_predicts_is_no_candidate(tmp_path):
    copy_project("lightning_cli", tmp_path)
    (tmp_path / "predict.py").write_text("from lightning import Trainer\nTrainer().predict(None)\n")
    (tmp_path / "train.py").rename(tmp_path / "main.py")
    assert project(tmp_path).entry.name == "main.py"


def test_several_scripts_are_refused_with_the_options_that_choose_one(tmp_path):
    copy_project("script", tmp_path)
    text = (tmp_path / "train.py").read_text()
    for name in ("train_large.py", "train_small.py"):
        (tmp_path / name).write_text(text)
    (tmp_path / "train.py").unlink()
    with pytest.raises(
        InputError, match=r"choose one: --entry 'python train_large.py', --entry 'python train_small.py'"
    ):
        project(tmp_path)


def test_a_second_fit_is_said_not_to_be_measured(tmp_path):
    copy_project("script", tmp_path)
    assert "calls of fit" not in project(tmp_path).note()
    path = tmp_path / "train.py"
    path.write_text(path.read_text().replace("    print(", "    trainer.fit(Net(options.hidden))\n    print("))
    assert (
        project(tmp_path)
        .note()
        .endswith("; it contains 2 calls of fit, and the first Trainer.fit that runs is measured")
    )


def test_a_script_that_only_defines_things_is_none(tmp_path):
    (tmp_path / "models.py").write_text("from lightning import Trainer\ndef fit(): Trainer().fit(None)\n")
    assert list(training_scripts(tmp_path)) == []
    assert project_in(tmp_path, None, required=False) is None
    with pytest.raises(InputError, match="no training script was found"):
        project(tmp_path)


def test_a_command_names_the_script_its_arguments_and_its_interpreter(tmp_path):
    copy_project("lightning_cli", tmp_path)
    python = tmp_path / "env" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    found = project(tmp_path, f"{python} train.py fit --config config.yaml")
    assert found.entry.command == ("train.py", "fit", "--config", "config.yaml")
    assert (found.python, found.own_environment, found.found) == (str(python), True, False)


def test_a_module_is_found_in_the_folder_and_below_src(tmp_path):
    copy_project("hydra_template", tmp_path)
    assert project(tmp_path, "python -m src.train").entry.file == tmp_path / "src" / "train.py"
    assert project(tmp_path, "python -m train").entry.file == tmp_path / "src" / "train.py"


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("python", "names no script"),
        ("python tarin.py", "there is no Python script tarin.py"),
        ("python -m tarin", "there is no module tarin"),
        ("python 'train.py", "is not a valid command"),
        ("./missing/python train.py", "there is no interpreter"),
        ("python README.md", "there is no Python script README.md"),
    ],
)
def test_a_command_that_cannot_be_run_is_refused(tmp_path, entry, message):
    copy_project("script", tmp_path)
    (tmp_path / "README.md").write_text("x")
    with pytest.raises(InputError, match=message):
        project(tmp_path, entry)


def test_the_environment_of_the_project_comes_before_the_active_one(tmp_path, monkeypatch):
    copy_project("script", tmp_path)
    folders = [tmp_path / name for name in (".venv", "active", "named")]
    for folder in folders:
        (folder / "bin").mkdir(parents=True)
        (folder / "bin" / "python").symlink_to(sys.executable)
    monkeypatch.setenv("VIRTUAL_ENV", str(folders[1]))
    assert project(tmp_path).python == str(folders[0] / "bin" / "python")
    (folders[0] / "bin" / "python").unlink()
    assert project(tmp_path).python == str(folders[1] / "bin" / "python")
    (tmp_path / "accelsweep.yaml").write_text("python: named\n")
    assert project(tmp_path).python == str(folders[2] / "bin" / "python")


def test_later_commands_repeat_the_environment_that_was_active(tmp_path, monkeypatch):
    copy_project("script", tmp_path)
    active = environment(tmp_path / "active", None)
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path / "active"))
    assert project(tmp_path).measured.words == ["--entry", f"{active} train.py"]
    assert project(tmp_path, "python train.py").measured.words == ["--entry", f"{active} train.py"]
    (tmp_path / "accelsweep.yaml").write_text("python: active\n")
    assert project(tmp_path).measured.words == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("entry: [", "is not valid YAML"),
        ("entrie: python train.py", r"unknown key 'entrie' \(did you mean 'entry'\?\)"),
        ("batch_is: rank", "batch_is='rank'"),
        ("axes: {batchsize: x}", r"no axis 'batchsize' \(did you mean 'batch_size'\?\)"),
        ("quality: {better: max}", "the key 'quality.metric' is missing"),
        ("python: nowhere", "there is no interpreter"),
    ],
)
def test_an_error_in_the_projects_file_names_the_key_and_the_file(tmp_path, text, message):
    copy_project("script", tmp_path)
    (tmp_path / "accelsweep.yaml").write_text(text)
    with pytest.raises(InputError, match=message) as error:
        project(tmp_path)
    assert "accelsweep.yaml" in str(error.value)


@pytest.mark.parametrize(
    ("overrides", "measured"),
    [
        ([], True),
        (["batch_size=1,2"], True),
        (["experiment=wide"], True),
        (["experiment=quickstart"], False),
        (["model._target_=mine.Net"], False),
    ],
)
def test_overrides_that_compose_a_model_of_ours_measure_no_script(tmp_path, overrides, measured):
    copy_project("hydra_template", tmp_path)
    assert (measured_project(tmp_path, None, overrides) is not None) == measured


def test_a_folder_with_experiments_of_ours_measures_no_script_unless_one_is_named(tmp_path):
    copy_project("script", tmp_path)
    (tmp_path / "conf" / "experiment").mkdir(parents=True)
    assert measured_project(tmp_path, None, []) is None
    assert measured_project(tmp_path, "python train.py", []) is not None


def test_the_package_of_the_trainer_is_the_one_that_the_project_imports(tmp_path):
    copy_project("script", tmp_path)
    assert project(tmp_path).package == "lightning"
    script = tmp_path / "train.py"
    script.write_text(script.read_text().replace("lightning.pytorch", "pytorch_lightning"))
    assert project(tmp_path).package == "pytorch_lightning"


def test_a_command_that_cannot_be_executed_is_refused_with_what_to_type(tmp_path):
    (tmp_path / "train.sh").write_text("#!/bin/sh\n")
    with pytest.raises(InputError, match=r"not on the PATH: write \./train\.sh"):
        project(tmp_path, "train.sh")
    with pytest.raises(InputError, match=r"not executable: run chmod \+x \./train\.sh.*--entry 'sh \./train\.sh'"):
        project(tmp_path, "./train.sh")
    with pytest.raises(InputError, match=r"no Python script \./trian\.sh .*no such command"):
        project(tmp_path, "./trian.sh")
    assert project(tmp_path, "sh ./train.sh").entry.kind == "command"


def test_an_interpreter_with_options_is_a_command(tmp_path):
    copy_project("script", tmp_path)
    assert project(tmp_path, "python -u train.py").entry.kind == "command"
    assert project(tmp_path, "python train.py").entry.kind == "script"
