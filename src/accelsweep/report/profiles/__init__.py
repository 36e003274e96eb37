"""Profiles in words, and as a table apart from what was measured."""
