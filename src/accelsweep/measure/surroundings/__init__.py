"""The surroundings of a window: device state, other processes, environment; and the doubts that follow from them."""
