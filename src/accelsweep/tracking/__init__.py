"""Publishes records to MLflow."""
