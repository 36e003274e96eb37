"""Places that docstrings name in backquotes exist, so that a move leaves no name behind."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import accelsweep
from accelsweep import registry
from accelsweep.config.schema import MODELS
from accelsweep.config.sweep_options import Analysis
from accelsweep.run_config import Measure

PACKAGE = Path(accelsweep.__file__).parent
PACKAGES = {path.parent.name for path in PACKAGE.glob("*/__init__.py")} | {
    *(path.stem for path in PACKAGE.glob("[!_]*.py"))
} - {"lightning", "pytorch_lightning", "transformers"}  # in a docstring, these are the packages
OTHERS = {
    *(f"measure.{key}" for key in MODELS[Measure].model_fields),
    *(
        f"{keys.group}.{key}"
        for feature in registry.features()
        for keys in feature.config_keys
        for key in registry.load(keys.model).model_fields
    ),
    *(f"analysis.{key}" for key in Analysis.model_fields),
    *("config.data", "config.model"),
    *("devices.devices",),
}
"""Keys and objects of the config, and a column of a table, that begin like a package."""
FILES = {"report.md", "records.parquet"}


def named() -> Iterator[tuple[str, str]]:
    """Yield each file and each dotted name below one of our packages that a docstring there has."""
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if (
                isinstance(node, ast.Expr)
                and isinstance(node.value, ast.Constant)
                and isinstance(node.value.value, str)
            ):
                for name in re.findall(r"`(\w+(?:\.\w+)+)(?:\(\))?`", node.value.value):
                    if name.partition(".")[0] in PACKAGES and name not in OTHERS | FILES:
                        yield str(path.relative_to(PACKAGE)), name


def exists(name: str) -> bool:
    """Return whether a module, something at the top level of one, or in a class there, has this name.

    Nothing is imported.
    """
    place, _, last = name.rpartition(".")
    above, _, owner = place.rpartition(".")
    if owner[:1].isupper():
        return has_member(PACKAGE / f"{above.replace('.', '/')}.py", owner, last)
    within = PACKAGE / place.replace(".", "/")
    if (within / last).is_dir() or (within / f"{last}.py").is_file():
        return True
    module = within / "__init__.py" if within.is_dir() else within.with_suffix(".py")
    return module.is_file() and bool(re.search(rf"^(?:class |def )?{last}\b", module.read_text("utf-8"), re.MULTILINE))


def has_member(module: Path, owner: str, name: str) -> bool:
    """Return whether a class at the top level of a module defines an attribute or a method of this name."""
    if not module.is_file():
        return False
    for node in ast.parse(module.read_text("utf-8")).body:
        if isinstance(node, ast.ClassDef) and node.name == owner:
            fields = {
                each.target.id
                for each in node.body
                if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
            }
            return name in fields | {each.name for each in node.body if isinstance(each, ast.FunctionDef)}
    return False


def test_each_dotted_name_of_a_package_in_a_docstring_exists() -> None:
    found = list(named())
    assert len(found) > 20
    assert [(file, name) for file, name in found if not exists(name)] == []


def test_a_name_that_was_moved_is_seen() -> None:
    assert exists("analysis.intervals.prior_degrees")
    assert exists("records.run_record")
    assert not exists("planning.intervals.prior_degrees")
    assert not exists("records.run_record.Nothing")
    assert exists("registry.Feature.commands")
    assert not exists("registry.Feature.nothing")
    assert not exists("registry.Nothing.commands")
    assert not exists("nowhere.Feature.commands")
