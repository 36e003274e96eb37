"""Metrics made of readings: rates, memory, energy, operations, utilisation; each a number or the reason for none."""
