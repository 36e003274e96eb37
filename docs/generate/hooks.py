"""Hooks that MkDocs calls during a build: reference pages are generated from the code, not maintained by hand."""

from __future__ import annotations

import answers
import api
import commands
import config_keys
import doubts
import errors
import metrics
import notebook
from links import EXAMPLES, METHOD, PLAIN, SHOWN, for_the_site
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from sources import ROOT

REFERENCE = {
    "Commands": ("reference/commands.md", commands.page),
    "JSON output": ("reference/json.md", answers.page),
    "Config keys": ("reference/config.md", config_keys.page),
    "Metrics": ("reference/metrics.md", metrics.page),
    "Doubts": ("reference/doubts.md", doubts.page),
    "Errors, outcomes and exit codes": ("reference/errors.md", errors.page),
}


def on_config(settings: MkDocsConfig) -> MkDocsConfig:
    """Add the generated pages to the navigation, under the headings left empty for them in `mkdocs.yml`."""
    decisions = sorted(path.name for path in (ROOT / "docs" / "design").glob("0*.md"))
    filled = {
        "Reference": [{title: path} for title, (path, _) in REFERENCE.items()],
        "API": [{name.removesuffix(".md"): f"api/{name}"} for name in api.pages()],
        "Decisions": ["design/README.md", *(f"design/{name}" for name in decisions)],
    }
    assert settings.nav is not None
    settings.nav = [{title: filled.get(title, below)} for part in settings.nav for title, below in part.items()]
    return settings


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages, the pages from the repository's root, and the reports of the examples."""
    texts = {path: page() for path, page in REFERENCE.values()}
    texts |= {f"api/{name}": text for name, text in api.pages().items()}
    texts |= {page: for_the_site((ROOT / name).read_text()) for name, page in SHOWN.items()}
    for path, text in texts.items():
        files.append(File.generated(config, path, content=text))
    for report, page in EXAMPLES.items():
        text = (ROOT / report).with_name("index.html").read_text("utf-8")
        files.append(File.generated(config, page, content=text.replace(METHOD, "../method.html")))
    run = notebook.executed()
    for path in list(files.src_paths):
        if path == notebook.SOURCE.name:
            files.remove(files.src_paths[path])  # replaced by the version with outputs
    files.append(File.generated(config, notebook.SOURCE.name, content=notebook.written(run)))
    files.append(File.generated(config, "example.md", content=notebook.page(run)))
    for name in PLAIN:
        files.append(File.generated(config, name, content=(ROOT / name).read_text()))
    return files
