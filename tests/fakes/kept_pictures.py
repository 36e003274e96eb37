"""Pictures of charts that are drawn once for all tests: drawing the dozen of a report takes seconds.

A picture depends on its specification and on the version of Vega-Lite alone. It is drawn by the real library, and a
specification that no test had before is drawn anew. Processes that tests start draw for themselves.
"""

from __future__ import annotations

import hashlib
import json
from importlib.metadata import version as version_of
from pathlib import Path
from typing import Any

import pytest


def keep_pictures(patch: pytest.MonkeyPatch, folder: Path) -> None:
    """Let each picture be drawn once and kept in `folder`, which parallel workers share."""
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
