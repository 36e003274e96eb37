"""A rank in this process."""

from shared_fixtures import ceilings, own_module, run, spec, ticking  # noqa: F401 - fixtures of the tests here
