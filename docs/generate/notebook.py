"""The example notebook, run by a real kernel while the site is built, and shown with the resulting outputs."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from sources import ROOT

SOURCE = ROOT / "docs" / "example.ipynb"
"""The notebook as stored in the repository: without outputs."""

PATIENCE_SECONDS = 300

HEAD = """<!-- Made from docs/example.ipynb by the build. -->

"""


def executed(source: Path = SOURCE, folder: Path = ROOT, environment: Mapping[str, str] = os.environ) -> Any:
    """Return the notebook with its outputs, run in `folder`. Raises nbclient's CellExecutionError if a cell fails."""
    notebook: Any = nbformat.reads(source.read_text("utf-8"), as_version=4)  # type: ignore[no-untyped-call]
    resources = {"metadata": {"path": str(folder)}}
    client = NotebookClient(notebook, timeout=PATIENCE_SECONDS, kernel_name="python3", resources=resources)
    with tempfile.TemporaryDirectory() as sockets:
        manager = client.create_kernel_manager()
        manager.transport = "ipc"  # sockets in files that only we can open, instead of network ports
        manager.connection_file = str(Path(sockets) / "kernel.json")
        client.execute(env=dict(environment))
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # execution times: the page must not depend on when it was built
    return notebook


def written(notebook: Any) -> str:
    """Return the contents of the notebook's file."""
    text: str = nbformat.writes(notebook)  # type: ignore[no-untyped-call]
    return f"{text}\n"


def page(notebook: Any) -> str:
    """Return an executed notebook as a page, in Markdown."""
    return HEAD + "\n".join(_markdown(cell) for cell in notebook.cells)


def _markdown(cell: Any) -> str:
    if cell.cell_type != "code":
        return f"{cell.source}\n"
    shown = [_output(output) for output in cell.outputs]
    return "\n".join([f"```python\n{cell.source}\n```\n", *shown])


def _output(output: Any) -> str:
    """Return an output in the richest form available: an image, our own HTML, or text."""
    if output.output_type == "stream":
        return _text(output.text)
    for kind in ("image/svg+xml", "text/html"):
        if kind in output.data:
            return f'<div class="output">{_unbroken(output.data[kind])}</div>\n'
    return _text(output.data["text/plain"])


def _text(text: str) -> str:
    return f"```text\n{text.rstrip()}\n```\n"


def _unbroken(html: str) -> str:
    """Return HTML without blank lines and indentation, which Markdown would read as the end of the HTML and as code.

    The styles of pandas tables are removed, so they look like all other tables on the site.
    """
    own = re.sub(r"<style scoped>.*?</style>|(?<=<table)[^>]*dataframe[^>]*", "", html, flags=re.DOTALL)
    return re.sub(r"\n\s*", "\n", own.strip())
