"""The contents of a plan: settings of the sweep, runs and blocks with their names, and prices."""
