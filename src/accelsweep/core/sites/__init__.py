"""The words of a site on its jobs, for each engine."""
