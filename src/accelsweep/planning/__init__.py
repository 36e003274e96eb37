"""Builds a sweep's plan: its settings, its blocks in random order, estimates, and unsupported settings."""
