"""Copies a sweep's records to MLflow, and serves MLflow's UI for viewing them."""
