"""Commits and the working tree become trees below the sweep, by git itself, and wrong names are refused in words."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import threading
from pathlib import Path

import pytest
from tiny_sweep import plan_sweep
from user_repository import FILES, MODULE, commit, git, repository, write

from accelsweep.config.versions import Tree
from accelsweep.errors import AccelsweepError, InputError
from accelsweep.features.ab.repository import Repository
from accelsweep.features.ab.version_trees import create_trees, remove_trees, restore_trees
from accelsweep.features.ab.versions import resolve_versions
from accelsweep.records.layout import SweepFolder
from accelsweep.records.plan import Manifest

SLOWER = {"toy.py": MODULE + "# slower\n"}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A repository with two commits, in a folder with a space and umlauts."""
    return repository(tmp_path / "für mich", SLOWER, {"Größe der Welt.txt": "ü"})


def made(home: Path, *names: str, sweep: str = "s") -> tuple[Tree, ...]:
    found = Repository.around(home)
    with create_trees(SweepFolder(home, sweep), found, resolve_versions(found, names)) as trees:
        return trees


def tree_of(home: Path, tree: Tree) -> Path:
    return SweepFolder(home, "s").version(tree.version.id)


def why_refused(home: Path, *names: str) -> str:
    with pytest.raises(InputError) as refused:
        made(home, *names)
    assert not (home / "sweeps").exists() or not list((home / "sweeps").iterdir())
    return str(refused.value)


def test_a_commit_is_checked_out_as_it_was_also_under_names_with_spaces_and_umlauts(home: Path) -> None:
    old, new = made(home, "HEAD~2", "main")
    assert (tree_of(home, old) / "toy.py").read_text() == MODULE
    assert (tree_of(home, new) / "Größe der Welt.txt").read_text() == "ü"
    assert old.version.digest == git(home, "rev-parse", "HEAD~2")
    assert git(home, "status", "--porcelain") == ""


def test_the_working_tree_is_copied_without_what_git_ignores_and_what_accelsweep_made(home: Path) -> None:
    (home / ".gitignore").unlink()  # so that only their names tell what accelsweep made
    write(
        home, {"toy.py": "edited", "new.py": "untracked", "sweeps/other/x": "", "reports/r/y": "", "mlflow.db-wal": ""}
    )
    write(home, {".gitignore": "ignored.txt\n", "ignored.txt": "no"})
    _, here = made(home, "HEAD", ".")
    found = {path.relative_to(tree_of(home, here)).as_posix() for path in tree_of(home, here).rglob("*")}
    assert {"toy.py", "new.py", ".gitignore", "Größe der Welt.txt"} <= found
    assert not [name for name in found if name.startswith(("sweeps", "reports", "mlflow", "ignored"))]


def test_the_working_tree_is_another_version_after_an_edit_only(home: Path) -> None:
    first, second = (Repository.around(home) for _ in range(2))
    before = resolve_versions(first, ("HEAD", "."))[1]
    assert resolve_versions(second, ("HEAD", "."))[1] == before
    write(home, {"toy.py": MODULE + "# edited\n"})
    assert resolve_versions(first, ("HEAD", "."))[1].digest != before.digest


def test_an_unknown_revision_is_refused_with_the_nearest_name(home: Path) -> None:
    assert "mian: " in why_refused(home, "mian", "HEAD")
    assert "did you mean 'main'?" in why_refused(home, "mian", "HEAD")


def test_a_revision_beyond_a_shallow_clone_is_refused_with_the_remedy(home: Path, tmp_path: Path) -> None:
    shallow = tmp_path / "shallow"
    subprocess.run(["git", "clone", "--quiet", "--depth=1", home.as_uri(), str(shallow)], check=True)
    assert "git fetch --unshallow" in why_refused(shallow, "HEAD~1", "HEAD")


def test_a_repository_without_commits_says_so(tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet")
    assert "has no commit yet" in why_refused(tmp_path, "HEAD", ".")


def test_a_folder_without_a_repository_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert "is not inside a git checkout" in why_refused(tmp_path, "HEAD", ".")


def test_a_machine_without_git_says_so(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert "git is not installed" in why_refused(home, "HEAD", ".")


def test_two_names_of_one_commit_leave_nothing_to_compare(home: Path) -> None:
    assert "main and HEAD are the same commit" in why_refused(home, "main", "HEAD")


def test_one_version_is_not_enough(home: Path) -> None:
    assert "at least two" in why_refused(home, "HEAD")


def test_a_submodule_comes_from_the_users_own_copy(home: Path, tmp_path: Path) -> None:
    part = repository(tmp_path / "part")
    git(home, "submodule", "--quiet", "add", str(part), "lib/part")
    git(home, "commit", "--quiet", "-m", "with a submodule")
    then = commit(part, {"toy.py": "later"})
    git(home / "lib" / "part", "fetch", "--quiet")
    git(home / "lib" / "part", "checkout", "--quiet", then)
    git(home, "commit", "--quiet", "-am", "a later submodule")
    shutil.rmtree(part)  # nothing is fetched
    old, new, here = made(home, "HEAD~1", "HEAD", ".")
    assert (tree_of(home, old) / "lib/part/toy.py").read_text() == MODULE
    assert (tree_of(home, new) / "lib/part/toy.py").read_text() == "later"
    assert (tree_of(home, here) / "lib/part/toy.py").read_text() == "later"
    assert made(home, "HEAD~1", "HEAD") == (old, new)


@pytest.mark.parametrize("name", ["HEAD", "."])
def test_a_tree_that_was_altered_or_deleted_is_made_again(home: Path, name: str) -> None:
    for spoil in (
        lambda path: (path / "toy.py").write_text("altered"),
        shutil.rmtree,
        lambda path: (path / "x").touch(),
    ):
        tree = tree_of(home, made(home, "HEAD~1", name)[1])
        subprocess.run(["chmod", "-R", "u+w", str(tree)], check=True)
        spoil(tree)
        made(home, "HEAD~1", name)
        assert (tree / "toy.py").read_text() == SLOWER["toy.py"]
        assert not (tree / "x").exists()


def test_the_plans_lost_trees_are_made_again_and_one_that_cannot_be_is_told(home: Path) -> None:
    folder, _ = plan_sweep(home, [{}], name="s")
    trees = made(home, "HEAD", ".")
    for tree in trees:
        tree.write(folder.version_file(tree.version.id))
        subprocess.run(["chmod", "-R", "u+w", str(tree_of(home, tree))], check=True)
        shutil.rmtree(tree_of(home, tree))
    write(home, {"toy.py": "edited since"})
    plan = Manifest.read(folder.manifest).model_copy(update={"compared": tuple(tree.version for tree in trees)})
    plan.write(folder.manifest)
    (why,) = restore_trees(folder)
    assert (tree_of(home, trees[0]) / "toy.py").read_text() == SLOWER["toy.py"]
    assert why.startswith("version . cannot be restored: the working tree was edited")
    assert not tree_of(home, trees[1]).exists()


def test_a_tree_is_read_only(home: Path) -> None:
    tree = tree_of(home, made(home, "HEAD~1", "HEAD")[0])
    assert [path for path in (tree, tree / "toy.py", tree / "conf") if path.stat().st_mode & 0o222] == []


def test_removed_trees_are_off_gits_list(home: Path) -> None:
    tree = tree_of(home, made(home, "HEAD~1", "HEAD")[0])
    assert len(git(home, "worktree", "list").splitlines()) == 3
    remove_trees(SweepFolder(home, "s"), home)
    assert not tree.exists()
    assert len(git(home, "worktree", "list").splitlines()) == 1


def test_two_commands_at_once_make_their_trees_in_one_repository(home: Path) -> None:
    failed: list[Exception] = []

    def work(sweep: str) -> None:
        try:
            made(home, "HEAD~2", "HEAD~1", "HEAD", sweep=sweep)
        except Exception as error:  # noqa: BLE001 - it is looked at below
            failed.append(error)

    threads = [threading.Thread(target=work, args=(sweep,)) for sweep in ("s", "s", "t", "u", "v", "w")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert len(git(home, "worktree", "list").splitlines()) == 16


def test_a_command_given_in_a_folder_of_the_repository_finds_that_folder_in_each_tree(home: Path) -> None:
    commit(home, {f"deep/{name}": text for name, text in FILES.items()})
    commit(home, {"deep/toy.py": "later"})
    assert [tree.place for tree in made(home / "deep", "HEAD~1", "HEAD")] == ["deep", "deep"]
    why = why_refused(home / "deep", "HEAD", "HEAD~2")
    assert "has no folder deep" in why
    assert "in a folder that all versions have" in why


def test_a_hooks_variables_do_not_lead_to_another_repository(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_DIR", os.devnull)
    assert len(made(home, "HEAD~1", "HEAD")) == 2


@pytest.mark.parametrize("number", [errno.EPERM, errno.EOPNOTSUPP])
def test_a_link_that_the_disk_cannot_hold_is_named_and_no_edit_is_blamed(
    number: int, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "link.py").symlink_to("own.py")

    def refused(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "symlink", refused)
    with pytest.raises(AccelsweepError, match=r"link\.py is a symbolic link, but the disk .* does not support links"):
        made(home, ".", "HEAD")
