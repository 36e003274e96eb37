"""Decisions before any device is touched: compose, expand, exclude, block design, estimate. No torch."""
