"""Statistics of a sweep: rates with intervals, comparisons with the baseline, costs, scaling, the recommendation."""
