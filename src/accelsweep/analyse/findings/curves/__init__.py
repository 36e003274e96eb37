"""Findings along an axis: batch sizes, devices, the rungs of a ladder; cells that differ in a few keys only."""
