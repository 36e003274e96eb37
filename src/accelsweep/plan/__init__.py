"""Decisions before any device is touched: compose, expand, refuse, cut into blocks, estimate. No torch."""
