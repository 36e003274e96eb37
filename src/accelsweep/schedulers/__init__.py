"""Cluster schedulers behind a common protocol."""
