"""The fakes of tests/fakes/fake_clock.py as fixtures."""

from __future__ import annotations

import pytest
from fake_clock import FakeClock, FakeDevice, FakeGroup


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def log() -> list[str]:
    """What was done, in order."""
    return []


@pytest.fixture
def device(clock: FakeClock, log: list[str]) -> FakeDevice:
    return FakeDevice(clock, log)


@pytest.fixture
def group(log: list[str]) -> FakeGroup:
    return FakeGroup(log)
