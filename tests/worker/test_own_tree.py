"""A run of a version imports from that version's tree, or is refused with both paths."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

import pytest

from accelsweep.errors import AccelsweepError
from accelsweep.plain_json import canonical_json
from accelsweep.run_config import TREES_VARIABLE
from accelsweep.worker.rank_setup import VersionTree


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with a module in src/, on the path as an editable installation puts it there, and a tree of it."""
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path / "src")])
    for root, text in (("src", "present"), ("sweeps/s/versions/1/src", "then")):
        (tmp_path / root).mkdir(parents=True)
        (tmp_path / root / "of_versions.py").write_text(f"STATE = {text!r}\n")
    (tmp_path / "src" / "only_now.py").touch()
    (tmp_path / ".venv/lib/site-packages").mkdir(parents=True)
    monkeypatch.delitem(sys.modules, "of_versions", raising=False)
    return tmp_path


@pytest.fixture
def version_tree(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> VersionTree:
    tree = checkout / "sweeps/s/versions/1"
    told = {"name": "HEAD", "tree": str(tree), "checkout": str(checkout), "folders": [str(tree / "src")]}
    monkeypatch.setenv(TREES_VARIABLE, canonical_json({**told, "packages": ["of_versions"]}))
    found = VersionTree.from_environment()
    assert found is not None
    return found


def test_the_tree_comes_before_an_editable_installation_which_is_taken_off_the_path(version_tree: VersionTree) -> None:
    version_tree.prepend_to_path()
    assert importlib.import_module("of_versions").STATE == "then"
    version_tree.check_modules()
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("only_now")


def test_a_module_from_the_repository_is_refused_with_both_paths(version_tree: VersionTree, checkout: Path) -> None:
    importlib.import_module("of_versions")
    with pytest.raises(AccelsweepError) as refused:
        version_tree.check_modules()
    assert str(checkout / "src" / "of_versions.py") in str(refused.value)
    assert str(version_tree.tree) in str(refused.value)


def test_a_measured_package_that_pip_installed_is_refused_and_others_are_not(
    version_tree: VersionTree, checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = checkout / ".venv/lib/site-packages"
    other, measured = ModuleType("other"), ModuleType("of_versions.part")
    other.__file__, measured.__file__ = str(installed / "other.py"), str(installed / "of_versions" / "part.py")
    monkeypatch.setitem(sys.modules, "other_of_versions", other)
    version_tree.check_modules()
    monkeypatch.setitem(sys.modules, "of_versions.part", measured)
    with pytest.raises(AccelsweepError, match=r"of_versions\.part came from"):
        version_tree.check_modules()


def test_a_run_without_versions_has_no_tree() -> None:
    assert VersionTree.from_environment() is None
