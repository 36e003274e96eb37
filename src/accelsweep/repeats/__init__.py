"""Intervals, and the repeats that they take: one set of formulas for the plan, the measuring and the analysis."""
