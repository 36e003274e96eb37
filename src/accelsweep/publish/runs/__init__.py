"""The runs that MLflow is to hold of a sweep: cells, their repeats, curves, and settings that cannot run."""
