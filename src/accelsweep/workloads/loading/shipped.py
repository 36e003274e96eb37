"""The data files that come with scikit-learn."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path


def shipped_file(name: str) -> Path:
    """Return the path of scikit-learn's data file `name`, without importing it. Raises FileNotFoundError."""
    spec = find_spec("sklearn")
    if spec is None or spec.origin is None:
        raise FileNotFoundError(
            "scikit-learn is not installed, and this data set is part of it: pip install scikit-learn"
        )
    return Path(spec.origin).parent / "datasets" / "data" / name
