"""A simulated sweep in memory."""

from feature_fixtures import simulated  # noqa: F401
