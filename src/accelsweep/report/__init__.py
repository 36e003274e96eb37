"""Renders findings as tables, figures and a page, without computing new numbers."""
