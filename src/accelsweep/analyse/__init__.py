"""Collect, statistics, findings, advice. No torch, no mlflow."""
