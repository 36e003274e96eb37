"""Tasks: the work in a run's timed window, and the measurements after that."""
