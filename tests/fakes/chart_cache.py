"""A cache of rendered charts for all tests, because rendering the dozen of a report takes seconds.

A chart is rendered by the real library and cached by its specification and the version of Vega-Lite. Subprocesses of
tests do not use the cache.
"""

from __future__ import annotations

import hashlib
import json
from importlib.metadata import version as version_of
from pathlib import Path
from typing import Any

import pytest


def keep_pictures(patch: pytest.MonkeyPatch, folder: Path) -> None:
    """Render each chart once and cache it in `folder`, which parallel workers share."""
    import vl_convert

    from accelsweep.files import write_bytes_atomically

    draw = vl_convert.vegalite_to_svg

    def drawn(specification: dict[str, Any], version: str) -> str:
        asked = json.dumps([specification, version, version_of("vl-convert-python")]).encode()
        kept = folder / f"{hashlib.sha256(asked).hexdigest()}.svg"
        if not kept.exists():
            write_bytes_atomically(kept, draw(specification, version).encode())
        return kept.read_bytes().decode()

    patch.setattr(vl_convert, "vegalite_to_svg", drawn)
