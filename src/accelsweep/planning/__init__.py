"""Makes the plan of a sweep: its settings, its blocks in random order, estimates, and what cannot run."""
