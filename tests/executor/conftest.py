"""The spec that an executor gives its ranks, as a fixture."""

from __future__ import annotations

import functools

import pytest
from one_rank import make_spec


@pytest.fixture
def spec(tmp_path):
    return functools.partial(make_spec, tmp_path)
