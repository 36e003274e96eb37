"""Reads clocks, memory, energy and device state. Uses torch, not Lightning."""
