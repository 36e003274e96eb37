"""The two kinds of MLflow store, for tests where they could differ."""

import pytest

BOTH_STORES = pytest.mark.parametrize("uri", ["sqlite", "http"], indirect=True)
"""A SQLite file, then a server over HTTP: for artifacts and names."""

BOTH_STORES_AT_LENGTH = pytest.mark.parametrize(
    "uri", ["sqlite", pytest.param("http", marks=pytest.mark.long)], indirect=True
)
"""The same, where the server costs a minute and what it does to each call is seen by the tests with BOTH_STORES."""
