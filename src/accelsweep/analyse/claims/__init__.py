"""Claims put to the test: what others state, beside what the runs say."""
