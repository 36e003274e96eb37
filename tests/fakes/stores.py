"""The two kinds of MLflow store, for tests where they could differ."""

import pytest

BOTH_STORES = pytest.mark.parametrize("uri", ["sqlite", "http"], indirect=True)
"""A SQLite file, then a server over HTTP: for artifacts, names, deleting, searching, two publishers at once."""
