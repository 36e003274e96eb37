"""Renders findings as tables, figures and a page. Adds no numbers."""
