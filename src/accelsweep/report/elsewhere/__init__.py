"""Projections in the report: a section of their own, in words of their own."""
