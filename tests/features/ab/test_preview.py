"""`ab --dry-run` prints the plan and leaves the repository unchanged."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from user_repository import MODULE, git, repository, write

from accelsweep.driver.request import Request
from accelsweep.errors import InputError
from accelsweep.features.ab.command import VersionsRequest, preview_versions
from accelsweep.features.ab.repository import Repository
from accelsweep.features.ab.version_trees import create_trees
from accelsweep.features.ab.versions import resolve_versions
from accelsweep.records.layout import SweepFolder

pytestmark = pytest.mark.heavy


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return repository(tmp_path / "für mich", {"toy.py": f"{MODULE}# slower\n"})


def make_request(*versions: str, fail_if: str | None = None, profile: str = "local") -> Request:
    extension = VersionsRequest(names=versions, fail_if=fail_if)
    return Request(overrides=("experiment=toy",), extension=extension, profile=profile)


def resolved(home: Path, request: Request) -> Request:
    assert request.extension is not None
    return request.extension.resolved(home, request)


def all_paths(home: Path) -> list[str]:
    return sorted(str(path.relative_to(home)) for path in home.rglob("*") if ".git/objects" not in str(path))


def test_a_dry_run_prints_the_plan_and_leaves_no_trees_or_folders(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(home, {"toy.py": f"{MODULE}# edited\n"})
    before = all_paths(home)
    preview_versions(home, make_request("HEAD~1", "HEAD", ".", fail_if="slower:2%"))
    output = capsys.readouterr().out
    assert "ab-toy, revision 1: 3 settings" in output
    assert "2 blocks (2 new), 6 runs, 0 settled already" in output
    assert all_paths(home) == before
    assert git(home, "worktree", "list").count("\n") == 0


def test_the_gates_threshold_is_used_for_planning_only_with_until_decided(home: Path) -> None:
    request = make_request("HEAD~1", "HEAD", fail_if="slower:2%")
    assert resolved(home, request).overrides == request.overrides
    assert resolved(home, replace(request, until_decided=True)).overrides[-1].startswith("analysis.threshold=")


def test_a_dry_run_keeps_existing_trees(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, repo = SweepFolder(home, "ab-toy"), Repository.around(home)
    with create_trees(folder, repo, resolve_versions(repo, ("HEAD~1", "main"))) as (old, new):
        pass
    write(home, {"toy.py": f"{MODULE}# edited\n"})
    preview_versions(home, make_request("HEAD~1", "."), as_json=True)
    assert json.loads(capsys.readouterr().out)["sweep"] == "ab-toy"
    assert {path.name for path in folder.versions.iterdir()} == {old.version.id, new.version.id}


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (make_request("HEAD~1", "mian"), r"no such commit \(did you mean 'main'\?\)"),
        (make_request("HEAD~1", "HEAD", profile="slurm"), "profile"),
        (make_request("HEAD~1", "HEAD", fail_if="slow"), "--fail-if 'slow' is not a valid gate"),
    ],
)
def test_wrong_input_is_reported_and_leaves_nothing(home: Path, request_: Request, message: str) -> None:
    before = all_paths(home)
    with pytest.raises(InputError, match=message):
        preview_versions(home, request_)
    assert all_paths(home) == before
