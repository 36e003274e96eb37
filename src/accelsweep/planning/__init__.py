"""Builds a sweep's plan: settings, blocks in random order, estimates, and unsupported settings."""
