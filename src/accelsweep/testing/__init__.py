"""A simulated accelerator and workloads of known speed, for tests."""

from accelsweep.registry import Feature

FEATURE = Feature(name="testing", device_kind="accelsweep.testing.simulated_kind:SimulatedKind")
