"""Cluster schedulers, behind one protocol."""
