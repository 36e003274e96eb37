"""The store: where it lies, what it holds of an experiment, and how a difference is written to it."""
