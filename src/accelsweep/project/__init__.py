"""Projections onto devices that nobody here measured: always apart from measurements, always with an interval."""
