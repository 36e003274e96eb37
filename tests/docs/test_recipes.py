"""The recipes of CONTRIBUTING.md, followed word for word in a fresh copy of the checkout.

They are long because each measures something real; only typing them can show that they work.
"""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "CONTRIBUTING.md").read_text()
RECIPES = dict(re.findall(r"^### Add an? (\w+)\n(.*?)(?=^##)", PAGE, re.MULTILINE | re.DOTALL))
PART = re.compile(
    r"^`(?P<file>[^`\n]+)`, (?P<how>a new file|below the last|above the last|below|above|in place of)"
    r"(?: `(?P<anchor>[^\n]+)`)?:\n\n```\w+\n(?P<text>.*?)```|^```sh\n(?P<shell>.*?)```",
    re.MULTILINE | re.DOTALL,
)


def written(before, how, anchor, text):
    """The file's text after a step of a recipe; fails where the anchor is not exactly one line of it."""
    if how.endswith("the last"):
        at = before.rindex(f"\n{anchor}\n") + 1
        return before[:at] + text + before[at:]
    lines = before.split("\n")
    assert lines.count(anchor) == 1, f"{lines.count(anchor)} lines are {anchor!r}"
    at = lines.index(anchor)
    keep = {
        "below": [anchor, text.rstrip("\n")],
        "above": [text.removesuffix("\n"), anchor],
        "in place of": [text.rstrip("\n")],
    }
    return "\n".join([*lines[:at], *keep[how], *lines[at + 1 :]])


def steps(recipe):
    return [match.groupdict() for match in PART.finditer(RECIPES[recipe])]


def test_there_is_a_recipe_for_each_thing_that_people_add():
    assert set(RECIPES) == {"axis", "model", "task", "device", "figure"}
    assert all(steps(recipe)[-1]["shell"] for recipe in RECIPES), "each ends with a command that shows it"


@pytest.mark.parametrize("recipe", RECIPES)
def test_every_place_that_a_recipe_names_is_there(recipe):
    for step in steps(recipe):
        if step["file"] and step["how"] != "a new file":
            written((ROOT / step["file"]).read_text(), step["how"], step["anchor"], step["text"])
        elif step["file"]:
            assert not (ROOT / step["file"]).exists()
            assert (ROOT / step["file"]).parent.parent.is_dir(), "a feature is a new folder"


@pytest.mark.parametrize("recipe", RECIPES)
def test_every_module_that_a_recipe_imports_is_there(recipe):
    new = {step["file"] for step in steps(recipe) if step["how"] == "a new file"}
    for step in steps(recipe):
        if (step["file"] or "").endswith(".py") and step["how"] == "a new file":
            imported = [node.module for node in ast.walk(ast.parse(step["text"])) if isinstance(node, ast.ImportFrom)]
            for name in (name for name in imported if name and name.startswith("accelsweep")):
                known = f"src/{name.replace('.', '/')}.py" in new or importlib.util.find_spec(name)
                assert known, f"{step['file']} imports {name}"


@pytest.mark.heavy
@pytest.mark.parametrize("recipe", RECIPES)
def test_the_code_with_a_recipe_typed_in_has_our_form_and_keeps_our_layers(recipe, tmp_path):
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for step in steps(recipe):
        if (step["file"] or "").startswith(("src/", "pyproject.toml")):
            typed(tmp_path, step)
    layers = [str(Path(sys.executable).parent / "lint-imports"), "--no-cache"]
    ruff = [sys.executable, "-m", "ruff"]
    for command in ([*ruff, "check", "src"], [*ruff, "format", "--check", "src"], layers):
        environment = os.environ | {"PYTHONPATH": str(tmp_path / "src")}
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout


@pytest.mark.heavy
def test_the_code_with_all_recipes_typed_in_has_the_types_that_our_interfaces_ask_for(tmp_path):
    """Half a minute without the checkout's cache of mypy, and seconds with it: so it is one look at all of them."""
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    edited = [step for recipe in RECIPES for step in steps(recipe) if re.match(r"src/.*\.py$", step["file"] or "")]
    for step in edited:
        typed(tmp_path, step)
    files = sorted({step["file"] for step in edited})
    command = [sys.executable, "-m", "mypy", "--cache-dir", str(ROOT / ".mypy_cache"), *files]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def typed(copy, step):
    """Do in a copy of the checkout what a step of a recipe says."""
    target = copy / step["file"]
    target.parent.mkdir(exist_ok=True)
    new = step["how"] == "a new file"
    text = step["text"] if new else written(target.read_text(), step["how"], step["anchor"], step["text"])
    target.write_text(text)


def checkout(target):
    """A copy of the checkout without what git ignores."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).exists():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)
    return target


@pytest.mark.long  # each makes a sweep in a fresh checkout; the tests of axes, models, tasks and figures have the parts
@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.timeout(900)
def test_a_recipe_works_as_it_stands(recipe, tmp_path):
    copy = checkout(tmp_path / "accelsweep")
    environment = os.environ | {
        "PYTHONPATH": str(copy / "src"),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    for step in steps(recipe):
        if step["shell"]:
            command = ["bash", "-euo", "pipefail", "-c", step["shell"]]
            done = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, check=False)
            assert done.returncode == 0, f"{step['shell']}\n{done.stdout}\n{done.stderr}"
            sys.stdout.write(done.stdout)
            continue
        typed(copy, step)
