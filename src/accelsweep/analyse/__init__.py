"""Collect, statistics, compare, scaling, cost, doubts, advice. No torch, no mlflow."""
