"""What holds for the suite itself."""

from __future__ import annotations

import os

import pytest


@pytest.mark.skipif("PYTEST_XDIST_WORKER" not in os.environ, reason="there is one worker only")
def test_tests_that_share_something_expensive_share_a_worker(request):
    """pytest-xdist writes the group behind the name; with another pytest than it knows, it silently does not."""
    for item in request.session.items:
        groups = [mark.args[0] for mark in item.iter_markers("xdist_group")]
        assert not groups or item.nodeid.endswith(f"@{groups[0]}"), item.nodeid
