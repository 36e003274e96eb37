"""Analyses a sweep: rates with intervals, comparisons with the baseline, costs, scaling, and the recommendation."""
