"""A simulated accelerator and workloads of known speed, for tests."""
