"""The causes of the bytes of findings and report beside the records: versions, and the kind of machine."""

from __future__ import annotations

import platform
from importlib import metadata

DRAWERS = (
    "altair",
    "jinja2",
    "markupsafe",
    "numpy",
    "pandas",
    "pyarrow",
    "pydantic",
    "scipy",
    "vl-convert-python",
)


def drawn_with() -> dict[str, str]:
    """Return the versions of Python and of the packages that draw reports, and the machine's system and kind."""
    versions = {name: metadata.version(name) for name in DRAWERS}
    return {"python": platform.python_version(), "system": platform.system(), "machine": platform.machine(), **versions}
