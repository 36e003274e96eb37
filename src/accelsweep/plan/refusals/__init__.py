"""Refusals of configs and cells, and their words, while nothing has been written yet."""
