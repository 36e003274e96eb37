"""The findings of a sweep: the numbers of its report, the advice that rests on them, and a claim's projections."""
