"""The documentation's site builds without a warning, and loads nothing from other servers."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.real

ROOT = Path(__file__).resolve().parents[2]
OPTIONS = re.findall(r"mkdocs build (.*)", (ROOT / "Makefile").read_text())[0].split()
"""Those of `make docs`."""

LOADED = re.compile(r"""<(?:script|img|iframe|link)\b[^>]*?\b(?:src|href)=["']?(https?:)?//[^>]*>""")


@pytest.fixture(scope="module")
def built_site(tmp_path_factory):
    """The built site. The API's pages are left empty here, because filling them takes most of the time: `make docs`."""
    target = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", *OPTIONS, "--site-dir", str(target)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1", "ACCELSWEEP_DOCS_API": "false"}
    built = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    return target


@pytest.mark.long  # CI builds the site, too; test_generated.py and test_links.py read its pages
def test_it_has_the_pages_that_the_code_writes(built_site):
    for page in (
        "index",
        "changelog",
        "reference/config",
        "reference/json",
        "reference/doubts",
        "api/accelsweep.records",
        "design/index",
    ):
        assert (built_site / f"{page}.html").is_file()
    assert "short_window" in (built_site / "reference/doubts.html").read_text()


@pytest.mark.long  # CI builds the site, too; test_generated.py and test_links.py read its pages
def test_the_example_notebook_has_the_outputs_of_a_kernel(built_site):
    page = (built_site / "example.html").read_text()
    for output in ("accelsweep-first-screen", "<svg", "speedup_ratio_high", "settled already", "measured       45"):
        assert output in page
    cells = json.loads((built_site / "example.ipynb").read_text())["cells"]
    assert all(cell["outputs"] for cell in cells if cell["cell_type"] == "code")


def test_a_broken_link_and_a_page_that_is_nowhere_end_the_build_that_make_docs_does(tmp_path):
    rules = re.findall(r"^validation:\n(?: +.*\n)+", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    (tmp_path / "docs").mkdir()

    def build(navigation, text):
        (tmp_path / "mkdocs.yml").write_text(f"site_name: tiny\nnav: [{navigation}]\n{rules[0]}")
        (tmp_path / "docs" / "index.md").write_text(text)
        command = [sys.executable, "-m", "mkdocs", "build", *OPTIONS]
        environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)

    assert build("index.md", "# Here").returncode == 0
    broken = build("index.md", "[there](nowhere.md)")
    assert "nowhere.md" in broken.stderr
    assert broken.returncode != 0
    (tmp_path / "docs" / "lost.md").write_text("# Lost")
    assert build("index.md", "# Here").returncode != 0


def test_the_notebook_is_kept_without_outputs():
    cells = json.loads((ROOT / "docs" / "example.ipynb").read_text())["cells"]
    assert len(cells) > 10
    assert [cell for cell in cells if cell.get("outputs") or cell.get("execution_count")] == []


@pytest.mark.long  # CI builds the site, too; test_generated.py and test_links.py read its pages
def test_no_page_loads_anything_from_another_server(built_site):
    pages = sorted(built_site.rglob("*.html"))
    assert len(pages) > 40
    for page in pages:
        foreign = [found[0] for found in LOADED.finditer(page.read_text()) if 'rel="canonical"' not in found[0]]
        assert foreign == [], page.name


def test_a_foreign_script_would_be_seen():
    assert LOADED.search('<script src="https://cdn.example/x.js"></script>')
    assert not LOADED.search('<script src="assets/x.js"></script><a href="https://example.org">')
