"""A simulated sweep in memory."""

from shared_fixtures import simulated  # noqa: F401
