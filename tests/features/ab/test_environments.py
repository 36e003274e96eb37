"""Environments are versions by what is installed in them."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

import pytest
from environments import environment

from accelsweep.errors import InputError
from accelsweep.features.ab.version_trees import version_trees
from accelsweep.features.ab.versions import environments
from accelsweep.records.layout import SweepFolder

pytestmark = pytest.mark.heavy


def test_an_environment_is_known_by_its_packages_and_keeps_its_own_interpreter(tmp_path: Path) -> None:
    environment(tmp_path / "old", "first")
    environment(tmp_path / "new", "second")
    old, new = environments(tmp_path, ("old/bin/python", str(tmp_path / "new/bin/python")))
    assert old.version.digest != new.version.digest
    assert (old.version.name, old.version.python) == ("old/bin/python", str(tmp_path / "old/bin/python"))
    assert old.software["torch"] == metadata.version("torch")
    assert (old.software["first"], new.software["second"]) == ("1.0", "1.0")


def test_environments_that_cannot_be_compared_are_refused_with_the_reason(tmp_path: Path) -> None:
    same = environment(tmp_path / "a", None), environment(tmp_path / "b", None)
    bare = environment(tmp_path / "c", None, shares=False)
    for names, words in (
        (same, "have the same Python and packages"),
        ((same[0], bare), "lacks accelsweep and torch and lightning"),
        ((same[0], str(tmp_path / "none")), "cannot list its packages"),
        (same[:1], "use it twice"),
    ):
        with pytest.raises(InputError, match=words):
            environments(tmp_path, names)


def test_commits_and_environments_are_not_mixed(tmp_path: Path) -> None:
    with (
        pytest.raises(InputError, match="compare either commits or environments"),
        version_trees(SweepFolder(tmp_path, "s"), ("HEAD",), ("a", "b")),
    ):
        pass
