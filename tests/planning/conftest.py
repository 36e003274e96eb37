"""The fixtures for planning."""

from planning_fixtures import home, own_conf, plan_of, two_cores  # noqa: F401 - fixtures
