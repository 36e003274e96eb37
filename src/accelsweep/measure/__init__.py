"""Reads clocks, memory, energy and device state. Depends on torch but not on Lightning."""
