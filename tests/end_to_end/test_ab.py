"""Two commits from the command to the report: one is broken, the other is measured beside it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from home import Home
from shared_fork_server import beside_the_server
from user_repository import MODULE, git, repository

from accelsweep.records.estimates import Verdict
from accelsweep.records.findings import Findings
from accelsweep.records.layout import SweepFolder
from accelsweep.records.plan import Manifest
from accelsweep.records.run_files import readable_records
from accelsweep.results import Outcome

pytestmark = pytest.mark.real

COMMAND = ("experiment=toy", "repeats=1", "--name", "ab")


def without(tree: Path) -> None:
    subprocess.run(["chmod", "-R", "u+w", str(tree)], check=True)
    shutil.rmtree(tree)


@pytest.fixture(scope="module")
def two_commits(
    tmp_path_factory: pytest.TempPathFactory, leases: str, empty_database: Path
) -> tuple[Home, subprocess.CompletedProcess[str]]:
    """A repository whose last commit breaks an import, and the command that compared its commits."""
    home = Home(tmp_path_factory.mktemp("home") / "für mich", ACCELSWEEP_LEASES=leases, **beside_the_server())
    slower = MODULE.replace("return self.layer", "import time; time.sleep(0.001)\n        return self.layer")
    repository(home.path, {"toy.py": slower}, {"toy.py": f"import nothing_at_all\n{MODULE}"})
    shutil.copy(empty_database, home.path)
    return home, home.accelsweep("ab", "HEAD~1", "HEAD", *COMMAND, "--fail-if", "slower:2%")


def test_a_commit_that_breaks_the_import_is_a_row_with_its_reason_and_the_other_is_measured(two_commits) -> None:
    home, result = two_commits
    folder = SweepFolder(home.path, "ab")
    found = Findings.read(folder.findings)
    first, broken = found.settings
    assert result.returncode == 1, result.stdout
    assert (first.verdict, broken.verdict) == (Verdict.baseline, Verdict.not_measured)
    assert first.rate is not None
    assert broken.outcomes == {Outcome.crashed: 1}
    assert "nothing_at_all" in broken.reasons[0]
    assert "slower:2%: 1 of 1 comparison could not be judged" in result.stdout


def test_each_run_had_the_sources_of_its_commit_and_says_which(two_commits) -> None:
    home, _ = two_commits
    folder = SweepFolder(home.path, "ab")
    wanted = Manifest.read(folder.manifest).wanted_runs()
    commits = {record.axes["version"]: record.git["commit"] for record in readable_records(folder, wanted)}
    assert commits == {name: git(home.path, "rev-parse", name) for name in ("HEAD~1", "HEAD")}
    sources = {record.fingerprint.sources["toy"] for record in readable_records(folder, wanted)}
    assert len(sources) == 2


def both_work(home: Home) -> dict[str, Any]:
    """Compare the two commits that work; return the answer."""
    command = [sys.executable, "-m", "accelsweep", "ab", "HEAD~2", "HEAD~1", *COMMAND, "--json"]
    result = subprocess.run(command, cwd=home.path, env=home.environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    told: dict[str, Any] = json.loads(result.stdout)
    return told


@pytest.mark.long  # features/ab/test_versions.py makes lost trees again; only here a sweep goes on with them
def test_a_deleted_worktree_loses_nothing_and_is_made_again(two_commits) -> None:
    home, _ = two_commits
    folder = SweepFolder(home.path, "ab")
    both_work(home)
    trees = sorted(path for path in folder.versions.iterdir() if path.is_dir())
    before = {path: path.stat().st_mtime_ns for path in folder.latest_records()}
    for tree in trees:
        without(tree)
    assert [row["axes"] for row in both_work(home)["rows"]] == [{"version": "HEAD~1"}]
    assert {path: path.stat().st_mtime_ns for path in folder.latest_records()} == before
    assert [tree for tree in trees if not tree.is_dir()] == [folder.version(git(home.path, "rev-parse", "HEAD")[:12])]


def test_clean_takes_the_worktrees_off_gits_list(two_commits) -> None:
    home, _ = two_commits
    assert home.accelsweep("clean", "ab", "--yes").returncode == 0
    assert git(home.path, "worktree", "list").count("\n") == 0
