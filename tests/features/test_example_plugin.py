"""Another package adds a task, a metric, a table and a figure through the entry point, without an edit of the core."""

from __future__ import annotations

import json
import os
import re
import shutil
import tomllib
from pathlib import Path

import pytest
from home import REPOSITORY, TINY, Home

PLUGIN = Path(__file__).with_name("example_plugin")
PAGE = REPOSITORY / "docs" / "extend.md"
FILES = sorted(path for path in PLUGIN.rglob("*") if path.suffix in {".py", ".toml"})


@pytest.fixture
def home(tmp_path: Path, empty_database: Path) -> Home:
    """Return a home whose accelsweep finds the package as if pip had installed it."""
    project = tomllib.loads((PLUGIN / "pyproject.toml").read_text())["project"]
    info = tmp_path / "site" / f"accelsweep_cold_start-{project['version']}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Name: {project['name']}\nVersion: {project['version']}\n")
    points = project["entry-points"]["accelsweep.features"]
    lines = [f"{name} = {target}" for name, target in points.items()]
    (info / "entry_points.txt").write_text("\n".join(["[accelsweep.features]", *lines, ""]))
    (tmp_path / "home").mkdir()
    shutil.copy(empty_database, tmp_path / "home")
    path = (str(REPOSITORY / "src"), str(info.parent), str(PLUGIN))
    home = Home(tmp_path / "home", PYTHONPATH=os.pathsep.join(path))
    home.experiment("tiny", TINY)
    return home


@pytest.mark.real
def test_a_sweep_with_its_task_has_its_metric_table_and_figure_in_the_report(home: Home) -> None:
    result = home.accelsweep("run", "experiment=tiny", "task=cold_start", "repeats=1")
    assert result.returncode == 0, result.stdout
    records = [json.loads(file.read_text()) for file in home.path.glob("sweeps/tiny/runs/*/record.json")]
    assert len(records) == 2
    for record in records:
        assert record["body"]["metrics"]["cold_start_ratio"]["value"] > 0
        assert "accelsweep_cold_start" in record["body"]["fingerprint"]["sources"]
    report = home.path / "reports" / "tiny"
    assert (report / "cold_start.csv").is_file()
    assert (report / "cold_start.svg").is_file()
    page = (report / "report.md").read_text()
    assert "## Cold start" in page
    assert "First answers" in page


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_the_page_about_extending_shows_the_package_as_it_is(file: Path) -> None:
    blocks = re.findall(r"^```\w+ title=\"([^\"]+)\"\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert dict(blocks)[file.relative_to(PLUGIN).as_posix()] == file.read_text()
