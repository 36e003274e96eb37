"""Hooks and workflows call the same tools as `make`, so that no check is passed in one place and failed in another."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from accelsweep.installation import __version__

ROOT = Path(__file__).resolve().parents[2]
MAKEFILE = (ROOT / "Makefile").read_text()


def test_the_hooks_are_the_commands_of_make_check():
    recipe = re.search(r"^check:.*\n((?:\t.*\n)+)", MAKEFILE, re.MULTILINE)
    assert recipe
    commands = re.findall(r"\$\(RUN\)/(\S+(?: (?:format|check|tests/\S+))?)", recipe[1])
    assert len(commands) > 4
    (local,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    entries = [hook["entry"].removeprefix(".venv/bin/") for hook in local["hooks"]]
    assert [command for command in commands if not any(entry.startswith(command) for entry in entries)] == []
    assert len(entries) == len(commands)


def test_the_hooks_see_the_files_that_make_check_sees():
    (local,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    for hook in local["hooks"]:
        if hook["entry"].startswith(".venv/bin/ruff"):
            assert {"python", "pyi", "jupyter"} <= set(hook["types_or"]), "notebooks are linted and formatted, too"
        elif hook["id"] in ("mypy", "import-linter", "bandit"):
            for file in ("src/accelsweep/cli/typer_app.py", "src/a.pyi", "pyproject.toml"):
                assert re.search(hook["files"], file), f"{hook['id']} does not see {file}"
            assert not re.search(hook["files"], "docs/config.md")


def test_workflows_call_targets_that_exist():
    targets = set(re.findall(r"^([a-z-]+):", MAKEFILE, re.MULTILINE))
    for file in sorted((ROOT / ".github" / "workflows").glob("*.yml")):
        called = re.findall(r"- run: make (\S+)", file.read_text())
        assert called, file.name
        assert set(called) <= targets


def test_the_tests_run_on_every_python_that_the_package_names():
    tests = yaml.safe_load((ROOT / ".github" / "workflows" / "tests.yml").read_text())
    named = re.findall(r'"Programming Language :: Python :: (3\.\d+)"', (ROOT / "pyproject.toml").read_text())
    assert tests["jobs"]["tests"]["strategy"]["matrix"]["python"] == named


def test_a_version_is_the_same_in_the_citation_and_has_its_changes():
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert cited["version"] == __version__
    assert f"\n## {__version__} - {cited.get('date-released', 'unreleased')}\n" in (ROOT / "CHANGELOG.md").read_text()
