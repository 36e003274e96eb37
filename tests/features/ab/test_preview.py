"""`ab --dry-run` shows what would be measured, and leaves the repository as it was."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from own_repository import MODULE, git, repository, write

from accelsweep.driver.request import Request
from accelsweep.errors import InputError
from accelsweep.features.ab.command import VersionsRequest, preview_versions
from accelsweep.features.ab.repository import Repository
from accelsweep.features.ab.trees import trees_made, versions_named
from accelsweep.records.layout import SweepFolder

pytestmark = pytest.mark.heavy


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return repository(tmp_path / "für mich", {"toy.py": f"{MODULE}# slower\n"})


def asking(*versions: str, fail_if: str | None = None, profile: str = "local") -> Request:
    compared = VersionsRequest(names=versions, fail_if=fail_if)
    return Request(overrides=("experiment=toy",), extension=compared, profile=profile)


def resolved(home: Path, request: Request) -> Request:
    assert request.extension is not None
    return request.extension.resolved(home, request)


def below(home: Path) -> list[str]:
    return sorted(str(path.relative_to(home)) for path in home.rglob("*") if ".git/objects" not in str(path))


def test_it_prints_the_plan_and_leaves_neither_trees_nor_folders(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(home, {"toy.py": f"{MODULE}# edited\n"})
    before = below(home)
    preview_versions(home, asking("HEAD~1", "HEAD", ".", fail_if="slower:2%"))
    told = capsys.readouterr().out
    assert "ab-toy, revision 1: 3 settings" in told
    assert "2 blocks (2 new), 6 runs, 0 settled already" in told
    assert below(home) == before
    assert git(home, "worktree", "list").count("\n") == 0


def test_the_gates_threshold_decides_about_blocks_only_with_until_decided(home: Path) -> None:
    request = asking("HEAD~1", "HEAD", fail_if="slower:2%")
    assert resolved(home, request).overrides == request.overrides
    assert resolved(home, replace(request, until_decided=True)).overrides[-1].startswith("analysis.threshold=")


def test_existing_trees_are_kept(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, around = SweepFolder(home, "ab-toy"), Repository.around(home)
    with trees_made(folder, around, versions_named(around, ("HEAD~1", "main"))) as (old, new):
        pass
    write(home, {"toy.py": f"{MODULE}# edited\n"})
    preview_versions(home, asking("HEAD~1", "."), as_json=True)
    assert json.loads(capsys.readouterr().out)["sweep"] == "ab-toy"
    kept = {path.name for path in folder.versions.iterdir()}
    assert kept == {old.version.id, new.version.id}


@pytest.mark.parametrize(
    ("request_", "why"),
    [
        (asking("HEAD~1", "mian"), r"no such commit \(did you mean 'main'\?\)"),
        (asking("HEAD~1", "HEAD", profile="slurm"), "profile"),
        (asking("HEAD~1", "HEAD", fail_if="slow"), "--fail-if 'slow' is not understood"),
    ],
)
def test_wrong_input_is_reported_and_leaves_nothing(home: Path, request_: Request, why: str) -> None:
    before = below(home)
    with pytest.raises(InputError, match=why):
        preview_versions(home, request_)
    assert below(home) == before
