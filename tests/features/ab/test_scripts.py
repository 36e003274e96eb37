"""Versions of the user's own training script: each is planned from its own tree, and runs in its own environment."""

from __future__ import annotations

from pathlib import Path

import pytest
from environments import environment
from projects import PROJECTS, copy_project
from user_repository import commit, git

from accelsweep.driver.plan_preview import requested_plan
from accelsweep.driver.request import Request
from accelsweep.errors import InputError
from accelsweep.executor.code_versions import CodeVersions, ProjectEnvironment
from accelsweep.features.ab.command import VersionsRequest
from accelsweep.features.ab.versions import environments
from accelsweep.planning.checked_grid import comparison_name
from accelsweep.planning.plan import Plan, write_plan
from accelsweep.worker.lightning_alias import PACKAGE_VARIABLE

pytestmark = pytest.mark.heavy

SCRIPT = (PROJECTS / "script" / "train.py").read_text()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with a script whose default batch size changes in the second commit."""
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        monkeypatch.delenv(name, raising=False)
    home = copy_project("script", tmp_path / "project")
    git(home, "init", "--quiet", "--initial-branch=main")
    commit(home, {".gitignore": "sweeps/\nold/\nnew/\n"})
    commit(home, {"train.py": SCRIPT.replace("default=32", "default=128")})
    return home


def planned(home: Path, *overrides: str, entry: str | None = None, **versions: tuple[str, ...]) -> Plan:
    extension = VersionsRequest(**versions)  # type: ignore[arg-type]
    request = extension.resolved(home, Request(overrides, entry=entry, extension=extension))
    return requested_plan(home, request)


def test_each_commit_has_the_values_of_its_own_script_and_no_axis_is_added(home: Path) -> None:
    plan = planned(home, "quality=val_acc", names=("HEAD~1", "HEAD"))
    assert plan.manifest.sweep == "ab-train"
    sizes = {setting.axes["version"]: setting.config.batch_size for setting in plan.settings}
    assert sizes == {"HEAD~1": 32, "HEAD": 128}
    assert plan.manifest.axes == ("version",)
    assert "the script's config differs: batch_size is 32 in HEAD~1 and 128 in HEAD" in plan.notes


def test_the_runs_of_a_commit_take_the_script_from_its_tree(home: Path) -> None:
    plan = planned(home, "quality=val_acc", "batch_size=64", names=("HEAD~1", "HEAD"))
    folder = write_plan(home, plan)
    for setting in plan.settings:
        code = CodeVersions(folder).run_code(setting.config)
        assert isinstance(code, ProjectEnvironment)
        assert code.version is not None
        assert code.version.home == folder.version(code.version.tree.version.id)
        default = 32 if setting.axes["version"] == "HEAD~1" else 128
        assert f"default={default}" in (code.version.home / "train.py").read_text()
        assert str(code.version.home) in code.environment["ACCELSWEEP_TREE"]


def test_a_script_that_is_the_same_file_in_every_version_is_refused(home: Path) -> None:
    with pytest.raises(InputError, match="is the same file in every version: name it relative to"):
        planned(home, "batch_size=64", entry=f"python {home / 'train.py'}", names=("HEAD~1", "HEAD"))
    assert not (home / "sweeps" / "ab-train").exists()


def test_a_version_without_the_script_is_named(home: Path) -> None:
    git(home, "mv", "train.py", "fit.py")
    commit(home, {})
    with pytest.raises(InputError, match=r"in HEAD~1 .*no Python script fit\.py"):
        planned(home, "batch_size=64", entry="python fit.py", names=("HEAD~1", "HEAD"))


def test_environments_run_the_script_without_accelsweep_installed_there(home: Path) -> None:
    old, new = (environment(home / name, f"only-{name}") for name in ("old", "new"))
    plan = planned(home, "quality=val_acc", "batch_size=64", pythons=("old/bin/python", new))
    folder = write_plan(home, plan)
    codes = [CodeVersions(folder).run_code(setting.config) for setting in plan.settings]
    assert [code.python for code in codes if code is not None] == [old, new]
    for code in codes:
        assert code is not None
        assert code.environment[PACKAGE_VARIABLE] == "lightning"
        assert Path(code.environment["PYTHONPATH"].split(":")[0], "accelsweep").is_dir()
    bare = environment(home / "bare", "only-bare", shares=False)
    with pytest.raises(InputError, match="has no torch"):
        planned(home, "batch_size=64", pythons=(old, bare))
    with pytest.raises(InputError, match="lacks accelsweep"):
        environments(home, (old, bare))


def test_a_fleet_of_a_script_has_a_name_of_its_own(home: Path) -> None:
    assert comparison_name(home, (), "fleet") == "fleet-train"
    assert comparison_name(home, ["batch_size=64"], "fleet", "python train.py") == "fleet-train"
