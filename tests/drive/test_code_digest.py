"""The digest of our code holds every file that can change what it stands for."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import accelsweep
from accelsweep.driver.snakefile_functions import _NOT_MEASURING, code_digest

PACKAGE = Path(accelsweep.__file__).parent
PACKAGES = sorted(path.parent.name for path in PACKAGE.glob("*/__init__.py"))
ROOT_MODULES = sorted(path.name for path in PACKAGE.glob("*.py"))


def made(folder: Path) -> Path:
    """Return a package in `folder` that has our packages and root modules, with a little code in each."""
    for name in PACKAGES:
        (folder / name / "deeper").mkdir(parents=True)
        (folder / name / "code.py").write_text("first", "utf-8")
        (folder / name / "deeper" / "table.csv").write_text("first", "utf-8")
    for name in ROOT_MODULES:
        (folder / name).write_text("first", "utf-8")
    return folder


def change(place: Path) -> None:
    (place / "code.py" if place.is_dir() else place).write_text("second", "utf-8")


def change_deeper(place: Path) -> None:
    (place / "deeper" / "table.csv" if place.is_dir() else place).write_text("second", "utf-8")


def add(place: Path) -> None:
    (place / "deeper" / "more.py" if place.is_dir() else place.with_name(f"more_{place.name}")).write_text("", "utf-8")


def rename(place: Path) -> None:
    old = place / "code.py" if place.is_dir() else place
    old.rename(old.with_name(f"other_{old.name}"))


edits = pytest.mark.parametrize("edit", [change, change_deeper, add, rename], ids=lambda edit: edit.__name__)


@edits
def test_an_edit_in_any_package_changes_the_digest(tmp_path: Path, edit: Callable[[Path], None]) -> None:
    before = code_digest(package=made(tmp_path / "unedited"))
    assert code_digest(package=made(tmp_path / "the same")) == before
    for name in (*PACKAGES, *ROOT_MODULES):
        edit(made(tmp_path / f"edited {name}") / name)
        assert code_digest(package=tmp_path / f"edited {name}") != before, name


@edits
def test_an_edit_of_what_measures_nothing_leaves_the_digest_of_what_measures(
    tmp_path: Path, edit: Callable[[Path], None]
) -> None:
    before = code_digest(without=_NOT_MEASURING, package=made(tmp_path / "unedited"))
    for name in (*PACKAGES, *ROOT_MODULES):
        if name.endswith(".py") and edit in (add, rename):
            continue  # that makes a new root module, which `_NOT_MEASURING` cannot name
        edit(made(tmp_path / f"edited {name}") / name)
        after = code_digest(without=_NOT_MEASURING, package=tmp_path / f"edited {name}")
        assert (after == before) == (name in _NOT_MEASURING), name


def test_installed_code_has_the_digest_of_the_same_code_in_a_checkout(tmp_path: Path) -> None:
    """It has a folder of shipped files beside it, and a checkout the remains of packages that were moved away."""
    before = code_digest(package=made(tmp_path / "unedited"))
    installed = made(tmp_path / "installed")
    for name in ("shipped/conf/config.yaml", "moved_away/__pycache__/code.pyc", "__pycache__/__init__.pyc"):
        (installed / name).parent.mkdir(parents=True)
        (installed / name).write_text("", "utf-8")
    assert code_digest(package=installed) == before


def test_all_that_measures_nothing_is_there() -> None:
    assert {*_NOT_MEASURING} <= {*PACKAGES, *ROOT_MODULES}


def imported_by(path: Path) -> Iterator[Path]:
    """Yield the files of our modules that a file imports, at its head or later."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        for name in names:
            place = PACKAGE.parent / name.replace(".", "/")
            found = (place.with_suffix(".py"), place / "__init__.py")
            yield from (file for file in found if name.startswith("accelsweep.") and file.is_file())


def test_what_a_supervisor_runs_by_itself_or_through_others_is_in_the_digest_of_what_measures() -> None:
    reached = sorted((PACKAGE / "executor").rglob("*.py"))
    for each in reached:
        reached.extend(sorted({*imported_by(each)} - {*reached}))
    files = {path.relative_to(PACKAGE).as_posix() for path in reached}
    assert {"worker/measurement.py", "measure/window.py", "workloads/instantiate.py", "json_documents.py"} <= files
    beside = {file for file in files if file.partition("/")[0] in _NOT_MEASURING}
    assert beside == {"analysis/intervals.py"}, "only a formula that has one right value, Student's t, may stand there"
