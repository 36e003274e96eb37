"""Reading clocks, memory, energy and device state. Knows torch, not Lightning."""
