"""A rank in this process, and a simulated sweep in memory."""

from shared_fixtures import ceilings, own_module, run, simulated, spec, ticking  # noqa: F401
