"""The libraries that draw the page's charts, as one script: bundled once a machine, because that takes seconds.

The bundle depends on the versions in its file's name alone. So a page has the same bytes with and without the file.
"""

from __future__ import annotations

import contextlib
import hashlib
from functools import cache
from importlib.metadata import version
from pathlib import Path

import altair as alt
import vl_convert

from accelsweep.base.documents import write_bytes_atomically
from accelsweep.base.errors import AccelsweepError
from accelsweep.machine.locks import lease_folder

_EXPORTS = "window.vegaEmbed = vegaEmbed;"


@cache
def chart_libraries() -> str:
    """Return Vega, Vega-Lite and Vega-Embed as one script that defines `vegaEmbed`; about 0.9 MB, no request."""
    kept = _place()
    script = _read(kept) if kept else None
    if script is None:
        script = str(vl_convert.javascript_bundle(_EXPORTS, vega_lite_version()))
        if kept:
            with contextlib.suppress(OSError):  # a full disk costs the next report some seconds, and this one nothing
                write_bytes_atomically(kept, f"{_digest(script)}\n{script}".encode())
    return script


def vega_lite_version() -> str:
    """Return the Vega-Lite version that altair writes, as vl-convert names it: `6.4`."""
    return ".".join(alt.SCHEMA_VERSION.removeprefix("v").split(".")[:2])


def _place() -> Path | None:
    """Return the file of the bundle; None where this machine has no folder that only we can write to."""
    try:
        return lease_folder() / f"charts-{vega_lite_version()}-{version('vl-convert-python')}.js"
    except (AccelsweepError, OSError):
        return None


def _read(file: Path) -> str | None:
    """Return the bundle in `file`; None where there is none, or a damaged one."""
    with contextlib.suppress(OSError, UnicodeDecodeError):
        digest, _, script = file.read_bytes().decode().partition("\n")
        return script if digest == _digest(script) else None
    return None


def _digest(script: str) -> str:
    return hashlib.sha256(script.encode()).hexdigest()
