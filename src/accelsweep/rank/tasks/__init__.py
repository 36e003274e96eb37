"""Tasks: what a run drives through its timed window, and what it measures after that."""
