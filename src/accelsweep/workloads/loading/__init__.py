"""Batches made of rows: the sources of rows, their preprocessing, the endless stream of batches."""
