"""The sweeps of two pages, typed word for word in projects that other people could have written.

Those on a cluster are in tests/slurm/test_scripts.py.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from projects import PROJECTS, copy_project

DOCS = Path(__file__).resolve().parents[2] / "docs"
COMMANDS = [
    line
    for page in ("your-project.md", "any-script.md")
    for block in re.findall(r"^```sh\n(.*?)```", (DOCS / page).read_text(), re.MULTILINE | re.DOTALL)
    for line in block.splitlines()
    if line.startswith("accelsweep run") and "site=" not in line
]


def project_of(command: str) -> str:
    """The project that a command of a page is about."""
    if "--entry" not in command:
        return "hydra_template"
    if " fit " in command:
        return "lightning_cli"
    if "measure.scope=process" in command:
        return "command"
    entry = shlex.split(command)[shlex.split(command).index("--entry") + 1]
    named = [path.parent.name for path in PROJECTS.glob(f"*/{entry.split()[1]}")]
    return "script" if "hidden=" in command else "plain_script" if "plain_script" in named else named[0]


def typed(command: str, home: Path) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", *shlex.split(command)]
    environment = {name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "CONDA_PREFIX")}
    return subprocess.run(words, cwd=home, env=environment, capture_output=True, text=True, check=False)


def test_the_pages_have_a_command_for_each_kind_of_project():
    assert sorted({project_of(command) for command in COMMANDS}) == sorted(path.name for path in PROJECTS.iterdir())


@pytest.mark.long  # whole sweeps at the pages' own length
@pytest.mark.real
@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_a_page_measures_and_reports(command: str, tmp_path: Path) -> None:
    home = copy_project(project_of(command), tmp_path / "my-project")
    done = typed(command, home)
    assert done.returncode == 0, done.stdout + done.stderr
    assert list(home.glob("reports/*/index.html"))
    assert typed(command, home).returncode == 0, "typed again, there is nothing to do"
